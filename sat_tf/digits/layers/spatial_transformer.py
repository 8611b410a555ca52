"""The Spatial Transformer: reads an affine map from an image and views the image through it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import keras
import numpy as np
import tensorflow as tf

from sat_tf.digits.layers.bilinear import IDENTITY, centres_of_mass, transform
from sat_tf.digits.layers.built import convolution, dense, sequential


class SpatialTransformer(keras.layers.Layer):
    """Rectifies images by affine maps: `theta = f_loc(U)`, `V = transform(U, theta)`.

    The localisation net has convolutions of 5 x 5, each after a mean over 2 x 2 pixels, then a
    hidden layer, the centres of mass of heat maps, or both. The hidden layer can tell how a digit
    is turned, but would have to learn its place separately for every place; a heat map finds it
    in any. The last layer, `theta`, starts as the constant identity, moved to the mean of the
    heat maps' centres if there are any, which lie near the middle at first.

    Args:
        image_size: Side of the square images, pixels.
        output_size: Side of the output, pixels.
        filters: Widths of the convolutions.
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
        # Images are sampled in their own precision: bfloat16 cannot tell neighbouring places.
        super().__init__(autocast=False, **kwargs)
        if not hidden_dim and not points:
            raise ValueError(
                "Received invalid values for arguments `hidden_dim` and `points`: expected one of "
                "them above 0, got 0 and 0."
            )
        self.output_size, self.points = output_size, points
        self.convolutions = pooled_convolutions(
            filters, image_size, self.dtype_policy, "convolutions"
        )
        grid = self.convolutions.output_shape[1:]
        self.hidden = self.heat_maps = None
        if hidden_dim:
            layers = [keras.layers.MaxPooling2D(2), keras.layers.Flatten()]
            layers.append(keras.layers.Dense(hidden_dim, activation="tanh"))
            self.hidden = sequential(layers, grid, "hidden")
        if points:
            layers = [convolution(filters[-1], 5, dtype=self.dtype_policy)]
            layers.append(keras.layers.Conv2D(points, 1))
            self.heat_maps = sequential(layers, grid, "heat_maps")
        self.theta = dense(
            hidden_dim + 2 * points,
            6,
            kernel_initializer=_towards_centres(points),
            bias_initializer=_identity,
            name="theta",
        )
        self.built = True

    def call(self, images: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the rectified images and their maps."""
        features, read = self.convolutions(images), []
        if self.hidden is not None:
            read.append(self.hidden(features))
        if self.heat_maps is not None:
            centres = centres_of_mass(self.heat_maps(features))
            read.append(tf.reshape(centres, [-1, 2 * self.points]))
        theta = tf.reshape(self.theta(tf.concat(read, axis=-1)), [-1, 2, 3])
        return transform(images, theta, self.output_size, self.output_size), theta


def pooled_convolutions(
    filters: Sequence[int],
    image_size: int,
    policy: keras.DTypePolicy,
    name: str,
    more: Sequence[keras.layers.Layer] = (),
) -> keras.Sequential:
    """Stacks convolutions of 5 x 5, each after a mean over 2 x 2 pixels, and `more` layers."""
    layers = []
    for width in filters:
        layers += [keras.layers.AveragePooling2D(2), convolution(width, 5, dtype=policy)]
    return sequential([*layers, *more], (image_size, image_size, 1), name)


def _identity(shape, dtype=None):
    return tf.constant(IDENTITY, dtype or tf.float32)


def _towards_centres(points: int) -> Callable[..., tf.Tensor]:
    """Initialises to zeros, but moves the middle of the output to the mean of the centres."""

    def kernel(shape, dtype=None):
        weights = np.zeros(shape, np.float32)
        if points:
            weights[-2 * points :: 2, 2] = weights[1 - 2 * points :: 2, 5] = 1.0 / points
        return tf.constant(weights, dtype or tf.float32)

    return kernel
