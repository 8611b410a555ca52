"""Digit models: what they have in common, the layers they are made of, the loss of a classifier."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from sat_tf.ops import at_least_one_row, replica_seed
from sat_tf.train_step import Batch, Terms, TrainableModel, weighted


class Score(NamedTuple):
    """A score of each example of a batch; reports give the weighted mean."""

    values: tf.Tensor
    """float32 `[B, ...]`, in the report's units: percent for errors and accuracies."""
    weights: tf.Tensor | None = None
    """float32, the same shape; None for ones."""


class Reading(NamedTuple):
    """Places where a model looked in each image, look by look, and its answer after each.

    B images, T looks, K classes.
    """

    corners: tf.Tensor
    """`[B, T, 4, 2]`, of the finest patch: (x, y) as shares of the image's sides, y down; the
    patch's top left corner first, then clockwise."""
    patches: tf.Tensor
    """`[B, T, h, w, scales]`, the finest first, each twice as wide as the one before."""
    logits: tf.Tensor
    """`[B, T, K]`. Models learn to answer after their last look."""


class DigitModel(TrainableModel):
    """A model that learns from batches of digits.

    A subclass keeps its weights in layers that are its attributes, and defines `figures`. Its
    batches hold `images` float32 `[B, H, W, 1]` in [0, 1], and what its objective needs.

    Args:
        config: Dataclass of its settings.
        **kwargs: For Keras.
    """

    answers: Sequence[str] | None = None
    """Names of the classes in drawings; None for their numbers."""
    weights_sha256: str | None = None
    """SHA-256 (hexadecimal) of the file of its weights, if they were loaded from a run's."""

    def __init__(self, config: Any, **kwargs) -> None:
        super().__init__(**kwargs)
        self.config = config

    def scores(self, batch: Batch, seed: tf.Tensor) -> dict[str, Score]:
        """Scores a batch; `error` (percent) is among the scores."""
        raise NotImplementedError

    def figures(self, batch: Batch, seed: tf.Tensor) -> list[np.ndarray]:
        """Draws attention on each example, uint8 `[., ., 3]`; nothing by default."""
        return []

    def read(self, images: tf.Tensor) -> Reading:
        """Reads images `[B, H, W, 1]`, look by look, without randomness that differs per call."""
        raise NotImplementedError

    def verdict(self, label: int, predicted: int) -> str:
        """Titles a drawing with the label and the prediction."""
        names = range(max(label, predicted) + 1) if self.answers is None else self.answers
        return f"{names[label]}, read as {names[predicted]}"

    def saved_layers(self) -> dict[str, keras.layers.Layer]:
        """Returns the layers of the model by the names of its attributes."""
        # Keras' bookkeeping is in attributes that begin with an underscore.
        return {
            name: value
            for name, value in vars(self).items()
            if isinstance(value, keras.layers.Layer) and not name.startswith("_")
        }


def predicted_class(logits: tf.Tensor) -> tf.Tensor:
    """int32 `[...]`, the most probable class of logits `[..., classes]`."""
    return tf.argmax(logits, axis=-1, output_type=tf.int32)


class ClassificationObjective:
    """Mean negative log-likelihood of the labels, of a model `(images, seed) -> (logits, _)`."""

    log_names = ("nll", "accuracy")

    def __call__(self, model, batch: Batch, seed: tf.Tensor, global_size: tf.Tensor) -> Terms:
        """Computes the loss of a batch of `images` and `labels`; see `Objective`."""
        del global_size
        labels = batch["labels"]
        logits, _ = model(batch["images"], replica_seed(seed))
        nll = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        correct = tf.cast(predicted_class(logits) == labels, tf.float32)
        means = {"nll": nll, "accuracy": 100.0 * tf.reduce_mean(correct)}
        return Terms(nll, weighted(means, tf.cast(tf.size(labels), tf.float32)))


def dense(inputs: int, units: int, activation: str | None = None, **kwargs) -> keras.layers.Dense:
    """Makes a dense layer from `inputs` to `units` features; `**kwargs` are for Keras."""
    layer = keras.layers.Dense(units, activation, **kwargs)
    layer.build((None, inputs))
    return layer


class _Stack(keras.Sequential):
    """A stack that a replica without images may call."""

    def call(self, inputs: tf.Tensor, training: bool | None = None, mask: Any = None) -> tf.Tensor:
        call = functools.partial(super().call, training=training, mask=mask)
        return at_least_one_row(call, inputs)


def sequential(
    layers: Sequence[keras.layers.Layer], shape: Sequence[int], name: str
) -> keras.Sequential:
    """Stacks layers over inputs of a shape, given without the batch."""
    stack = _Stack(list(layers), name=name)
    stack.build((None, *shape))
    return stack


def convolution(filters: int, size: int, **kwargs) -> keras.layers.Conv2D:
    """Makes a convolution of `size` x `size` with ReLU that keeps the sides; not built."""
    return keras.layers.Conv2D(filters, size, padding="same", activation="relu", **kwargs)
