"""RAM: one recurrent network reads the glimpses, aims them and answers."""

from __future__ import annotations

import keras
import tensorflow as tf

from sat_tf.digits.config import RAMConfig
from sat_tf.digits.layers.built import dense
from sat_tf.digits.layers.glimpse_networks import GlimpseNetwork
from sat_tf.digits.models.recurrent_attention import RecurrentAttention


@keras.saving.register_keras_serializable(package="sat_tf")
class RAM(RecurrentAttention):
    """The recurrent attention model.

    `h_t = f(h_{t-1}, g_t)`, `l_{t+1} ~ N(f_l(stop_gradient(h_t)), std^2 I)`,
    `y = softmax(f_a(h_T))`.

    Args:
        config: Of the model.
        image_size: Side of the square images, pixels.
        classes: K.
        **kwargs: For Keras.

    Call arguments:
        batch: See `RecurrentAttention`.

    References:
        Mnih et al. (2014), arXiv:1406.6247.
    """

    config_type = RAMConfig

    def __init__(self, config: RAMConfig, image_size: int, classes: int = 10, **kwargs) -> None:
        super().__init__(config, image_size, config.hidden_dim, **kwargs)
        self.glimpse_network = GlimpseNetwork(
            self.patch_shape, config.glimpse_hidden_dim, config.glimpse_dim, name="glimpse"
        )
        if config.core == "relu":
            self.core = keras.layers.SimpleRNNCell(config.hidden_dim, "relu", name="core")
        else:
            self.core = keras.layers.LSTMCell(config.hidden_dim, name="core")
        self.core.build((None, config.glimpse_dim))
        self.classifier = dense(config.hidden_dim, classes, name="classifier")
        self.built = True

    def begin(self, images: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Starts from zeros."""
        zeros = tf.zeros([tf.shape(images)[0], self.config.hidden_dim])
        return (zeros,) if self.config.core == "relu" else (zeros, zeros)

    def advance(
        self, patches: tf.Tensor, location: tf.Tensor, state: tuple[tf.Tensor, ...]
    ) -> tuple[tf.Tensor, ...]:
        """Takes one step of the core."""
        _, state = self.core(self.glimpse_network(patches, location), list(state))
        return tuple(state)

    def aiming(self, state: tuple[tf.Tensor, ...]) -> tf.Tensor:
        """Returns `stop_gradient(h)`: the core learns from the likelihood alone."""
        return tf.stop_gradient(state[0])

    def answer(self, state: tuple[tf.Tensor, ...]) -> tf.Tensor:
        """Computes the logits from h."""
        return self.classifier(state[0])
