"""The Spatial Transformer, and a classifier that sees images through it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import keras
import numpy as np
import tensorflow as tf

from digits.config import STNConfig
from digits.models import (
    ClassificationObjective,
    DigitModel,
    Reading,
    Score,
    convolution,
    dense,
    predicted_class,
    sequential,
    side_by_side,
)
from digits.models.glimpses import CORNERS, IDENTITY, centres_of_mass, to_pixels, transform
from sat_tf.ops import dropout
from sat_tf.train_step import Batch


class SpatialTransformer(keras.layers.Layer):
    """Rectifies images by affine maps: `theta = f_loc(U)`, `V = transform(U, theta)`.

    The localisation net has convolutions of 5 x 5, each after a mean over 2 x 2 pixels, then a
    hidden layer, the centres of mass of heat maps, or both. The hidden layer can see how a digit
    is turned, but would have to learn its place separately for every place; a heat map finds it
    in any. The last layer, `theta`, starts as the constant identity, moved to the mean of the
    heat maps' centres if there are any, which are near the middle at first.

    Args:
        image_size: Side of the square images `[B, image_size, image_size, 1]`, pixels.
        output_size: Side of the output `[B, output_size, output_size, 1]`, pixels.
        filters: Widths of the convolutions.
        hidden_dim: Width of the hidden layer; 0 for none.
        points: Heat maps; 0 for none.
        **kwargs: For Keras; a `dtype` policy is that of the 5 x 5 convolutions alone.

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
        self.output_size, self.points = output_size, points
        layers = []
        for width in filters:
            layers.append(keras.layers.AveragePooling2D(2))
            layers.append(convolution(width, 5, dtype=self.dtype_policy))
        self.convolutions = sequential(layers, (image_size, image_size, 1), "convolutions")
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
            bias_initializer=keras.initializers.Constant(np.array(IDENTITY)),
            name="theta",
        )
        self.built = True

    def call(self, images: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the rectified images and their maps, theta `[B, 2, 3]`."""
        features, read = self.convolutions(images), []
        if self.hidden is not None:
            read.append(self.hidden(features))
        if self.heat_maps is not None:
            centres = centres_of_mass(self.heat_maps(features))
            read.append(tf.reshape(centres, [-1, 2 * self.points]))
        theta = tf.reshape(self.theta(tf.concat(read, axis=-1)), [-1, 2, 3])
        return transform(images, theta, self.output_size, self.output_size), theta


def _towards_centres(points: int) -> Callable[..., tf.Tensor]:
    """Initialises to zeros, but moves the middle of the output to the mean of the centres."""

    def kernel(shape, dtype=None):
        weights = np.zeros(shape, np.float32)
        if points:
            weights[-2 * points :: 2, 2] = weights[1 - 2 * points :: 2, 5] = 1.0 / points
        return tf.constant(weights, dtype or tf.float32)

    return kernel


class STN(DigitModel):
    """`log p(y | CNN(V))`, V the image, seen through its affine map.

    The CNN has two convolutions of 5 x 5, each before a maximum over 2 x 2 pixels, a hidden layer
    and the classes. Attention learns from the classification loss alone (Jaderberg et al., 2015,
    Sec. 4.1, arXiv:1506.02025).

    Args:
        config: Settings of the model.
        image_size: Side of the square images, pixels.
        classes: K.
        **kwargs: For Keras; a `dtype` policy is that of the 5 x 5 convolutions alone.
    """

    def __init__(self, config: STNConfig, image_size: int, classes: int = 10, **kwargs) -> None:
        super().__init__(config, autocast=False, **kwargs)
        side, policy, filters = config.output_size, self.dtype_policy, config.localisation_filters
        sizes = (filters, filters), config.localisation_dim, config.localisation_points
        self.attention = SpatialTransformer(
            image_size, side, *sizes, dtype=policy, name="transformer"
        )
        layers = [
            convolution(config.filters, 5, dtype=policy),
            keras.layers.MaxPooling2D(2),
            convolution(2 * config.filters, 5, dtype=policy),
            keras.layers.MaxPooling2D(2),
            keras.layers.Flatten(),
            keras.layers.Dense(config.hidden_dim, "relu"),
        ]
        self.features = sequential(layers, (side, side, 1), "features")
        self.classifier = dense(config.hidden_dim, classes, name="classifier")
        self.objective = ClassificationObjective()
        self.built = True

    def call(self, images: tf.Tensor, seed: tf.Tensor | None = None) -> tuple[tf.Tensor, tf.Tensor]:
        """Computes logits `[B, K]` and V `[B, h, w, 1]`; there is dropout if a seed is given."""
        seen, _ = self.attention(images)
        hidden = dropout(self.features(seen), self.config.dropout, seed, 0)
        return self.classifier(hidden), seen

    def read(self, images: tf.Tensor) -> Reading:
        """Reads images in one look: V, and its corners in the image."""
        seen, theta = self.attention(images)
        # The outer edges of the output's pixels, half a pixel beyond their centres.
        reach = 1.0 + 1.0 / (self.config.output_size - 1)
        points = tf.constant([(reach * x, reach * y, 1.0) for x, y in CORNERS])
        corners = tf.einsum("bcp,np->bnc", theta, points)
        height, width = images.shape[1:3]
        corners = (to_pixels(corners, height, width) + 0.5) / [width, height]
        logits = self.classifier(self.features(seen))
        return Reading(*(part[:, tf.newaxis] for part in (corners, seen, logits)))

    def scores(self, batch: Batch, seed: tf.Tensor) -> dict[str, Score]:
        """Scores a batch: `error` in percent, `nll` in nats."""
        labels = batch["labels"]
        logits, _ = self(batch["images"])
        wrong = tf.cast(predicted_class(logits) != labels, tf.float32)
        nll = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        return {"error": Score(100.0 * wrong), "nll": Score(nll)}

    def figures(self, batch: Batch, seed: tf.Tensor) -> list[np.ndarray]:
        """Draws each image and V."""
        logits, seen = self(batch["images"])
        titles = map(self.verdict, batch["labels"].numpy(), predicted_class(logits).numpy())
        pairs = zip(batch["images"].numpy()[..., 0], seen.numpy()[..., 0], strict=True)
        return [side_by_side(pair, title) for pair, title in zip(pairs, titles, strict=True)]
