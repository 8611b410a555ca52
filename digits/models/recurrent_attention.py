"""RAM and DRAM: classifiers that see an image through glimpses, each aimed from the state before.

Shapes: B images, T glimpses, K classes, N width of a state.
"""

from __future__ import annotations

from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from digits.config import DRAMConfig, GlimpseConfig, RAMConfig
from digits.models import (
    DigitModel,
    Reading,
    Score,
    convolution,
    dense,
    glimpse_figure,
    predicted_class,
    sequential,
)
from digits.models.glimpses import (
    CORNERS,
    GatedGlimpseNetwork,
    GlimpseNetwork,
    GlimpseSensor,
    LocationNetwork,
    block_means,
    given_locations,
    to_pixels,
)
from sat_tf.layers.lstm import batch_first, unroll
from sat_tf.objectives.estimators import (
    Estimator,
    Rollout,
    learning_signal,
    stochastic_loss,
    weighted_mean,
)
from sat_tf.ops import fold_in, replica_seed, step_seeds
from sat_tf.train_step import Batch, Terms, weighted


class Glimpses(NamedTuple):
    """A sequence of glimpses, time second, and the answer after it."""

    location: tf.Tensor
    """`[B, T, 2]`, normalised."""
    log_prob: tf.Tensor
    """`[B, T]`, of the location drawn; meaningless where the location was given."""
    activation: tf.Tensor
    """`[B, T, 2]`, the policy's mean before tanh; meaningless where the location was given."""
    aiming: tf.Tensor
    """`[B, T, N]`, the state from which each location was drawn."""
    drawn: tf.Tensor
    """float32 `[B, T]`, 1.0 where the policy chose the location."""
    logits: tf.Tensor
    """`[B, K]`, from the last state."""


class LearnedBaseline(keras.layers.Layer):
    """Expected return `f(stop_gradient(h))`, f an MLP (NVIL); zero before training.

    Call arguments:
        hidden: `[..., state_dim]`, the state each action was drawn from; no gradient flows to it.

    References:
        Mnih & Gregor (2014), arXiv:1402.0030.
    """

    def __init__(self, state_dim: int, **kwargs) -> None:
        super().__init__(**kwargs)
        self.hidden_layer = dense(state_dim, 100, "tanh", name="hidden")
        self.output_layer = dense(100, 1, kernel_initializer="zeros", name="output")
        self.built = True

    def call(self, hidden: tf.Tensor) -> tf.Tensor:
        """Returns the expected return of each state, `[...]`."""
        return self.output_layer(self.hidden_layer(tf.stop_gradient(hidden)))[..., 0]


class RecurrentAttention(DigitModel):
    """A classifier that sees an image through a few glimpses.

    The policy aims each glimpse from the present state, so every location drawn is looked at. The
    networks that answer learn from `log p(y | glimpses)`, those that aim from the reward alone
    (`GlimpseObjective`); a subclass defines both and keeps the policy's gradient out of the first:
    `begin(images)` and `advance(patches, location, state)` return the state, a nest of `[B, ...]`,
    `aiming(state)` the input of policy and baseline, `[B, N]`, and `answer(state)` the logits.

    Args:
        config: Settings of the model.
        image_size: Side of the square images, pixels.
        aiming_dim: N, width of the state that aims.
        **kwargs: For Keras.

    Call arguments:
        images: `[B, image_size, image_size, 1]`.
    """

    def __init__(self, config: GlimpseConfig, image_size: int, aiming_dim: int, **kwargs) -> None:
        super().__init__(config, **kwargs)
        self.image_size = image_size
        self.sensor = GlimpseSensor(config.glimpse_size, config.scales, name="sensor")
        self.locator = LocationNetwork(
            aiming_dim, config.location_hidden_dim, config.std, name="locator"
        )
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

    def call(
        self,
        images: tf.Tensor,
        seed: tf.Tensor,
        sample: bool = True,
        random_share: tf.Tensor | float = 0.0,
    ) -> Glimpses:
        """Takes the glimpses of a batch of images.

        Args:
            images: `[B, image_size, image_size, 1]`.
            seed: int32 `[2]`, stateless.
            sample: Draw locations; False takes the means of the policy.
            random_share: Share of the images with glimpses in random places.
        """
        rows, locations = tf.shape(images)[0], fold_in(seed, 0)
        given, is_given = given_locations(self.config, rows, locations, random_share)
        pyramid, state = self.sensor.pyramid(images), self.begin(images)

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
        steps = tf.constant(self.config.glimpses)
        inputs = (given, is_given, step_seeds(fold_in(seed, 1), steps))
        taken, state = unroll(step, state, inputs, outputs)
        drawn = 1.0 - tf.cast(is_given, tf.float32)
        return Glimpses(*map(batch_first, (*taken, drawn)), self.answer(state))

    def read(self, images: tf.Tensor) -> Reading:
        """Reads images at the policy's mean locations; random first locations are fixed ones."""
        locations, patches, logits = self._look(images, tf.zeros([2], tf.int32))
        # The centre of pixel 0 is half a pixel from the border.
        centres = to_pixels(locations, self.image_size, self.image_size) + 0.5
        offsets = 0.5 * self.config.glimpse_size * tf.constant(CORNERS)
        corners = (centres[:, :, tf.newaxis] + offsets) / self.image_size
        return Reading(corners, patches, logits)

    def _look(self, images: tf.Tensor, seed: tf.Tensor) -> list[tf.Tensor]:
        """Takes the policy's mean glimpses: locations, patches, and logits after each."""
        given, is_given = given_locations(self.config, tf.shape(images)[0], seed)
        pyramid, state = self.sensor.pyramid(images), self.begin(images)
        looks = []
        for t in range(self.config.glimpses):
            aimed = self.locator(self.aiming(state)).location
            location = tf.where(is_given[t][:, tf.newaxis], given[t], aimed)
            patches = self.sensor(pyramid, location)
            state = self.advance(patches, location, state)
            looks.append((location, patches, self.answer(state)))
        return [tf.stack(parts, axis=1) for parts in zip(*looks, strict=True)]

    def scores(self, batch: Batch, seed: tf.Tensor) -> dict[str, Score]:
        """Scores a batch at the policy's mean locations, and at sampled ones (percent; nats)."""
        images, labels = batch["images"], batch["labels"]
        mean, sampled = self(images, seed, sample=False).logits, self(images, seed).logits
        wrong = lambda logits: tf.cast(predicted_class(logits) != labels, tf.float32)  # noqa: E731
        return {
            "error": Score(100.0 * wrong(mean)),
            "error_sampled": Score(100.0 * wrong(sampled)),
            "nll": Score(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, mean)),
        }

    def figures(self, batch: Batch, seed: tf.Tensor) -> list[np.ndarray]:
        """Draws the path of mean locations over each image, and the patches of each glimpse."""
        looks = self._look(batch["images"], fold_in(seed, 0))
        locations, patches, logits = (part.numpy() for part in looks)
        titles = map(self.verdict, batch["labels"].numpy(), logits[:, -1].argmax(-1))
        drawn = zip(batch["images"].numpy()[..., 0], locations, patches, titles, strict=True)
        return [glimpse_figure(*parts) for parts in drawn]


class RAM(RecurrentAttention):
    """The recurrent attention model.

    `h_t = relu(W_h h_{t-1} + W_g g_t + b)`, `l_{t+1} ~ N(f_l(stop_gradient(h_t)), std^2 I)`,
    `y = softmax(f_a(h_T))` with K `classes` (Mnih et al., 2014, arXiv:1406.6247). Called as
    `RecurrentAttention`.
    """

    def __init__(self, config: RAMConfig, image_size: int, classes: int = 10, **kwargs) -> None:
        super().__init__(config, image_size, config.hidden_dim, **kwargs)
        self.glimpse_network = GlimpseNetwork(
            self.patch_shape, config.glimpse_hidden_dim, config.glimpse_dim, name="glimpse"
        )
        self.core = keras.layers.SimpleRNNCell(config.hidden_dim, "relu", name="core")
        self.core.build((None, config.glimpse_dim))
        self.classifier = dense(config.hidden_dim, classes, name="classifier")
        self.built = True

    def begin(self, images: tf.Tensor) -> tf.Tensor:
        """Starts from zeros."""
        return tf.zeros([tf.shape(images)[0], self.config.hidden_dim])

    def advance(self, patches: tf.Tensor, location: tf.Tensor, state: tf.Tensor) -> tf.Tensor:
        """Takes one step of the core."""
        return self.core(self.glimpse_network(patches, location), [state])[0]

    def aiming(self, state: tf.Tensor) -> tf.Tensor:
        """Returns `stop_gradient(h)`: the core learns from the likelihood alone."""
        return tf.stop_gradient(state)

    def answer(self, state: tf.Tensor) -> tf.Tensor:
        """Computes the logits from h."""
        return self.classifier(state)


class DRAMState(NamedTuple):
    """State of the two LSTMs, (h, c) each."""

    lower: tuple[tf.Tensor, tf.Tensor]
    """Reads the glimpses and answers; starts from zeros."""
    upper: tuple[tf.Tensor, tf.Tensor]
    """Reads the lower one and aims; its h starts from the context."""


class DRAM(RecurrentAttention):
    """The deep recurrent attention model.

    `r1_n = LSTM(g_n, r1_{n-1})`, `r2_n = LSTM(stop_gradient(r1_n), r2_{n-1})`,
    `l_{n+1} ~ N(E(r2_n), std^2 I)`, `y = softmax(O(r1_N))`; `r1_0 = 0`, `r2_0 = C(coarse image)`,
    or zero without context. The context shows where to look, not the digits: the classifier
    sees nothing of the upper network, which learns, with the context, from the policy's gradient
    alone; that gradient ends at r1 (Ba et al., 2014, arXiv:1412.7755).
    """

    def __init__(self, config: DRAMConfig, image_size: int, classes: int, **kwargs) -> None:
        super().__init__(config, image_size, config.hidden_dim, **kwargs)
        self.glimpse_network = GatedGlimpseNetwork(
            self.patch_shape, config.glimpse_filters, config.glimpse_dim, name="glimpse"
        )
        self.lower = keras.layers.LSTMCell(config.hidden_dim, name="lower")
        self.lower.build((None, config.glimpse_dim))
        self.upper = keras.layers.LSTMCell(config.hidden_dim, name="upper")
        self.upper.build((None, config.hidden_dim))
        self.classifier = dense(config.hidden_dim, classes, name="classifier")
        self.context_network = None
        if config.context:
            width, side = config.context_filters, -(-image_size // config.context_block)
            layers = [
                convolution(width, 5),
                convolution(width, 3, strides=2),
                convolution(width, 3, strides=2),
                keras.layers.Flatten(),
                keras.layers.Dense(config.hidden_dim, "tanh"),
            ]
            self.context_network = sequential(layers, (side, side, 1), "context")
        self.built = True

    @property
    def separately_clipped(self) -> list[keras.Variable]:
        """All weights that learn from rewards."""
        context = self.context_network.trainable_variables if self.context_network else []
        return [*super().separately_clipped, *self.upper.trainable_variables, *context]

    def begin(self, images: tf.Tensor) -> DRAMState:
        """Starts from zeros and the context."""
        zeros = tf.zeros([tf.shape(images)[0], self.config.hidden_dim])
        context = zeros
        if self.context_network is not None:
            context = self.context_network(block_means(images, self.config.context_block))
        return DRAMState((zeros, zeros), (context, zeros))

    def advance(self, patches: tf.Tensor, location: tf.Tensor, state: DRAMState) -> DRAMState:
        """Takes one step of both LSTMs."""
        glimpse = self.glimpse_network(patches, location)
        _, lower = self.lower(glimpse, list(state.lower))
        _, upper = self.upper(tf.stop_gradient(lower[0]), list(state.upper))
        return DRAMState(tuple(lower), tuple(upper))

    def aiming(self, state: DRAMState) -> tf.Tensor:
        """Returns the upper h."""
        return state.upper[0]

    def answer(self, state: DRAMState) -> tf.Tensor:
        """Computes the logits from the lower h."""
        return self.classifier(state.lower[0])


class GlimpseObjective:
    """Bound on log p of the label, with REINFORCE for the locations of the glimpses.

    `-bound + score_function_loss + (value - reward)^2 + aim_weight * sum_t a_t^2`. The reward is 1
    for the right answer, the value a learned baseline of each state that aims, a_t the policy's
    mean before its tanh. If a glimpse makes no difference, the noise of its reward drives its mean
    towards the border, where tanh passes no gradient; the last term keeps it near the middle.

    References:
        Mnih et al. (2014), arXiv:1406.6247; Ba et al. (2014), arXiv:1412.7755.
    """

    log_names = ("nll", "accuracy", "reward", "value", "score_loss", "aim_penalty")

    def __init__(self, config: GlimpseConfig) -> None:
        self.config = config
        self.estimator = Estimator(baseline="learned")

    def __call__(self, model, batch: Batch, seed: tf.Tensor) -> Terms:
        """Computes the loss of a batch of `images` and `labels`; see `Objective`."""
        config = self.config
        share = 0.0  # of images looked at in random places: falls from 1 to 0 in the warm-up
        if config.random_steps:
            done = tf.cast(model.optimizer.iterations, tf.float32) / config.random_steps
            share = tf.maximum(1.0 - done, 0.0)
        glimpses = model(batch["images"], replica_seed(seed), random_share=share)
        labels = batch["labels"]
        log_lik = -tf.nn.sparse_softmax_cross_entropy_with_logits(labels, glimpses.logits)
        correct = tf.cast(predicted_class(glimpses.logits) == labels, tf.float32)

        def at_the_end(values: tf.Tensor) -> tf.Tensor:
            """Places values at the last step, zeros before: `[B] -> [1, B, T]`."""
            return tf.pad(
                values[tf.newaxis, :, tf.newaxis], [[0, 0], [0, 0], [config.glimpses - 1, 0]]
            )

        rollout = Rollout(
            log_prob=glimpses.log_prob[tf.newaxis],
            entropy=None,
            log_lik=at_the_end(log_lik),
            reward=at_the_end(correct),
            mask=glimpses.drawn[tf.newaxis],
            value=model.baseline(glimpses.aiming)[tf.newaxis],
        )
        signal = learning_signal(rollout, self.estimator)
        squares = glimpses.drawn * tf.reduce_sum(glimpses.activation**2, axis=-1)
        aim_penalty = tf.reduce_mean(tf.reduce_sum(squares, axis=-1))
        loss = stochastic_loss(rollout, signal, self.estimator) + config.aim_weight * aim_penalty
        score = tf.reduce_sum(rollout.mask * signal.advantage * rollout.log_prob, axis=-1)
        means = {
            "nll": -tf.reduce_mean(log_lik),
            "accuracy": 100.0 * tf.reduce_mean(correct),
            "reward": tf.reduce_mean(correct),
            "value": weighted_mean(signal.baseline, rollout.mask),
            "score_loss": -tf.reduce_mean(score),
            "aim_penalty": aim_penalty,
        }
        return Terms(loss, weighted(means, tf.cast(tf.size(batch["labels"]), tf.float32)))
