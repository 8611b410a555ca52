"""Dropout from a stateless seed.

Keras' seed generators draw the same values on every replica of a strategy and are state that a
resumed run has to restore; a mask made from (seed, step, replica) has neither fault.
"""

from __future__ import annotations

import tensorflow as tf

from sat_tf.layers.draws import draw_integers

_DRAWS = 2**16


def dropout(
    inputs: tf.Tensor,
    rate: float,
    seed: tf.Tensor | None,
    salt: int,
    shared_axis: int | None = None,
) -> tf.Tensor:
    """Zero a share `rate` of `inputs`, to 1 / 65,536, and scale the rest by `1 / (1 - rate)`.

    Args:
        inputs: Any shape, floating.
        rate: Share dropped, in [0, 1).
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
    # The share in 65,536ths that is dropped, and what scales exactly that share.
    dropped = min(round(rate * _DRAWS), _DRAWS - 1)
    scale = tf.cast(_DRAWS / (_DRAWS - dropped), inputs.dtype)
    kept = _draw(shape, seed) >= tf.constant(dropped, tf.uint16)
    return tf.where(kept, inputs * scale, tf.zeros([], inputs.dtype))


def _draw(shape: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Uniform uint16 of a shape, two from each number drawn: drawing is what dropout costs."""
    size = tf.reduce_prod(shape)
    pairs = draw_integers([(size + 1) // 2], seed, tf.uint32)
    return tf.reshape(tf.reshape(tf.bitcast(pairs, tf.uint16), [-1])[:size], shape)
