"""Images seen in part: bilinear sampling; places of glimpses, their patches, reading them.

Axes: a point is (x, y), x to the right along a row of pixels, y DOWN the rows. Normalised, -1 is
the centre of the first pixel and +1 that of the last: pixel i of N is at `-1 + 2 i / (N - 1)`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import keras
import tensorflow as tf

from digits.config import GlimpseConfig
from digits.models import convolution, dense, sequential
from sat_tf.ops import at_least_one_row, step_seeds, uniform

IDENTITY = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0)
"""Entries of the identity, an affine map `[2, 3]`."""

CORNERS = ((-1.0, -1.0), (1.0, -1.0), (1.0, 1.0), (-1.0, 1.0))
"""Of a square around 0, clockwise on the screen from the top left."""


def to_pixels(points: tf.Tensor, height: int, width: int) -> tf.Tensor:
    """Converts normalised points (x, y) to pixels, `(p + 1) (N - 1) / 2`: `[..., 2]` of both."""
    last = tf.constant([width - 1, height - 1], points.dtype)
    return (points + 1.0) * (0.5 * last)


def affine_grid(theta: tf.Tensor, height: int, width: int) -> tf.Tensor:
    """Maps each pixel of an output to the point of the input where it is read, normalised.

    `(x_in, y_in) = theta (x_out, y_out, 1)`, `[B, 2, 3] -> [B, height, width, 2]`; sides of at
    least 2 pixels (Jaderberg et al., 2015, eq. 1, arXiv:1506.02025).
    """
    first, last = tf.constant(-1.0, theta.dtype), tf.constant(1.0, theta.dtype)
    x, y = tf.meshgrid(tf.linspace(first, last, width), tf.linspace(first, last, height))
    points = tf.stack([x, y, tf.ones_like(x)], axis=-1)
    return tf.einsum("bcp,hwp->bhwc", theta, points)


def bilinear_sample(images: tf.Tensor, points: tf.Tensor) -> tf.Tensor:
    """Samples images between their pixels; an image is zero beyond its border.

    `sum_n sum_m U[n, m] max(0, 1 - |x - m|) max(0, 1 - |y - n|)`, over the four pixels around
    the point (Jaderberg et al., 2015, eq. 5, arXiv:1506.02025).

    Args:
        images: Floating `[B, H, W, C]`.
        points: Floating `[B, ..., 2]`, (x, y) in pixels: (0, 0) is the centre of the first one.

    Returns:
        `[B, ..., C]`; differentiable in both.
    """
    batch, height, width = tf.unstack(tf.shape(images)[:3])
    pixels = tf.reshape(images, [batch * height * width, images.shape[-1]])
    # One axis at a time: TensorFlow broadcasts slowly over a last axis of two.
    x, y = tf.unstack(points, axis=-1)
    (left, of_left), (right, of_right) = _two_nearest(x, width)
    (top, of_top), (low, of_low) = _two_nearest(y, height)
    first_row = tf.reshape(tf.range(batch) * height, [-1] + [1] * (len(points.shape) - 2))

    def along(row):
        first = (first_row + row) * width
        from_left = tf.gather(pixels, first + left) * of_left
        return from_left + tf.gather(pixels, first + right) * of_right

    return along(top) * of_top + along(low) * of_low


def _two_nearest(place: tf.Tensor, pixels: tf.Tensor) -> list[tuple[tf.Tensor, tf.Tensor]]:
    """Pixels on either side of places `[B, ...]` on an axis, and their shares `[B, ..., 1]`."""
    # Integers cannot hold distant places; two pixels outside is as good as any distance.
    place = tf.clip_by_value(place, -2.0, tf.cast(pixels, place.dtype) + 1.0)
    before = tf.stop_gradient(tf.floor(place))
    share = place - before
    before = tf.cast(before, tf.int32)
    # A pixel outside has share zero, and the index of one inside.
    return [
        (
            tf.clip_by_value(pixel, 0, pixels - 1),
            tf.where((pixel >= 0) & (pixel < pixels), part, 0.0)[..., tf.newaxis],
        )
        for pixel, part in ((before, 1.0 - share), (before + 1, share))
    ]


def bilinear_sample_grid(images: tf.Tensor, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """`bilinear_sample` at rows and columns of points, `(x_j, y_i)`: two matrix products.

    `[B, H, W, C]`, x `[B, w]` and y `[B, h]` in pixels `-> [B, h, w, C]`; differentiable in all.
    """
    height, width = images.shape[1:3]
    by_rows = tf.einsum("bin,bnmc->bimc", _overlap(y, height), images)
    return tf.einsum("bimc,bjm->bijc", by_rows, _overlap(x, width))


def _overlap(places: tf.Tensor, pixels: int) -> tf.Tensor:
    """Share of each pixel in the value at each place of an axis: `[B, k] -> [B, k, pixels]`."""
    distance = tf.abs(places[..., tf.newaxis] - tf.range(pixels, dtype=places.dtype))
    return tf.nn.relu(1.0 - distance)


def transform(images: tf.Tensor, theta: tf.Tensor, height: int, width: int) -> tf.Tensor:
    """Views images through affine maps: `[B, H, W, C]`, `[B, 2, 3] -> [B, height, width, C]`."""
    grid = affine_grid(theta, height, width)
    return bilinear_sample(images, to_pixels(grid, images.shape[1], images.shape[2]))


def centres_of_mass(logits: tf.Tensor) -> tf.Tensor:
    """Mean point of the softmax of each heat map, normalised.

    `sum_ij softmax(logits)_ij (x_j, y_i)`. Unlike an arg max it is differentiable, and falls
    between the pixels of the map. `[B, height, width, K] -> [B, K, 2]`, (x, y); sides of at
    least 2 (Levine et al., 2016, Sec. 5.1, arXiv:1504.00702).
    """
    height, width, maps = logits.shape[1:]
    identity = tf.reshape(tf.constant(IDENTITY, logits.dtype), [1, 2, 3])
    points = tf.reshape(affine_grid(identity, height, width), [height * width, 2])
    weights = tf.nn.softmax(tf.reshape(logits, [-1, height * width, maps]), axis=1)
    return tf.einsum("bik,ic->bkc", weights, points)


# --- glimpses ---


class Aim(NamedTuple):
    """A location chosen from a state."""

    activation: tf.Tensor
    """`[B, 2]`, the mean before tanh; its gradient does not saturate."""
    mean: tf.Tensor
    """`[B, 2]`, mean of the policy, in (-1, 1)."""
    location: tf.Tensor
    """`[B, 2]`, in [-1, 1]; no gradient flows through it."""
    log_prob: tf.Tensor
    """`[B]`, log-density of the sample before clipping; differentiable in the mean."""


class LocationNetwork(keras.layers.Layer):
    """The policy over locations: a Gaussian around an MLP of the state.

    `mean = tanh(f_l(h))`, `l' ~ N(mean, std^2 I)`, `l = clip(l', -1, 1)`. The log-probability is
    that of l', since l has no density at the border, where many samples end (Mnih et al., 2014,
    Sec. 3.1-3.2, arXiv:1406.6247).

    Args:
        state_dim: Width of the state.
        hidden_dim: Width of the hidden layer.
        std: Standard deviation along each axis; 1 is half the image.

    Call arguments:
        hidden: `[B, state_dim]`; the gradient of `log_prob` flows to it.
        seed: int32 `[2]`, stateless; None takes the mean.
    """

    def __init__(self, state_dim: int, hidden_dim: int, std: float, **kwargs) -> None:
        super().__init__(**kwargs)
        self.state_dim, self.std = state_dim, std
        self.hidden_layer = dense(state_dim, hidden_dim, "relu", name="hidden")
        # Small, because tanh saturates.
        small = keras.initializers.RandomNormal(stddev=0.01)
        self.mean_layer = dense(hidden_dim, 2, kernel_initializer=small, name="mean")
        self.built = True

    def call(self, hidden: tf.Tensor, seed: tf.Tensor | None = None) -> Aim:
        """Aims the next glimpse."""
        activation = self.mean_layer(self.hidden_layer(hidden))
        mean = tf.tanh(activation)
        drawn = mean
        if seed is not None:
            draw = lambda mean: gaussian(mean, self.std).sample(seed=seed)  # noqa: E731
            drawn = at_least_one_row(draw, mean)
        drawn = tf.stop_gradient(drawn)
        log_prob = gaussian(mean, self.std).log_prob(drawn)
        return Aim(activation, mean, tf.clip_by_value(drawn, -1.0, 1.0), log_prob)


def gaussian(mean: tf.Tensor, std: float):
    """`N(mean, std^2 I)` over the last axis: `tfp.distributions.MultivariateNormalDiag`."""
    # TensorFlow Probability takes over a second to import.
    import tensorflow_probability as tfp

    return tfp.distributions.MultivariateNormalDiag(mean, std * tf.ones_like(mean))


def given_locations(
    config: GlimpseConfig,
    rows: tf.Tensor,
    seed: tf.Tensor,
    random_share: tf.Tensor | float = 0.0,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Places glimpses that are given, and says which they are.

    Args:
        config: Settings of the model.
        rows: B, number of images.
        seed: int32 `[2]`.
        random_share: Share of the rows with all glimpses in random places.

    Returns:
        Normalised locations `[T, B, 2]`, and bool `[T, B]`, true where they are used.
    """
    steps = config.glimpses
    places, shares = tf.unstack(step_seeds(seed, 2))
    given = 2.0 * uniform([steps, rows, 2], places) - 1.0
    warm_up = uniform([rows], shares) < random_share
    used = tf.tile(warm_up[tf.newaxis], [steps, 1])
    if config.first_location == "random":
        used = tf.concat([tf.ones([1, rows], tf.bool), used[1:]], axis=0)
    return given, used


class GlimpseSensor(keras.layers.Layer):
    """The retina: square patches around a location, each twice as wide as the one before.

    Patch k covers `2^k size` pixels with `size` values per side. To avoid aliasing, the image is
    first averaged over blocks of `2^k` pixels, once per image; bilinear sampling then reads the
    patches from these smaller images. An image is zero beyond its border (Mnih et al., 2014,
    Sec. 3.1 A, arXiv:1406.6247).

    Args:
        size: Values along a side of every patch.
        scales: Number of patches.
    """

    def __init__(self, size: int, scales: int, **kwargs) -> None:
        super().__init__(**kwargs)
        self.size, self.scales = size, scales
        self.built = True

    def pyramid(self, images: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Averages over blocks of 1, 2, 4, ... pixels: `[B, ceil(H / 2^k), ceil(W / 2^k), C]`."""
        return tuple(block_means(images, 2**k) for k in range(self.scales))

    def call(self, pyramid: tuple[tf.Tensor, ...], location: tf.Tensor) -> tf.Tensor:
        """Reads patches around locations `[B, 2]`: `[B, size, size, scales C]`, finest first."""
        height, width = pyramid[0].shape[1:3]
        centre = to_pixels(location, height, width)[..., tf.newaxis]
        offsets = tf.range(self.size, dtype=location.dtype) - (self.size - 1) / 2
        patches = []
        for k, images in enumerate(pyramid):
            block = 2**k
            # The centre of block 0 lies between the pixels that it averages.
            x, y = tf.unstack((centre - (block - 1) / 2) / block + offsets, axis=1)
            patches.append(bilinear_sample_grid(images, x, y))
        return tf.concat(patches, axis=-1)


def block_means(images: tf.Tensor, block: int) -> tf.Tensor:
    """Means over squares of `block` pixels: `[B, H, W, C] -> [B, ceil(H / block), ..., C]`."""
    if block == 1:
        return images
    height, width = images.shape[1:3]
    # Zeros beyond the border count, unlike in "SAME" pooling.
    images = tf.pad(images, [[0, 0], [0, -height % block], [0, -width % block], [0, 0]])
    return tf.nn.avg_pool2d(images, block, block, "VALID")


class GlimpseNetwork(keras.layers.Layer):
    """RAM's glimpse network: features of the patches plus features of the location.

    `g = relu(W2 relu(W1 rho) + W4 relu(W3 l))`, with biases: patches rho `[B, *patch_shape]` and
    locations l `[B, 2] -> [B, glimpse_dim]` (Mnih et al., 2014, Sec. 4, arXiv:1406.6247).

    Args:
        patch_shape: Shape of the sensor's output, without B.
        hidden_dim: Width of the two hidden layers.
        glimpse_dim: Width of g.
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

    `g = G_image(rho) * G_location(l)`: three convolutions and a hidden layer on the patches
    `[B, *patch_shape]`, a hidden layer on the locations `[B, 2]`; `[B, glimpse_dim]` (Ba et al.,
    2014, Sec. 3.1, arXiv:1412.7755).

    Args:
        patch_shape: `(size, size, scales)` of the sensor's output.
        filters: Width of the first convolution, of 5 x 5; the other two, of 3 x 3, have twice as
            many, and the first of these halves the sides of the patch.
        glimpse_dim: Width of g.
    """

    def __init__(
        self,
        patch_shape: tuple[int, int, int],
        filters: int,
        glimpse_dim: int,
        **kwargs,
    ) -> None:
        super().__init__(**kwargs)
        layers = [
            convolution(filters, 5),
            convolution(2 * filters, 3, strides=2),
            convolution(2 * filters, 3),
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
