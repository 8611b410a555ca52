"""Operations that TensorFlow lacks: draws from seeds, sums over replicas, batches without rows.

Draws come from stateless seeds: Keras' seed generators draw the same values on every replica and
are state that a resumed run has to restore. A draw made from (seed, step, replica) has neither
fault.
"""

from __future__ import annotations

from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from sat_tf.util.errors import invalid_value

# --- draws ---


def check_seed(seed: object) -> None:
    """Checks that a seed is int32 `[2]`; raises `ValueError` otherwise."""
    shape = tf.TensorShape(np.shape(seed))
    if not shape.is_compatible_with([2]):
        raise invalid_value("seed", "two integers, int32 [2]", f"shape {tuple(shape)}")


def step_seeds(seed: tf.Tensor, steps: tf.Tensor) -> tf.Tensor:
    """Draws one stateless seed per step, `[T, 2]`, from one seed `[2]`.

    The seeds of the first steps are the same however many follow.
    """
    return _integers([steps, 2], seed, tf.int32)


def replica_seed(seed: tf.Tensor, replica: tf.Tensor | int | None = None) -> tf.Tensor:
    """Folds the replica's number into a seed that all replicas share.

    Args:
        seed: int32 `[2]`.
        replica: The replica; None for the one this runs on. A fixed number gives all replicas
            the same draws.

    Returns:
        int32 `[2]`.
    """
    if replica is None:
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
    return fold_in(seed, replica)


def fold_in(seed: tf.Tensor, number: tf.Tensor | int) -> tf.Tensor:
    """Derives a seed, int32 `[2]`, from a seed and a number."""
    return tf.stack([_integers([], seed, tf.int32), tf.cast(number, tf.int32)])


def uniform(shape: tf.Tensor | list, seed: tf.Tensor) -> tf.Tensor:
    """Draws float32 from [0, 1), the same with XLA as without.

    TensorFlow's own draws are not: they take the low bits of random integers, XLA's the high ones.
    """
    numbers = _integers(shape, seed, tf.uint32)
    mantissa = tf.bitwise.bitwise_and(numbers, tf.constant(0x7FFFFF, tf.uint32))
    one = tf.constant(0x3F800000, tf.uint32)  # the bits of 1.0
    return tf.bitcast(tf.bitwise.bitwise_or(mantissa, one), tf.float32) - 1.0


class DefaultSeeds:
    """A layer's own source of stateless seeds: a `keras.random.SeedGenerator` made at first use.

    A model that hands in its seeds, to resume exactly, never makes it: no variable joins its
    checkpoints, and no random number is taken from the initialisers. For the same reason Keras does
    not track it: a weights file says nothing of it. `keras.Model.export` takes it along;
    `tf.saved_model.save` refuses a model that has it.
    """

    def __init__(self) -> None:
        self._generator: keras.random.SeedGenerator | None = None

    def draw(self) -> tf.Tensor:
        """Draws an int32 `[2]` that differs between calls and between replicas of a strategy."""
        if self._generator is None:
            with tf.init_scope():
                self._generator = keras.random.SeedGenerator()
        seed = tf.cast(self._generator.next(), tf.int32)
        context = tf.distribute.get_replica_context()
        if context is None or context.num_replicas_in_sync == 1:
            return seed
        return replica_seed(seed)  # replicas may read the same state


def dropout(
    inputs: tf.Tensor,
    rate: float,
    seed: tf.Tensor | None,
    salt: int,
    shared_axis: int | None = None,
) -> tf.Tensor:
    """Zeroes a share `rate` of `inputs` and scales the rest by `1 / (1 - rate)`.

    Keras' layer and TensorFlow's function draw other masks with XLA than without.

    Args:
        inputs: Any shape, floating.
        rate: Share dropped, in [0, 1).
        seed: int32 `[2]`; None, at inference, returns the inputs.
        salt: Distinguishes masks made from the same seed.
        shared_axis: Axis along which all have one mask; None for no axis.

    Returns:
        A tensor like `inputs`.
    """
    if seed is None or rate == 0.0:
        return inputs
    shape = tf.shape(inputs)
    if shared_axis is not None:
        shape = tf.tensor_scatter_nd_update(shape, [[shared_axis]], [1])
    kept = uniform(shape, fold_in(seed, salt)) >= rate
    return tf.where(kept, inputs * tf.cast(1.0 / (1.0 - rate), inputs.dtype), 0)


def _integers(shape: tf.Tensor | list, seed: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Draws uniformly from all integers of a type, the same on every device, with XLA or without.

    XLA reads other bits from a negative seed unless it has 64.
    """
    seed = tf.cast(seed, tf.int64)
    return tf.random.stateless_uniform(shape, seed, None, None, dtype, alg="philox")


# --- sizes and means over replicas, and batches without rows ---


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
