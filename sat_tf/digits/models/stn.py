"""A digit classifier behind soft attention over the image, and the same without attention."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from sat_tf.digits.config import STNConfig
from sat_tf.digits.layers.bilinear import CORNERS, to_pixels
from sat_tf.digits.layers.built import convolution, dense, sequential
from sat_tf.digits.layers.spatial_mask import SpatialMask
from sat_tf.digits.layers.spatial_transformer import SpatialTransformer
from sat_tf.digits.models.digit_model import DigitModel, Reading, Score
from sat_tf.digits.objectives.classification import ClassificationObjective, predicted_class
from sat_tf.errors import invalid_value
from sat_tf.figures.glimpse_path import side_by_side
from sat_tf.objectives.terms import Batch
from sat_tf.ops.draws import dropout


@keras.saving.register_keras_serializable(package="sat_tf")
class STN(DigitModel):
    """`log p(y | CNN(V))`, V the image, seen through its affine map or its mask if any.

    The CNN has two convolutions of 5 x 5, each before a maximum over 2 x 2 pixels, a hidden layer
    and the classes. Attention learns from the classification loss alone.

    Args:
        config: Of the model.
        image_size: Side of the square images, pixels.
        classes: K.
        **kwargs: For Keras; a `dtype` policy is that of the 5 x 5 convolutions alone.

    Call arguments:
        images: `[B, image_size, image_size, 1]`.

    Output:
        Logits `[B, K]`, and V `[B, h, w, 1]`.

    References:
        Jaderberg et al. (2015), Sec. 4.1, arXiv:1506.02025.
    """

    config_type = STNConfig

    def __init__(self, config: STNConfig, image_size: int, classes: int = 10, **kwargs) -> None:
        super().__init__(config, autocast=False, **kwargs)
        self.image_size, policy = image_size, self.dtype_policy
        side, filters = image_size, (config.localisation_filters,) * 2
        self.attention = None
        if config.attention == "transformer":
            side = config.output_size
            self.attention = SpatialTransformer(
                image_size,
                side,
                filters,
                config.localisation_dim,
                config.localisation_points,
                dtype=policy,
                name="transformer",
            )
        elif config.attention == "mask":
            self.attention = SpatialMask(image_size, filters, dtype=policy, name="mask")
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
        """Computes logits and V; there is dropout if a seed is given."""
        seen = images if self.attention is None else self.attention(images)[0]
        hidden = dropout(self.features(seen), self.config.dropout, seed, 0)
        return self.classifier(hidden), seen

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor arguments, and `answers`."""
        return {
            **super().get_config(),
            "image_size": self.image_size,
            "classes": self.classifier.units,
        }

    def read(self, images: tf.Tensor) -> Reading:
        """Reads images in one look: V, and where its corners lie in the image.

        Raises:
            ValueError: The model has no Spatial Transformer.
        """
        if self.config.attention != "transformer":
            expected = "transformer, which looks at a part of the image"
            raise invalid_value("attention", expected, self.config.attention)
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
        """Draws each image beside V."""
        logits, seen = self(batch["images"])
        predicted, labels = predicted_class(logits).numpy(), batch["labels"].numpy()
        pairs = zip(batch["images"].numpy()[..., 0], seen.numpy()[..., 0], strict=True)
        return [
            side_by_side(pair, title=self.verdict(labels[i], predicted[i]))
            for i, pair in enumerate(pairs)
        ]
