"""Sizes and means over the replicas of a distribution strategy, and batches without rows."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf


def global_size(size: tf.Tensor) -> tf.Tensor:
    """Sums the replicas' batch sizes, which may be uneven; float32 scalar."""
    context = tf.distribute.get_replica_context()
    size = tf.cast(size, tf.float32)
    if context.num_replicas_in_sync == 1:
        return size
    return context.all_reduce(tf.distribute.ReduceOp.SUM, size)


def global_mean(values: tf.Tensor) -> tf.Tensor:
    """Means `values` over the examples of all replicas; a scalar."""
    context = tf.distribute.get_replica_context()
    total, size = tf.reduce_sum(values), tf.cast(tf.size(values), tf.float32)
    if context.num_replicas_in_sync > 1:
        total, size = context.all_reduce(tf.distribute.ReduceOp.SUM, [total, size])
    return total / size


def at_least_one_row(function: Callable[[tf.Tensor], tf.Tensor], batch: tf.Tensor) -> tf.Tensor:
    """Calls a function with at least one row: an empty batch gets one of zeros, later dropped.

    oneDNN's convolutions, for example, give an empty batch a wrong shape.

    Args:
        function: Rows to as many rows.
        batch: Floating `[B, ...]`. Only with several replicas may an unknown B be 0.

    Returns:
        What the function returns for the batch, `[B, ...]`.
    """
    rows = batch.shape[0]
    if rows or (rows is None and tf.distribute.get_strategy().num_replicas_in_sync == 1):
        return function(batch)
    count = tf.shape(batch)[0]
    added = tf.cast(tf.equal(count, 0), tf.int32)
    padded = tf.pad(batch, [[0, added], *[[0, 0]] * (len(batch.shape) - 1)])
    return function(padded)[:count]
