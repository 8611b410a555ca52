"""Dropout from a stateless seed, and seeds for layers that are called without one.

Keras' seed generators draw the same values on every replica of a strategy and are state that a
resumed run has to restore; a mask made from (seed, step, replica) has neither fault.
"""

from __future__ import annotations

import keras
import tensorflow as tf

from sat_tf.ops.random_ops import draw_integers

_TOLERANCE = 0.01  # of the rate


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
        replica = tf.distribute.get_replica_context()
        if replica is None or replica.num_replicas_in_sync == 1:
            return seed
        # Replicas may read the same state.
        number = tf.cast(replica.replica_id_in_sync_group, tf.int32)
        return tf.random.experimental.stateless_fold_in(seed, number)


def dropout(
    inputs: tf.Tensor,
    rate: float,
    seed: tf.Tensor | None,
    salt: int,
    shared_axis: int | None = None,
) -> tf.Tensor:
    """Zeroes a share `rate` of `inputs` and scales the rest by `1 / (1 - rate)`.

    Uses 8-bit draws if n / 256 is within 1 % of the rate (77 / 256 for 0.3), else 16-bit draws;
    the scale is that of the share really dropped.

    Args:
        inputs: Any shape, floating.
        rate: Share dropped, in [0, 1).
        seed: int32 `[2]`; None, at inference, returns the inputs.
        salt: Tells apart the masks made from the same seed.
        shared_axis: Axis along which all have one mask; None for no axis.

    Returns:
        A tensor like `inputs`.
    """
    if seed is None or rate == 0.0:
        return inputs
    seed = tf.random.experimental.stateless_fold_in(seed, salt)
    shape = tf.shape(inputs)
    if shared_axis is not None:
        sizes = tf.unstack(shape)
        sizes[shared_axis] = 1
        shape = tf.stack(sizes)
    bits = tf.uint8 if abs(round(rate * 2**8) / 2**8 - rate) <= _TOLERANCE * rate else tf.uint16
    draws = bits.max + 1
    dropped = min(round(rate * draws), draws - 1)
    scale = tf.cast(draws / (draws - dropped), inputs.dtype)
    kept = _draw(shape, seed, bits) >= tf.constant(dropped, bits)
    return tf.where(kept, inputs * scale, tf.zeros([], inputs.dtype))


def _draw(shape: tf.Tensor, seed: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Uniform integers, several from each number drawn: drawing is what dropout costs."""
    size, per_number = tf.reduce_prod(shape), tf.uint32.size // dtype.size
    numbers = draw_integers([(size + per_number - 1) // per_number], seed, tf.uint32)
    return tf.reshape(tf.reshape(tf.bitcast(numbers, dtype), [-1])[:size], shape)
