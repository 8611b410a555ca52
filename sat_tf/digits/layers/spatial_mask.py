"""A mask over the image: soft attention by location, which dims what is beside the point."""

from __future__ import annotations

from collections.abc import Sequence

import keras
import tensorflow as tf

from sat_tf.digits.layers.spatial_transformer import pooled_convolutions

_START = 2.0  # sigmoid(2) = 0.88: nearly all passes before training


class SpatialMask(keras.layers.Layer):
    """Multiplies each pixel by a gate between 0 and 1: `m = sigmoid(f(U))`, `V = m U`.

    `f` has convolutions of 5 x 5, each after a mean over 2 x 2 pixels, and one of 1 x 1; its
    coarse logits are resized to the image by bilinear interpolation. The last layer starts as a
    constant. A softmax over the many pixels would dim all of them, and the network behind it
    could not tell how much is left.

    Call arguments:
        images: `[B, image_size, image_size, 1]`.

    Output:
        The masked images and their masks, each `[B, image_size, image_size, 1]`.

    References:
        Wang and Tax (2016), Sec. 2.4.4, arXiv:1601.06823, for the kind of attention.
    """

    def __init__(self, image_size: int, filters: Sequence[int] = (20, 20), **kwargs) -> None:
        super().__init__(autocast=False, **kwargs)
        self.image_size = image_size
        start = keras.initializers.Constant(_START)
        logits = keras.layers.Conv2D(
            1, 1, kernel_initializer="zeros", bias_initializer=start, name="logits"
        )
        self.localisation = pooled_convolutions(
            filters, image_size, self.dtype_policy, "localisation", [logits]
        )
        self.built = True

    def call(self, images: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the masked images and their masks."""
        logits = tf.image.resize(self.localisation(images), [self.image_size, self.image_size])
        mask = tf.sigmoid(logits)
        return images * mask, mask
