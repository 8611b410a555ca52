"""Bilinear sampling, at any points and for glimpses, and the Spatial Transformer built on it.

Axes: a point is (x, y), x to the right along a row of pixels, y DOWN the rows. Normalised, -1 is
the centre of the first pixel and +1 that of the last: pixel i of N lies at `-1 + 2 i / (N - 1)`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import keras
import numpy as np
import tensorflow as tf

_IDENTITY = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0)


def to_pixels(points: tf.Tensor, height: int, width: int) -> tf.Tensor:
    """Normalised points (x, y) in pixels: `(p + 1) (N - 1) / 2`; `[..., 2] -> [..., 2]`."""
    last = tf.constant([width - 1, height - 1], points.dtype)
    return (points + 1.0) * (0.5 * last)


def affine_grid(theta: tf.Tensor, height: int, width: int) -> tf.Tensor:
    """Where each pixel of an output is to be read in the input, normalised.

    `(x_in, y_in) = theta (x_out, y_out, 1)`, `x_out = -1 + 2 j / (width - 1)` in column j and
    `y_out = -1 + 2 i / (height - 1)` in row i.

    Args:
        theta: `[B, 2, 3]`; its first row gives x, its second y.
        height: Of the output, pixels; at least 2.
        width: Of the output, pixels; at least 2.

    Returns:
        `[B, height, width, 2]`, points (x, y).

    Raises:
        ValueError: A side of the output is below 2: its only pixel would have no place.

    References:
        Jaderberg et al. (2015), eq. 1, arXiv:1506.02025.
    """
    if height < 2 or width < 2:
        raise ValueError(
            "Received an invalid value for arguments `height` and `width`: expected 2 or more, "
            f"got {height} and {width}."
        )
    first, last = tf.constant(-1.0, theta.dtype), tf.constant(1.0, theta.dtype)
    x, y = tf.meshgrid(tf.linspace(first, last, width), tf.linspace(first, last, height))
    points = tf.stack([x, y, tf.ones_like(x)], axis=-1)
    return tf.einsum("bcp,hwp->bhwc", theta, points)


def bilinear_sample(images: tf.Tensor, points: tf.Tensor) -> tf.Tensor:
    """Values of images between their pixels; zero outside.

    `sum_n sum_m U[n, m] max(0, 1 - |x - m|) max(0, 1 - |y - n|)`, the sum over the four pixels
    about the point. A picture goes on as zeros beyond its border, so that values fade within one
    pixel of it.

    Args:
        images: Floating `[B, H, W, C]`.
        points: Floating `[B, ..., 2]`, (x, y) in pixels: (0, 0) is the centre of the first one.

    Returns:
        `[B, ..., C]`; differentiable in both.

    References:
        Jaderberg et al. (2015), eq. 5, arXiv:1506.02025.
    """
    batch, height, width = tf.unstack(tf.shape(images)[:3])
    pixels = tf.reshape(images, [batch * height * width, images.shape[-1]])
    # An axis by itself: TensorFlow is slow where the two values of a point meet one of each.
    x, y = tf.unstack(points, axis=-1)
    (left, of_left), (right, of_right) = _two_nearest(x, width)
    (top, of_top), (low, of_low) = _two_nearest(y, height)
    picture = tf.reshape(tf.range(batch) * height, [-1] + [1] * (len(points.shape) - 2))

    def along(row):
        first = (picture + row) * width
        from_left = tf.gather(pixels, first + left) * of_left
        return from_left + tf.gather(pixels, first + right) * of_right

    return along(top) * of_top + along(low) * of_low


def _two_nearest(place: tf.Tensor, pixels: tf.Tensor) -> list[tuple[tf.Tensor, tf.Tensor]]:
    """The pixels on either side of a place along an axis, and the share of each; `[B, ...]`.

    A share is `max(0, 1 - |x - m|)` with a last axis for channels, and zero for a pixel outside,
    for which another one stands.
    """
    # Far places would not fit an integer; two pixels outside is as good as far away.
    place = tf.clip_by_value(place, -2.0, tf.cast(pixels, place.dtype) + 1.0)
    before = tf.stop_gradient(tf.floor(place))
    share = place - before
    before = tf.cast(before, tf.int32)
    return [
        (
            tf.clip_by_value(pixel, 0, pixels - 1),
            tf.where((pixel >= 0) & (pixel < pixels), part, 0.0)[..., tf.newaxis],
        )
        for pixel, part in ((before, 1.0 - share), (before + 1, share))
    ]


def bilinear_sample_grid(images: tf.Tensor, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """`bilinear_sample` where the points are rows and columns, `(x_j, y_i)`: two matrix products.

    `sum_n max(0, 1 - |y_i - n|) sum_m U[n, m] max(0, 1 - |x_j - m|)`: the same sum, whose weights
    are then the same in every row and in every column.

    Args:
        images: Floating `[B, H, W, C]`.
        x: Floating `[B, w]`, of the columns, in pixels.
        y: Floating `[B, h]`, of the rows.

    Returns:
        `[B, h, w, C]`; differentiable in all.
    """
    height, width = images.shape[1:3]
    by_rows = tf.einsum("bin,bnmc->bimc", _overlap(y, height), images)
    return tf.einsum("bimc,bjm->bijc", by_rows, _overlap(x, width))


def _overlap(places: tf.Tensor, pixels: int) -> tf.Tensor:
    """Each pixel's share in what is read at a place, along one axis: `[B, k] -> [B, k, pixels]`."""
    distance = tf.abs(places[..., tf.newaxis] - tf.range(pixels, dtype=places.dtype))
    return tf.nn.relu(1.0 - distance)


def transform(images: tf.Tensor, theta: tf.Tensor, height: int, width: int) -> tf.Tensor:
    """Images seen through affine maps: `[B, H, W, C]`, `[B, 2, 3] -> [B, height, width, C]`."""
    grid = affine_grid(theta, height, width)
    return bilinear_sample(images, to_pixels(grid, images.shape[1], images.shape[2]))


def centres_of_mass(logits: tf.Tensor) -> tf.Tensor:
    """Where heat maps have their weight: the mean point under the softmax of each.

    `sum_ij softmax(logits)_ij (x_j, y_i)`, normalised points. Unlike an arg max it has a gradient,
    and it falls between the map's pixels.

    Args:
        logits: `[B, height, width, K]`; sides of at least 2.

    Returns:
        `[B, K, 2]`, (x, y).

    References:
        Levine et al. (2016), Sec. 5.1, arXiv:1504.00702.
    """
    height, width, maps = logits.shape[1:]
    identity = tf.reshape(tf.constant(_IDENTITY, logits.dtype), [1, 2, 3])
    points = tf.reshape(affine_grid(identity, height, width), [height * width, 2])
    weights = tf.nn.softmax(tf.reshape(logits, [-1, height * width, maps]), axis=1)
    return tf.einsum("bik,ic->bkc", weights, points)


@keras.saving.register_keras_serializable(package="sat_tf")
class SpatialTransformer(keras.layers.Layer):
    """Reads an affine map from the picture, and gives the picture seen through it.

    `theta = f_loc(U)`, `V = transform(U, theta)`. The localisation net is convolutions of 5 x 5,
    each after a mean over 2 x 2 pixels. Then comes a hidden layer, or the centres of mass of heat
    maps, or both. The hidden layer can tell how a thing is turned; where it is, it would have to
    learn for each place by itself, while a heat map finds it in any. The last layer, `theta`,
    starts as the constant identity; where there are heat maps, moved to the mean of their centres,
    which lie near the middle at first.

    Args:
        image_size: Side of the square pictures, pixels.
        output_size: Side of what it gives, pixels.
        filters: Width of the convolutions.
        hidden_dim: Width of the hidden layer; 0 for none.
        points: Heat maps; 0 for none.
        **kwargs: For Keras; a `dtype` policy is that of the 5 x 5 convolutions alone.

    Call arguments:
        images: `[B, image_size, image_size, 1]`.

    Output:
        `[B, output_size, output_size, 1]`, and theta `[B, 2, 3]`.

    Raises:
        ValueError: There is neither a hidden layer nor a heat map.

    References:
        Jaderberg et al. (2015), Sec. 3, arXiv:1506.02025; Levine et al. (2016), Sec. 5.1,
        arXiv:1504.00702, for the heat maps.
    """

    def __init__(
        self,
        image_size: int,
        output_size: int,
        filters: Sequence[int] = (20, 20),
        hidden_dim: int = 50,
        points: int = 0,
        **kwargs,
    ) -> None:
        # Pictures are sampled as they come: bfloat16 has not the digits for a place in them.
        super().__init__(autocast=False, **kwargs)
        if not hidden_dim and not points:
            raise ValueError(
                "Received invalid values for arguments `hidden_dim` and `points`: expected one of "
                "them above 0, got 0 and 0."
            )
        self.image_size, self.output_size = image_size, output_size
        self.filters, self.hidden_dim, self.points = tuple(filters), hidden_dim, points
        layers, policy = [], self.dtype_policy
        for width in filters:
            layers += [keras.layers.AveragePooling2D(2), _convolution(width, policy)]
        self.convolutions = _built(layers, (None, image_size, image_size, 1), "convolutions")
        grid = self.convolutions.output_shape
        self.hidden = self.heat_maps = None
        if hidden_dim:
            layers = [keras.layers.MaxPooling2D(2), keras.layers.Flatten()]
            layers.append(keras.layers.Dense(hidden_dim, activation="tanh"))
            self.hidden = _built(layers, grid, "hidden")
        if points:
            layers = [_convolution(filters[-1], policy), keras.layers.Conv2D(points, 1)]
            self.heat_maps = _built(layers, grid, "heat_maps")
        self.theta = keras.layers.Dense(
            6, kernel_initializer=_towards_centres(points), bias_initializer=_identity, name="theta"
        )
        self.theta.build((None, hidden_dim + 2 * points))
        self.built = True

    def call(self, images: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The rectified pictures and their maps."""
        features, read = self.convolutions(images), []
        if self.hidden is not None:
            read.append(self.hidden(features))
        if self.heat_maps is not None:
            centres = centres_of_mass(self.heat_maps(features))
            read.append(tf.reshape(centres, [-1, 2 * self.points]))
        theta = tf.reshape(self.theta(tf.concat(read, axis=-1)), [-1, 2, 3])
        return transform(images, theta, self.output_size, self.output_size), theta

    def get_config(self) -> dict:
        """Constructor arguments."""
        return {
            **super().get_config(),
            "image_size": self.image_size,
            "output_size": self.output_size,
            "filters": self.filters,
            "hidden_dim": self.hidden_dim,
            "points": self.points,
        }


def _convolution(width: int, policy: keras.DTypePolicy) -> keras.layers.Layer:
    return keras.layers.Conv2D(width, 5, padding="same", activation="relu", dtype=policy)


def _built(layers: list[keras.layers.Layer], shape: tuple, name: str) -> keras.Sequential:
    stack = keras.Sequential(layers, name=name)
    stack.build(shape)
    return stack


def _identity(shape, dtype=None):
    return tf.constant(_IDENTITY, dtype or tf.float32)


def _towards_centres(points: int) -> Callable[..., tf.Tensor]:
    """Zeros, but that the middle of the output is the mean of the heat maps' centres."""

    def kernel(shape, dtype=None):
        weights = np.zeros(shape, np.float32)
        if points:
            weights[-2 * points :: 2, 2] = weights[1 - 2 * points :: 2, 5] = 1.0 / points
        return tf.constant(weights, dtype or tf.float32)

    return kernel
