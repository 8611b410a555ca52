"""What every model of digits has in common: one train step, named figures, pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from sat_tf.models.replicas import (
    Untracked,
    apply_gradients,
    build_optimizer,
    global_size,
    step_seed,
)
from sat_tf.models.running_means import RunningMeans

Batch = Mapping[str, tf.Tensor]


class Figure(NamedTuple):
    """Values of a figure for the examples of a batch; reported is their weighted mean."""

    values: tf.Tensor
    """float32 `[B, ...]`, in the report's units: percent for errors and accuracies."""
    weights: tf.Tensor | None = None
    """float32, the same shape; None for ones."""


def predicted_class(logits: tf.Tensor) -> tf.Tensor:
    """int32 `[...]`, the likeliest class of logits `[..., classes]`."""
    return tf.argmax(logits, axis=-1, output_type=tf.int32)


class DigitModel(keras.Model):
    """A model that learns from batches of digits.

    A subclass makes and builds all its layers when it is made, sets `built`, and writes
    `training_loss` and `figures`. Its weights are in layers that are its attributes.

    Args:
        config: Dataclass that says what it is.
        **kwargs: For Keras.
    """

    log_names: Sequence[str] = ()
    """What `training_loss` logs beside the loss."""
    answers: Sequence[str] | None = None
    """What the classes are called in pictures; None for their numbers."""

    def __init__(self, config: Any, **kwargs) -> None:
        super().__init__(**kwargs)
        self.config = config
        self._means: Untracked | None = None

    @property
    def own_variables(self) -> list[keras.Variable]:
        """Weights whose gradient is clipped by a norm of its own: a learned baseline's."""
        return []

    def training_loss(
        self, batch: Batch, seed: tf.Tensor
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """The loss and what is logged beside it: scalars, means over the examples of the batch.

        Args:
            batch: `images` float32 `[B, H, W, 1]` in [0, 1], and what the data set adds.
            seed: int32 `[2]`, of every random draw.
        """
        raise NotImplementedError

    def figures(self, batch: Batch, seed: tf.Tensor) -> dict[str, Figure]:
        """What the model achieves on a batch, `error` (percent) among it.

        Args:
            batch: As `training_loss`'s.
            seed: int32 `[2]`, of every random draw.
        """
        raise NotImplementedError

    def pictures(self, batch: Batch, seed: tf.Tensor) -> list[np.ndarray]:
        """What attention did to each example of a batch, uint8 `[., ., 3]`; none by default.

        Args:
            batch: As `training_loss`'s.
            seed: int32 `[2]`, of every random draw.
        """
        return []

    def verdict(self, label: int, predicted: int) -> str:
        """Title of a picture: what is there, and what the model says."""
        label, predicted = (
            str(number) if self.answers is None else self.answers[number]
            for number in (label, predicted)
        )
        return f"{label}, read as {predicted}"

    def compile(self, *args, clip_norm: float = 0.0, seed: int = 0, **kwargs) -> None:
        """As `keras.Model.compile`, and what the custom train step needs.

        Args:
            *args: For Keras.
            clip_norm: Largest global norm of a gradient; 0 does not clip.
            seed: Of every random draw in training.
            **kwargs: For Keras.
        """
        super().compile(*args, **kwargs)
        self.clip_norm, self.seed = clip_norm, seed
        names = ("loss", "gradient_norm", *self.log_names)
        self._means = Untracked(RunningMeans(names))

    def train_step(self, batch: Batch) -> dict[str, tf.Tensor]:
        """One step of gradient descent; Keras compiles it and runs it on every replica."""
        seed = step_seed(self.seed, self.optimizer)
        size = tf.shape(batch["images"])[0]
        # Replicas' gradients are added up: each counts by its share of the examples.
        share = tf.cast(size, tf.float32) / global_size(size)
        with tf.GradientTape() as tape:
            loss, logs = self.training_loss(batch, seed)
            scaled_loss = self.optimizer.scale_loss(tf.math.multiply_no_nan(loss, share))
        gradients = tape.gradient(scaled_loss, self.trainable_variables)
        pairs = zip(gradients, self.trainable_variables, strict=True)
        norm = apply_gradients(self.optimizer, pairs, self.clip_norm, self.own_variables)
        weight, means = tf.cast(size, tf.float32), self._means.value
        logs = {"loss": loss, "gradient_norm": norm} | logs
        means.update_state({name: (value, weight) for name, value in logs.items()})
        return means.result()

    def _maybe_symbolic_build(self, iterator=None, data_batch=None) -> None:
        """All but the optimiser is built when it is made."""
        build_optimizer(self)

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        """Running means over the epoch, reset by Keras at its start."""
        return [] if self._means is None else [self._means.value]

    def saved_layers(self) -> dict[str, keras.layers.Layer]:
        """The layers that make the model, by the names of its attributes.

        Raises:
            TypeError: It has weights outside of them, which would not be saved.
        """
        # Keras keeps its own notes in attributes that begin with an underscore.
        found = {
            name: value
            for name, value in vars(self).items()
            if isinstance(value, keras.layers.Layer) and not name.startswith("_")
        }
        inside = {id(weight) for layer in found.values() for weight in layer.weights}
        for weight in self.weights:
            if id(weight) not in inside:
                raise TypeError(
                    f"Expected every weight of {type(self).__name__} in a layer that is an "
                    f"attribute of it, got {weight.path}."
                )
        return found
