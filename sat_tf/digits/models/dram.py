"""DRAM: one recurrent network reads the glimpses and answers, another above it aims them."""

from __future__ import annotations

from typing import NamedTuple

import keras
import tensorflow as tf

from sat_tf.digits.config import DRAMConfig
from sat_tf.digits.layers.built import convolution, dense, sequential
from sat_tf.digits.layers.glimpse_networks import GatedGlimpseNetwork
from sat_tf.digits.layers.sensor import block_means
from sat_tf.digits.models.recurrent_attention import RecurrentAttention


class DRAMState(NamedTuple):
    """State of the two LSTMs, (h, c) each."""

    lower: tuple[tf.Tensor, tf.Tensor]
    """Reads the glimpses and answers; starts from zeros."""
    upper: tuple[tf.Tensor, tf.Tensor]
    """Reads the lower one and aims; its h starts from the context."""


@keras.saving.register_keras_serializable(package="sat_tf")
class DRAM(RecurrentAttention):
    """The deep recurrent attention model.

    `r1_n = LSTM(g_n, r1_{n-1})`, `r2_n = LSTM(stop_gradient(r1_n), r2_{n-1})`,
    `l_{n+1} ~ N(E(r2_n), std^2 I)`, `y = softmax(O(r1_N))`; `r1_0 = 0`, `r2_0 = C(coarse image)`,
    or zero without context. The context tells where to look, not what is there: the classifier
    sees nothing of the upper network, which learns, with the context, from the policy's gradient
    alone; that gradient ends at r1.

    Args:
        config: Of the model.
        image_size: Side of the square images, pixels.
        classes: K.
        **kwargs: For Keras.

    Call arguments:
        batch: See `RecurrentAttention`.

    References:
        Ba et al. (2014), arXiv:1412.7755.
    """

    config_type = DRAMConfig

    def __init__(self, config: DRAMConfig, image_size: int, classes: int, **kwargs) -> None:
        super().__init__(config, image_size, config.hidden_dim, **kwargs)
        filters = (config.glimpse_filters, 2 * config.glimpse_filters, 2 * config.glimpse_filters)
        self.glimpse_network = GatedGlimpseNetwork(
            self.patch_shape, filters, config.glimpse_dim, name="glimpse"
        )
        self.lower = keras.layers.LSTMCell(config.hidden_dim, name="lower")
        self.lower.build((None, config.glimpse_dim))
        self.upper = keras.layers.LSTMCell(config.hidden_dim, name="upper")
        self.upper.build((None, config.hidden_dim))
        self.classifier = dense(config.hidden_dim, classes, name="classifier")
        self.context_network = self._context_network() if config.context else None
        self.built = True

    def _context_network(self) -> keras.Sequential:
        """C: three convolutions, of which the second and third halve the sides."""
        config = self.config
        width, side = config.context_filters, -(-self.image_size // config.context_block)
        layers = [
            convolution(width, 5),
            convolution(width, 3, strides=2),
            convolution(width, 3, strides=2),
            keras.layers.Flatten(),
            keras.layers.Dense(config.hidden_dim, "tanh"),
        ]
        return sequential(layers, (side, side, 1), "context")

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
