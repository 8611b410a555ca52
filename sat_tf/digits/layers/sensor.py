"""The glimpse sensor: patches at several scales around a location."""

from __future__ import annotations

import keras
import tensorflow as tf

from sat_tf.digits.layers.bilinear import bilinear_sample_grid, to_pixels


class GlimpseSensor(keras.layers.Layer):
    """The retina: square patches around a location, each twice as wide as the one before.

    Patch k covers `2^k size` pixels with `size` values per side. To avoid aliasing, the image is
    first averaged over blocks of `2^k` pixels, once per image; bilinear sampling then reads the
    patches from these smaller images. An image is zero beyond its border.

    Args:
        size: Values along a side of every patch.
        scales: Number of patches.

    References:
        Mnih et al. (2014), Sec. 3.1 A, arXiv:1406.6247.
    """

    def __init__(self, size: int, scales: int, **kwargs) -> None:
        super().__init__(**kwargs)
        self.size, self.scales = size, scales
        self.built = True

    def pyramid(self, images: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Averages images `[B, H, W, C]` over blocks of 1, 2, 4, ... pixels.

        Returns:
            `[B, ceil(H / 2^k), ceil(W / 2^k), C]` per scale k.
        """
        return tuple(block_means(images, 2**k) for k in range(self.scales))

    def call(self, pyramid: tuple[tf.Tensor, ...], location: tf.Tensor) -> tf.Tensor:
        """Reads the patches around a location, the finest first.

        Args:
            pyramid: From `pyramid`.
            location: `[B, 2]`, normalised as in `bilinear`.

        Returns:
            `[B, size, size, scales C]`, the patches side by side as channels.
        """
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
