"""The one form of a training objective: model and batch in, loss and named means out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import tensorflow as tf

Batch = Mapping[str, tf.Tensor]
"""Tensors by name; each has one row per example."""
Means = dict[str, tuple[tf.Tensor, tf.Tensor]]
"""Name -> (mean, weight), float32 scalars; a mean may be NaN if its weight is 0."""


class Terms(NamedTuple):
    """The loss of one batch on one replica, and what to log of it."""

    loss: tf.Tensor
    """Scalar: the mean over this replica's examples. A step descends its gradient."""
    means: Means
    """Logged beside the loss, as running means with these weights."""
    mean_return: tf.Tensor | None = None
    """Scalar over all replicas, from which a moving-average baseline learns; None without one."""


class Objective(Protocol):
    """The form of all objectives that `TrainableModel.train_step` minimises.

    One that XLA cannot compile sets `supports_jit` to False.
    """

    @property
    def log_names(self) -> Sequence[str]:
        """Keys of `Terms.means`, known before the first batch."""

    def __call__(self, model: Any, batch: Batch, seed: tf.Tensor, global_size: tf.Tensor) -> Terms:
        """Computes the loss of a batch.

        Args:
            model: The model in training.
            batch: The examples of this replica.
            seed: int32 `[2]`, the same on all replicas; `replica_seed` gives this replica's own.
            global_size: float32 scalar, examples on all replicas.

        Returns:
            `Terms`.
        """


def weighted(values: Mapping[str, tf.Tensor], weight: tf.Tensor) -> Means:
    """Gives each of several means the same weight."""
    return {name: (value, weight) for name, value in values.items()}
