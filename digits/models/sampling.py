"""Bilinear sampling of images at any points, on grids, and through affine maps.

Axes: a point is (x, y), x to the right along a row of pixels, y DOWN the rows. Normalised, -1 is
the centre of the first pixel and +1 that of the last: pixel i of N lies at `-1 + 2 i / (N - 1)`.
"""

from __future__ import annotations

import tensorflow as tf

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

    `(x_in, y_in) = theta (x_out, y_out, 1)`, `x_out = -1 + 2 j / (width - 1)` in column j and
    `y_out = -1 + 2 i / (height - 1)` in row i.

    Args:
        theta: `[B, 2, 3]`; its first row gives x, its second y.
        height: Of the output, pixels; at least 2.
        width: Of the output, pixels; at least 2.

    Returns:
        `[B, height, width, 2]`, points (x, y).

    References:
        Jaderberg et al. (2015), eq. 1, arXiv:1506.02025.
    """
    first, last = tf.constant(-1.0, theta.dtype), tf.constant(1.0, theta.dtype)
    x, y = tf.meshgrid(tf.linspace(first, last, width), tf.linspace(first, last, height))
    points = tf.stack([x, y, tf.ones_like(x)], axis=-1)
    return tf.einsum("bcp,hwp->bhwc", theta, points)


def bilinear_sample(images: tf.Tensor, points: tf.Tensor) -> tf.Tensor:
    """Samples images between their pixels; an image is zero beyond its border.

    `sum_n sum_m U[n, m] max(0, 1 - |x - m|) max(0, 1 - |y - n|)`, over the four pixels around
    the point.

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
    """Finds the pixels on either side of places on an axis, and their shares; `[B, ...]`.

    A share is `max(0, 1 - |x - m|)` with a last axis for channels. A pixel outside has share
    zero, and the index of one inside.
    """
    # Integers cannot hold distant places; two pixels outside is as good as any distance.
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
    """`bilinear_sample` at rows and columns of points, `(x_j, y_i)`: two matrix products.

    `sum_n max(0, 1 - |y_i - n|) sum_m U[n, m] max(0, 1 - |x_j - m|)`: the weights are the same in
    every row and in every column.

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
    between the pixels of the map.

    Args:
        logits: `[B, height, width, K]`; sides of at least 2.

    Returns:
        `[B, K, 2]`, (x, y).

    References:
        Levine et al. (2016), Sec. 5.1, arXiv:1504.00702.
    """
    height, width, maps = logits.shape[1:]
    identity = tf.reshape(tf.constant(IDENTITY, logits.dtype), [1, 2, 3])
    points = tf.reshape(affine_grid(identity, height, width), [height * width, 2])
    weights = tf.nn.softmax(tf.reshape(logits, [-1, height * width, maps]), axis=1)
    return tf.einsum("bik,ic->bkc", weights, points)
