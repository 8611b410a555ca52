"""A mask over the picture: location-wise soft attention that dims where it does not look."""

from __future__ import annotations

from collections.abc import Sequence

import keras
import tensorflow as tf

_START = 2.0  # sigmoid(2) = 0.88: nearly all is let through until it has learned


@keras.saving.register_keras_serializable(package="sat_tf")
class SpatialMask(keras.layers.Layer):
    """Reads a mask from the picture, and gives the picture seen through it.

    `m = sigmoid(f(U))`, `V = m U`, a number between 0 and 1 a pixel. `f` is convolutions of 5 x 5,
    each after a mean over 2 x 2 pixels, and one of 1 x 1; its coarse logits are brought to the
    picture's size by bilinear interpolation. The last layer starts as a constant.

    A softmax over the pixels would be attention that sums to one. It would dim all of a picture,
    as its pixels are many, and the network behind could not tell how much of it is left.

    Args:
        image_size: Side of the square pictures, pixels.
        filters: Width of the convolutions.
        **kwargs: For Keras; a `dtype` policy is that of the 5 x 5 convolutions alone.

    Call arguments:
        images: `[B, image_size, image_size, 1]`.

    Output:
        The masked pictures and their masks, each `[B, image_size, image_size, 1]`.

    References:
        Wang and Tax (2016), Sec. 2.4.4, arXiv:1601.06823, for the kind of attention.
    """

    def __init__(self, image_size: int, filters: Sequence[int] = (20, 20), **kwargs) -> None:
        super().__init__(autocast=False, **kwargs)
        self.image_size, self.filters = image_size, tuple(filters)
        options = {"padding": "same", "activation": "relu", "dtype": self.dtype_policy}
        layers = []
        for width in filters:
            layers.append(keras.layers.AveragePooling2D(2))
            layers.append(keras.layers.Conv2D(width, 5, **options))
        start = keras.initializers.Constant(_START)
        layers.append(
            keras.layers.Conv2D(
                1, 1, kernel_initializer="zeros", bias_initializer=start, name="logits"
            )
        )
        self.localisation = keras.Sequential(layers, name="localisation")
        self.localisation.build((None, image_size, image_size, 1))
        self.built = True

    def call(self, images: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The masked pictures and their masks."""
        logits = tf.image.resize(self.localisation(images), [self.image_size, self.image_size])
        mask = tf.sigmoid(logits)
        return images * mask, mask

    def get_config(self) -> dict:
        """Constructor arguments."""
        return {
            **super().get_config(),
            "image_size": self.image_size,
            "filters": self.filters,
        }
