"""Glimpses: the sensor that takes them, the networks that read them, the policy that aims them.

A location is (x, y), normalised to [-1, 1] as in `spatial_transformer`: y points down.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import keras
import tensorflow as tf

from sat_tf.layers.spatial_transformer import bilinear_sample_grid, to_pixels


@keras.saving.register_keras_serializable(package="sat_tf")
class GlimpseSensor(keras.layers.Layer):
    """The retina: square patches about a location, each twice as wide as the one before.

    Patch k covers `2^k size` pixels and gives `size` values a side. Its picture is averaged over
    blocks of `2^k` pixels first, once a picture, so that nothing finer than a value's own pixel
    gets into it (sampling alone would alias); patches are then read from these smaller pictures
    by bilinear sampling. A picture is zero beyond its border.

    Args:
        size: Values along a side of every patch.
        scales: Patches.

    References:
        Mnih et al. (2014), Sec. 3.1 A, arXiv:1406.6247.
    """

    def __init__(self, size: int, scales: int, **kwargs) -> None:
        super().__init__(**kwargs)
        self.size, self.scales = size, scales
        self.built = True

    def pyramid(self, images: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """The pictures averaged over 1, 2, 4, ... pixels a side.

        Args:
            images: `[B, H, W, C]`.

        Returns:
            One `[B, ceil(H / 2^k), ceil(W / 2^k), C]` a scale.
        """
        return tuple(block_means(images, 2**k) for k in range(self.scales))

    def call(self, pyramid: tuple[tf.Tensor, ...], location: tf.Tensor) -> tf.Tensor:
        """Patches about a location, the finest first.

        Args:
            pyramid: From `pyramid`.
            location: `[B, 2]`, normalised.

        Returns:
            `[B, size, size, scales C]`: patches side by side as channels.
        """
        height, width = pyramid[0].shape[1:3]
        centre = to_pixels(location, height, width)[..., tf.newaxis]
        offsets = tf.range(self.size, dtype=location.dtype) - (self.size - 1) / 2
        patches = []
        for k, pictures in enumerate(pyramid):
            block = 2**k
            # Block 0 has its centre between the pixels that it is the mean of.
            x, y = tf.unstack((centre - (block - 1) / 2) / block + offsets, axis=1)
            patches.append(bilinear_sample_grid(pictures, x, y))
        return tf.concat(patches, axis=-1)

    def get_config(self) -> dict:
        """Constructor arguments."""
        return {**super().get_config(), "size": self.size, "scales": self.scales}


def block_means(images: tf.Tensor, block: int) -> tf.Tensor:
    """Means over squares of `block` pixels: `[B, H, W, C] -> [B, ceil(H / block), ..., C]`."""
    if block == 1:
        return images
    height, width = images.shape[1:3]
    # Means over zeros beyond the border, which "SAME" pooling would leave out.
    images = tf.pad(images, [[0, 0], [0, -height % block], [0, -width % block], [0, 0]])
    return tf.nn.avg_pool2d(images, block, block, "VALID")


@keras.saving.register_keras_serializable(package="sat_tf")
class GlimpseNetwork(keras.layers.Layer):
    """RAM's: what was seen and where, added.

    `g = relu(W2 relu(W1 rho) + W4 relu(W3 l))`, each with its bias.

    Args:
        patch_shape: Of the sensor's output, without B.
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
        self.patch_shape, self.hidden_dim = tuple(patch_shape), hidden_dim
        self.glimpse_dim = glimpse_dim
        self.patch_layer = keras.layers.Dense(hidden_dim, "relu", name="w1")
        self.patch_projection = keras.layers.Dense(glimpse_dim, name="w2")
        self.location_layer = keras.layers.Dense(hidden_dim, "relu", name="w3")
        self.location_projection = keras.layers.Dense(glimpse_dim, name="w4")
        self.patch_layer.build((None, math.prod(self.patch_shape)))
        self.location_layer.build((None, 2))
        self.patch_projection.build((None, hidden_dim))
        self.location_projection.build((None, hidden_dim))
        self.built = True

    def call(self, patches: tf.Tensor, location: tf.Tensor) -> tf.Tensor:
        """The glimpse's features."""
        patches = tf.reshape(patches, [-1, math.prod(self.patch_shape)])
        what = self.patch_projection(self.patch_layer(patches))
        where = self.location_projection(self.location_layer(location))
        return tf.nn.relu(what + where)

    def get_config(self) -> dict:
        """Constructor arguments."""
        widths = {"hidden_dim": self.hidden_dim, "glimpse_dim": self.glimpse_dim}
        return {**super().get_config(), "patch_shape": self.patch_shape, **widths}


@keras.saving.register_keras_serializable(package="sat_tf")
class GatedGlimpseNetwork(keras.layers.Layer):
    """DRAM's: what was seen times where.

    `g = G_image(rho) * G_location(l)`: three convolutions and a hidden layer on the patches, a
    hidden layer on the location.

    Args:
        patch_shape: `(size, size, scales)` of the sensor's output.
        filters: Widths of the three convolutions, of 5, 3 and 3 pixels a side; the second halves
            the patch's sides.
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
        self.patch_shape, self.filters = tuple(patch_shape), tuple(filters)
        self.glimpse_dim = glimpse_dim
        first, second, third = filters
        options = {"padding": "same", "activation": "relu"}
        self.image_network = keras.Sequential(
            [
                keras.layers.Conv2D(first, 5, **options),
                keras.layers.Conv2D(second, 3, strides=2, **options),
                keras.layers.Conv2D(third, 3, **options),
                keras.layers.Flatten(),
                keras.layers.Dense(glimpse_dim, "relu"),
            ],
            name="image",
        )
        self.image_network.build((None, *self.patch_shape))
        # From one, a factor for every feature: nothing is lost before locations mean something.
        self.location_network = keras.layers.Dense(
            glimpse_dim, "relu", bias_initializer="ones", name="location"
        )
        self.location_network.build((None, 2))
        self.built = True

    def call(self, patches: tf.Tensor, location: tf.Tensor) -> tf.Tensor:
        """The glimpse's features."""
        return self.image_network(patches) * self.location_network(location)

    def get_config(self) -> dict:
        """Constructor arguments."""
        config = {"patch_shape": self.patch_shape, "filters": self.filters}
        return {**super().get_config(), **config, "glimpse_dim": self.glimpse_dim}


class Aim(NamedTuple):
    """A location chosen from a state."""

    activation: tf.Tensor
    """`[B, 2]`, whose tanh is the mean; differentiable however large it is."""
    mean: tf.Tensor
    """`[B, 2]`, of the policy; in (-1, 1)."""
    location: tf.Tensor
    """`[B, 2]`, where to look, in [-1, 1]; no gradient flows through it."""
    log_prob: tf.Tensor
    """`[B]`, log-density of the sample before it was clipped; differentiable in the mean."""


@keras.saving.register_keras_serializable(package="sat_tf")
class LocationNetwork(keras.layers.Layer):
    """The Gaussian policy over locations.

    `mean = tanh(f_l(h))`, `l' ~ N(mean, std^2 I)`, `l = clip(l', -1, 1)`. The log-probability is
    that of l': l has no density at the border, where many samples end.

    Args:
        state_dim: Width of the state.
        hidden_dim: Width of the hidden layer.
        std: Standard deviation along each axis; 1 is half the picture.

    Call arguments:
        hidden: `[B, state_dim]`. The gradient of `log_prob` flows to it: give what it is not to
            change as `stop_gradient`.
        seed: int32 `[2]`, stateless; None looks at the mean.

    Output:
        `Aim`.

    References:
        Mnih et al. (2014), Sec. 3.1-3.2, arXiv:1406.6247.
    """

    def __init__(self, state_dim: int, hidden_dim: int, std: float, **kwargs) -> None:
        super().__init__(**kwargs)
        self.state_dim, self.hidden_dim, self.std = state_dim, hidden_dim, std
        self.hidden_layer = keras.layers.Dense(hidden_dim, "relu", name="hidden")
        # Small: tanh of large numbers, whatever their sign, would hardly learn.
        small = keras.initializers.RandomNormal(stddev=0.01)
        self.mean_layer = keras.layers.Dense(2, kernel_initializer=small, name="mean")
        self.hidden_layer.build((None, state_dim))
        self.mean_layer.build((None, hidden_dim))
        self.built = True

    def call(self, hidden: tf.Tensor, seed: tf.Tensor | None = None) -> Aim:
        """Where to look next."""
        activation = self.mean_layer(self.hidden_layer(hidden))
        mean = tf.tanh(activation)
        policy = gaussian(mean, self.std)
        drawn = mean if seed is None else policy.sample(seed=seed)
        drawn = tf.stop_gradient(drawn)
        return Aim(activation, mean, tf.clip_by_value(drawn, -1.0, 1.0), policy.log_prob(drawn))

    def get_config(self) -> dict:
        """Constructor arguments."""
        config = {"state_dim": self.state_dim, "hidden_dim": self.hidden_dim, "std": self.std}
        return {**super().get_config(), **config}


def gaussian(mean: tf.Tensor, std: float):
    """`N(mean, std^2 I)` over the last axis: `tfp.distributions.MultivariateNormalDiag`."""
    # Imported here: TensorFlow Probability takes over a second to load.
    import tensorflow_probability as tfp

    return tfp.distributions.MultivariateNormalDiag(mean, std * tf.ones_like(mean))
