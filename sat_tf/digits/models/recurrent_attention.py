"""The common part of RAM and DRAM: a sequence of glimpses, each aimed from the state before.

Shapes: B images, M samples per image, T glimpses, K classes, N width of a state. With samples
there are B M rows, those of an image side by side.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from sat_tf.digits.config import GlimpseConfig
from sat_tf.digits.layers.bilinear import CORNERS, to_pixels
from sat_tf.digits.layers.given_locations import given_locations
from sat_tf.digits.layers.policy import LocationNetwork
from sat_tf.digits.layers.sensor import GlimpseSensor
from sat_tf.digits.models.digit_model import DigitModel, Reading, Score
from sat_tf.digits.objectives.classification import predicted_class
from sat_tf.digits.objectives.glimpses import GlimpseObjective
from sat_tf.figures.glimpse_path import glimpse_figure
from sat_tf.layers.lstm import batch_first, unroll
from sat_tf.objectives.baselines import LearnedBaseline
from sat_tf.objectives.terms import Batch
from sat_tf.ops.draws import step_seeds

State = Any


class Glimpses(NamedTuple):
    """A sequence of glimpses, time second, and the answer after it."""

    location: tf.Tensor
    """`[B, T, 2]`, normalised."""
    log_prob: tf.Tensor
    """`[B, T]`, of the location drawn; meaningless where the location was given."""
    activation: tf.Tensor
    """`[B, T, 2]`, whose tanh is the policy's mean; meaningless where the location was given."""
    aiming: tf.Tensor
    """`[B, T, N]`, the state from which each location was drawn."""
    drawn: tf.Tensor
    """float32 `[B, T]`, 1.0 where the policy chose the location."""
    logits: tf.Tensor
    """`[B, K]`, from the last state."""


class RecurrentAttention(DigitModel):
    """A classifier that sees an image through a few glimpses.

    The policy aims each glimpse from the present state, so every location drawn is looked at. The
    networks that answer learn from `log p(y | glimpses)`, those that aim from the reward alone
    (`GlimpseObjective`); a subclass defines both and keeps the policy's gradient out of the first.

    Args:
        config: Of the model.
        image_size: Side of the square images, pixels.
        aiming_dim: N, width of the state that aims.
        **kwargs: For Keras.

    Call arguments:
        batch: `images` `[B, image_size, image_size, 1]`, `labels` int `[B]`; oracle locations
            need `centres` `[B, D, 2]`, those of the image's D digits, normalised.
    """

    def __init__(self, config: GlimpseConfig, image_size: int, aiming_dim: int, **kwargs) -> None:
        super().__init__(config, **kwargs)
        self.image_size = image_size
        self.sensor = GlimpseSensor(config.glimpse_size, config.scales, name="sensor")
        self.locator = LocationNetwork(
            aiming_dim, config.location_hidden_dim, config.std, name="locator"
        )
        if config.baseline == "learned":
            self.baseline = LearnedBaseline(aiming_dim, name="baseline")
        self.objective = GlimpseObjective(config)

    @property
    def patch_shape(self) -> tuple[int, int, int]:
        """Shape of the patches of one glimpse."""
        return self.config.glimpse_size, self.config.glimpse_size, self.config.scales

    @property
    def separately_clipped(self) -> list[keras.Variable]:
        """The weights of policy and baseline, which learn from rewards."""
        return self.locator.trainable_variables + super().separately_clipped

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor arguments, and `answers`."""
        return {
            **super().get_config(),
            "image_size": self.image_size,
            "classes": self.classifier.units,
        }

    # --- defined by a subclass ---

    def begin(self, images: tf.Tensor) -> State:
        """Returns the state before the first glimpse: a nest of `[B, ...]`."""
        raise NotImplementedError

    def advance(self, patches: tf.Tensor, location: tf.Tensor, state: State) -> State:
        """Returns the state after a glimpse."""
        raise NotImplementedError

    def aiming(self, state: State) -> tf.Tensor:
        """Returns the input of policy and baseline, `[B, N]`; the policy's gradient flows to it."""
        raise NotImplementedError

    def answer(self, state: State) -> tf.Tensor:
        """Returns the logits `[B, K]` of the last state."""
        raise NotImplementedError

    # --- glimpses ---

    def call(
        self,
        batch: Batch,
        seed: tf.Tensor,
        samples: int = 1,
        sample: bool = True,
        random_share: tf.Tensor | float = 0.0,
    ) -> Glimpses:
        """Takes the glimpses of a batch of images, M rows per image.

        Args:
            batch: See the class.
            seed: int32 `[2]`, stateless.
            samples: M.
            sample: Draw locations; False takes the means of the policy.
            random_share: Share of the images whose glimpses are in random places.
        """
        images, steps = batch["images"], self.config.glimpses
        fold = tf.random.experimental.stateless_fold_in
        given, is_given = given_locations(self.config, batch, samples, fold(seed, 0), random_share)
        pyramid, state = tf.nest.map_structure(
            lambda part: tf.repeat(part, samples, axis=0) if samples > 1 else part,
            (self.sensor.pyramid(images), self.begin(images)),
        )

        def step(inputs_t, state):
            given_t, is_given_t, seed_t = inputs_t
            hidden = self.aiming(state)
            aim = self.locator(hidden, seed_t if sample else None)
            location = tf.where(is_given_t[:, tf.newaxis], given_t, aim.location)
            patches = self.sensor(pyramid, location)
            state = self.advance(patches, location, state)
            return (location, aim.log_prob, aim.activation, hidden), state

        shapes = ([2], [], [2], [self.locator.state_dim])
        outputs = tuple(tf.TensorSpec([None, *shape], tf.float32) for shape in shapes)
        inputs = (given, is_given, step_seeds(fold(seed, 1), tf.constant(steps)))
        taken, state = unroll(step, state, inputs, outputs)
        drawn = 1.0 - tf.cast(is_given, tf.float32)
        return Glimpses(*map(batch_first, (*taken, drawn)), self.answer(state))

    def seen(self, images: tf.Tensor, location: tf.Tensor) -> tf.Tensor:
        """Returns the patches of glimpses; apart from `call`, as training would store them.

        Args:
            images: `[B, H, W, 1]`.
            location: `[B, T, 2]`, as in `Glimpses`.

        Returns:
            `[B, T, size, size, scales]`.
        """
        pyramid, steps = self.sensor.pyramid(images), range(location.shape[1])
        return tf.stack([self.sensor(pyramid, location[:, t]) for t in steps], axis=1)

    def read(self, images: tf.Tensor) -> Reading:
        """Reads images at the policy's mean locations; random first locations are fixed ones."""
        seed, config = tf.zeros([2], tf.int32), self.config
        given, is_given = given_locations(config, {"images": images}, 1, seed)
        pyramid, state = self.sensor.pyramid(images), self.begin(images)
        steps = []
        for t in range(config.glimpses):
            aimed = self.locator(self.aiming(state)).location
            location = tf.where(is_given[t][:, tf.newaxis], given[t], aimed)
            patches = self.sensor(pyramid, location)
            state = self.advance(patches, location, state)
            steps.append((self._corners(location), patches, self.answer(state)))
        return Reading(*(tf.stack(parts, axis=1) for parts in zip(*steps, strict=True)))

    def _corners(self, location: tf.Tensor) -> tf.Tensor:
        """Corners of the finest patch: `[B, 2] -> [B, 4, 2]`, as in `Reading`."""
        # The centre of pixel 0 is half a pixel from the border.
        centre = to_pixels(location, self.image_size, self.image_size) + 0.5
        offsets = 0.5 * self.config.glimpse_size * tf.constant(CORNERS)
        return (centre[:, tf.newaxis] + offsets) / self.image_size

    # --- evaluation ---

    def scores(self, batch: Batch, seed: tf.Tensor) -> dict[str, Score]:
        """Scores a batch at the policy's mean locations, and at sampled ones (percent; nats)."""
        labels = batch["labels"]
        mean = self(batch, seed, sample=False).logits
        sampled = self(batch, seed).logits
        nll = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, mean)
        return {
            "error": Score(_error(mean, labels)),
            "error_sampled": Score(_error(sampled, labels)),
            "nll": Score(nll),
        }

    def figures(self, batch: Batch, seed: tf.Tensor) -> list[np.ndarray]:
        """Draws the path of mean locations over each image, and the patches of each glimpse."""
        glimpses = self(batch, seed, sample=False)
        predicted = predicted_class(glimpses.logits).numpy()
        patches = self.seen(batch["images"], glimpses.location).numpy()
        images, labels = batch["images"].numpy()[..., 0], batch["labels"].numpy()
        return [
            glimpse_figure(
                images[i],
                glimpses.location[i].numpy(),
                patches[i],
                title=self.verdict(labels[i], predicted[i]),
            )
            for i in range(len(images))
        ]


def _error(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """100 where the answer is wrong, else 0; `[B]`."""
    return 100.0 * tf.cast(predicted_class(logits) != labels, tf.float32)
