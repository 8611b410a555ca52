"""What RAM and DRAM share: glimpses one after another, and the objective that aims them.

Shapes: B pictures, M samples a picture, T glimpses, K classes, N width of a state. With samples
there are B M rows, those of a picture side by side.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from sat_tf.baselines import LearnedBaseline
from sat_tf.estimators import Objective, Rollout, learning_signal, stochastic_loss
from sat_tf.glimpse_config import GlimpseConfig
from sat_tf.glimpse_pictures import glimpse_picture
from sat_tf.layers.glimpse import GlimpseSensor, LocationNetwork
from sat_tf.layers.unroll import batch_first, step_seeds, unroll
from sat_tf.models.digit_model import Batch, DigitModel, Figure, predicted_class
from sat_tf.models.rollout_logs import weighted_mean

State = Any

_SCAN_RADIUS = 6.0  # pixels from a digit's centre: half of its stroke, drawn in 20 x 20


class Looks(NamedTuple):
    """A sequence of glimpses, time second."""

    location: tf.Tensor
    """`[B, T, 2]`, where each was taken."""
    log_prob: tf.Tensor
    """`[B, T]`, of the location drawn; of no meaning where it was given."""
    activation: tf.Tensor
    """`[B, T, 2]`, whose tanh is the policy's mean; of no meaning where the location was given."""
    aiming: tf.Tensor
    """`[B, T, N]`, the state from which each location was drawn."""
    drawn: tf.Tensor
    """float32 `[B, T]`, 1.0 where the location is the policy's."""
    logits: tf.Tensor
    """`[B, K]`, from the last state."""


class RecurrentAttention(DigitModel):
    """A classifier that sees a picture through a few glimpses.

    Before each glimpse the policy aims from the present state, so no location is drawn that is
    not looked at: there is none after the last glimpse. The networks that answer learn from
    `log p(y | glimpses)`, those that aim from the reward alone, by `sat_tf.estimators`; a subclass
    gives them both and keeps the policy's gradient out of the first.

    Args:
        config: Of the model.
        image_size: Side of the square pictures, pixels.
        classes: K.
        aiming_dim: N, width of the state that aims.
        **kwargs: For Keras.

    Call arguments:
        batch: `images` `[B, image_size, image_size, 1]`, `labels` int `[B]`; oracle locations
            need `centres` `[B, D, 2]`, those of the picture's D digits, normalised.
    """

    log_names = ("nll", "accuracy", "reward", "value", "score_loss", "aim_penalty")

    def __init__(
        self, config: GlimpseConfig, image_size: int, classes: int, aiming_dim: int, **kwargs
    ) -> None:
        super().__init__(config, **kwargs)
        self.image_size, self.classes = image_size, classes
        self.sensor = GlimpseSensor(config.glimpse_size, config.scales, name="sensor")
        self.locator = LocationNetwork(
            aiming_dim, config.location_hidden_dim, config.std, name="locator"
        )
        self.baseline = None
        if config.baseline == "learned":
            self.baseline = LearnedBaseline(aiming_dim, name="baseline")

    @property
    def patch_shape(self) -> tuple[int, int, int]:
        """Of what one glimpse sees."""
        return self.config.glimpse_size, self.config.glimpse_size, self.config.scales

    @property
    def own_variables(self) -> list[keras.Variable]:
        """The policy's and the baseline's, which learn from rewards."""
        baseline = self.baseline.trainable_variables if self.baseline is not None else []
        return self.locator.trainable_variables + baseline

    # --- what a subclass gives ---

    def begin(self, images: tf.Tensor) -> State:
        """The state before the first glimpse: nest of `[B, ...]`."""
        raise NotImplementedError

    def advance(self, patches: tf.Tensor, location: tf.Tensor, state: State) -> State:
        """The state after a glimpse."""
        raise NotImplementedError

    def aiming(self, state: State) -> tf.Tensor:
        """What the policy and the baseline read, `[B, N]`; the policy's gradient flows into it."""
        raise NotImplementedError

    def answer(self, state: State) -> tf.Tensor:
        """Logits `[B, K]` from the last state."""
        raise NotImplementedError

    # --- glimpses ---

    def call(
        self,
        batch: Batch,
        seed: tf.Tensor,
        samples: int = 1,
        sample: bool = True,
        random_share: tf.Tensor | float = 0.0,
    ) -> Looks:
        """Look at a batch of pictures.

        Args:
            batch: Pictures.
            seed: int32 `[2]`, stateless.
            samples: M.
            sample: Draw locations; False looks at the policy's means.
            random_share: Share of the pictures that are looked at in random places.

        Returns:
            `Looks`, M rows a picture.
        """
        images = batch["images"]
        steps = self.config.glimpses
        fold = tf.random.experimental.stateless_fold_in
        given, use_given = self._given(batch, samples, fold(seed, 0), random_share)
        pyramid, state = tf.nest.map_structure(
            lambda part: tf.repeat(part, samples, axis=0) if samples > 1 else part,
            (self.sensor.pyramid(images), self.begin(images)),
        )

        def step(inputs_t, state):
            given_t, use_given_t, seed_t = inputs_t
            hidden = self.aiming(state)
            aim = self.locator(hidden, seed_t if sample else None)
            location = tf.where(use_given_t[:, tf.newaxis], given_t, aim.location)
            patches = self.sensor(pyramid, location)
            state = self.advance(patches, location, state)
            return (location, aim.log_prob, aim.activation, hidden), state

        shapes = ([2], [], [2], [self.locator.state_dim])
        outputs = tuple(tf.TensorSpec([None, *shape], tf.float32) for shape in shapes)
        inputs = (given, use_given, step_seeds(fold(seed, 1), tf.constant(steps)))
        looked, state = unroll(step, state, inputs, outputs)
        drawn = 1.0 - tf.cast(use_given, tf.float32)
        return Looks(*map(batch_first, (*looked, drawn)), self.answer(state))

    def seen(self, images: tf.Tensor, location: tf.Tensor) -> tf.Tensor:
        """What glimpses see.

        Kept apart from `call`: training would store it for every glimpse, and never look at it.

        Args:
            images: `[B, H, W, 1]`.
            location: `[B, T, 2]`, as `Looks` has it.

        Returns:
            `[B, T, size, size, scales]`.
        """
        pyramid, steps = self.sensor.pyramid(images), range(location.shape[1])
        return tf.stack([self.sensor(pyramid, location[:, t]) for t in steps], axis=1)

    def _given(
        self, batch: Batch, samples: int, seed: tf.Tensor, random_share: tf.Tensor | float
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Locations not of the policy's choosing, `[T, B M, 2]`, and where they are used."""
        config, rows = self.config, tf.shape(batch["images"])[0] * samples
        steps = config.glimpses
        places, shares = tf.unstack(tf.random.experimental.stateless_split(seed, 2))
        given = tf.random.stateless_uniform([steps, rows, 2], places, -1.0, 1.0)
        if config.locations == "oracle":
            scan = scan_locations(batch["centres"], steps, self.image_size)
            given = tf.repeat(scan, samples, axis=1)
        if config.locations != "learned":
            return given, tf.ones([steps, rows], tf.bool)
        warm = tf.random.stateless_uniform([rows], shares) < random_share
        use_given = tf.tile(warm[tf.newaxis], [steps, 1])
        if config.first_location == "centre":
            given = tf.concat([tf.zeros([1, rows, 2]), given[1:]], axis=0)
        if config.first_location != "learned":
            first = tf.ones([1, rows], tf.bool)
            use_given = tf.concat([first, use_given[1:]], axis=0)
        return given, use_given

    # --- training and testing ---

    def training_loss(
        self, batch: Batch, seed: tf.Tensor
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """`-bound + reward_weight * score_function_loss + value_weight * (value - reward)^2`.

        And `aim_weight * sum_t a_t^2` with a_t before the policy's tanh: where a glimpse makes no
        difference, the noise of its reward would carry its mean to the border, and there tanh lets
        no gradient through. The squares keep it near the middle.
        """
        config = self.config
        looks = self(batch, seed, samples=config.samples, random_share=self._random_share())
        labels = tf.repeat(batch["labels"], config.samples)
        log_lik = -tf.nn.sparse_softmax_cross_entropy_with_logits(labels, looks.logits)
        correct = tf.cast(predicted_class(looks.logits) == labels, tf.float32)
        reward = correct if config.reward == "correct" else log_lik
        value = self.baseline(looks.aiming) if self.baseline is not None else None
        rollout = Rollout(
            log_prob=self._by_sample(looks.log_prob),
            entropy=None,
            log_lik=self._by_sample(self._at_the_end(log_lik)),
            reward=self._by_sample(self._at_the_end(reward)),
            mask=self._by_sample(looks.drawn),
            value=None if value is None else self._by_sample(value),
        )
        objective = Objective(
            config.reward_weight, value_weight=config.value_weight, baseline=config.baseline
        )
        signal = learning_signal(rollout, objective)
        loss = stochastic_loss(rollout, *signal, objective)
        aim_penalty = tf.reduce_mean(
            tf.reduce_sum(looks.drawn * tf.reduce_sum(looks.activation**2, axis=-1), axis=-1)
        )
        loss += config.aim_weight * aim_penalty
        score = tf.reduce_sum(rollout.mask * signal.advantage * rollout.log_prob, axis=-1)
        logs = {
            "nll": -tf.reduce_mean(log_lik),
            "accuracy": 100.0 * tf.reduce_mean(correct),
            "reward": tf.reduce_mean(reward),
            "value": weighted_mean(signal.baseline, rollout.mask),
            "score_loss": -tf.reduce_mean(score),
            "aim_penalty": aim_penalty,
        }
        return loss, logs

    def figures(self, batch: Batch, seed: tf.Tensor) -> dict[str, Figure]:
        """Errors in percent, at the policy's mean locations and at sampled ones; nats."""
        labels = batch["labels"]
        mean = self(batch, seed, sample=False).logits
        sampled = self(batch, seed).logits
        nll = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, mean)
        return {
            "error": Figure(_error(mean, labels)),
            "error_sampled": Figure(_error(sampled, labels)),
            "nll": Figure(nll),
        }

    def pictures(self, batch: Batch, seed: tf.Tensor) -> list[np.ndarray]:
        """The path of mean locations over each picture, and what each glimpse saw."""
        looks = self(batch, seed, sample=False)
        predicted = predicted_class(looks.logits).numpy()
        patches = self.seen(batch["images"], looks.location).numpy()
        images, labels = batch["images"].numpy()[..., 0], batch["labels"].numpy()
        return [
            glimpse_picture(
                images[i],
                looks.location[i].numpy(),
                patches[i],
                title=self.verdict(labels[i], predicted[i]),
            )
            for i in range(len(images))
        ]

    def _random_share(self) -> tf.Tensor | float:
        """Falls linearly from 1 to 0 over the warm-up."""
        if not self.config.random_steps:
            return 0.0
        done = tf.cast(self.optimizer.iterations, tf.float32) / self.config.random_steps
        return tf.maximum(1.0 - done, 0.0)

    def _at_the_end(self, values: tf.Tensor) -> tf.Tensor:
        """`[B M] -> [B M, T]`, zero but for the last glimpse."""
        return tf.pad(values[:, tf.newaxis], [[0, 0], [self.config.glimpses - 1, 0]])

    def _by_sample(self, rows: tf.Tensor) -> tf.Tensor:
        """`[B M, T] -> [M, B, T]`."""
        rows = tf.reshape(rows, [-1, self.config.samples, self.config.glimpses])
        return tf.transpose(rows, [1, 0, 2])


def scan_locations(centres: tf.Tensor, glimpses: int, image_size: int) -> tf.Tensor:
    """Where one looks who knows where the digits are: their centres, then around them.

    Glimpses are shared out among a picture's digits, one digit after another. The first of a
    digit is at its centre, the others on a circle about it.

    Args:
        centres: `[B, D, 2]`, normalised.
        glimpses: T.
        image_size: Side of the pictures, pixels.

    Returns:
        `[T, B, 2]`, normalised, in [-1, 1].
    """
    digits = centres.shape[1]
    places = []
    for share in np.array_split(np.arange(glimpses), digits):
        for n in range(len(share)):
            angle = 2.0 * math.pi * (n - 1) / max(len(share) - 1, 1)
            radius = _SCAN_RADIUS if n else 0.0
            places.append((radius * math.cos(angle), radius * math.sin(angle)))
    digit = np.concatenate(
        [np.full(len(s), d) for d, s in enumerate(np.array_split(np.arange(glimpses), digits))]
    )
    offsets = 2.0 / (image_size - 1) * np.array(places, np.float32)
    locations = tf.gather(centres, digit, axis=1) + offsets
    return tf.transpose(tf.clip_by_value(locations, -1.0, 1.0), [1, 0, 2])


def _error(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """`[B]`, 100 where the answer is wrong."""
    return 100.0 * tf.cast(predicted_class(logits) != labels, tf.float32)
