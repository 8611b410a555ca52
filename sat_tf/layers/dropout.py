"""Dropout from a stateless seed.

Keras' seed generators draw the same values on every replica of a strategy and are state that a
resumed run has to restore; a mask made from (seed, step, replica) has neither fault.
"""

from __future__ import annotations

import tensorflow as tf

from sat_tf.layers.draws import draw_integers

_CLOSE = 0.01  # of a rate: so near to it 256ths have to come for a byte to do


def dropout(
    inputs: tf.Tensor,
    rate: float,
    seed: tf.Tensor | None,
    salt: int,
    shared_axis: int | None = None,
) -> tf.Tensor:
    """Zero a share `rate` of `inputs` and scale the rest by `1 / (1 - rate)`.

    Args:
        inputs: Any shape, floating.
        rate: Share dropped, in [0, 1): the next 256th, where that is within a hundredth of the
            rate (77 / 256 for 0.3), else the next 65,536th. What is kept is scaled for the share
            that is taken.
        seed: int32 `[2]`; None (at inference) leaves the inputs as they are.
        salt: Tells apart the masks made from the same seed.
        shared_axis: Axis along which all have one mask; None for none.

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
    of = tf.uint8 if abs(round(rate * 2**8) / 2**8 - rate) <= _CLOSE * rate else tf.uint16
    draws = of.max + 1
    dropped = min(round(rate * draws), draws - 1)
    scale = tf.cast(draws / (draws - dropped), inputs.dtype)
    kept = _draw(shape, seed, of) >= tf.constant(dropped, of)
    return tf.where(kept, inputs * scale, tf.zeros([], inputs.dtype))


def _draw(shape: tf.Tensor, seed: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Uniform integers, several from each number drawn: drawing is what dropout costs."""
    size, each = tf.reduce_prod(shape), tf.uint32.size // dtype.size
    numbers = draw_integers([(size + each - 1) // each], seed, tf.uint32)
    return tf.reshape(tf.reshape(tf.bitcast(numbers, dtype), [-1])[:size], shape)
