"""Networks that read a glimpse: its patches and its location."""

from __future__ import annotations

import math

import keras
import tensorflow as tf

from sat_tf.digits.layers.built import convolution, dense, sequential


class GlimpseNetwork(keras.layers.Layer):
    """RAM's glimpse network: features of the patches plus features of the location.

    `g = relu(W2 relu(W1 rho) + W4 relu(W3 l))`, with biases.

    Args:
        patch_shape: Shape of the sensor's output, without B.
        hidden_dim: Width of the two hidden layers.
        glimpse_dim: Width of g.

    Call arguments:
        patches: `[B, *patch_shape]`, rho.
        location: `[B, 2]`, l.

    Output:
        `[B, glimpse_dim]`.

    References:
        Mnih et al. (2014), Sec. 4, "Glimpse network", arXiv:1406.6247.
    """

    def __init__(
        self, patch_shape: tuple[int, ...], hidden_dim: int, glimpse_dim: int, **kwargs
    ) -> None:
        super().__init__(**kwargs)
        self.patch_shape = tuple(patch_shape)
        self.patch_layer = dense(math.prod(self.patch_shape), hidden_dim, "relu", name="w1")
        self.patch_projection = dense(hidden_dim, glimpse_dim, name="w2")
        self.location_layer = dense(2, hidden_dim, "relu", name="w3")
        self.location_projection = dense(hidden_dim, glimpse_dim, name="w4")
        self.built = True

    def call(self, patches: tf.Tensor, location: tf.Tensor) -> tf.Tensor:
        """Computes g."""
        patches = tf.reshape(patches, [-1, math.prod(self.patch_shape)])
        what = self.patch_projection(self.patch_layer(patches))
        where = self.location_projection(self.location_layer(location))
        return tf.nn.relu(what + where)


class GatedGlimpseNetwork(keras.layers.Layer):
    """DRAM's glimpse network: features of the patches times features of the location.

    `g = G_image(rho) * G_location(l)`: three convolutions and a hidden layer on the patches, a
    hidden layer on the location.

    Args:
        patch_shape: `(size, size, scales)` of the sensor's output.
        filters: Widths of the three convolutions, of 5, 3 and 3 pixels per side; the second halves
            the sides of the patch.
        glimpse_dim: Width of g.

    Call arguments:
        patches: `[B, *patch_shape]`.
        location: `[B, 2]`.

    Output:
        `[B, glimpse_dim]`.

    References:
        Ba et al. (2014), Sec. 3.1, "Glimpse network", arXiv:1412.7755.
    """

    def __init__(
        self,
        patch_shape: tuple[int, int, int],
        filters: tuple[int, int, int],
        glimpse_dim: int,
        **kwargs,
    ) -> None:
        super().__init__(**kwargs)
        first, second, third = filters
        layers = [
            convolution(first, 5),
            convolution(second, 3, strides=2),
            convolution(third, 3),
            keras.layers.Flatten(),
            keras.layers.Dense(glimpse_dim, "relu"),
        ]
        self.image_network = sequential(layers, patch_shape, "image")
        # Starts near 1, so that features pass before locations mean something.
        self.location_network = dense(
            2, glimpse_dim, "relu", bias_initializer="ones", name="location"
        )
        self.built = True

    def call(self, patches: tf.Tensor, location: tf.Tensor) -> tf.Tensor:
        """Computes g."""
        return self.image_network(patches) * self.location_network(location)
