"""Dropout from a stateless seed.

Keras' seed generators draw the same values on every replica of a strategy and are state that a
resumed run has to restore; a mask made from (seed, step, replica) has neither fault.
"""

from __future__ import annotations

import tensorflow as tf


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
    shape = None
    if shared_axis is not None:
        shape = tf.unstack(tf.shape(inputs))
        shape[shared_axis] = 1
    return tf.nn.experimental.stateless_dropout(
        inputs, rate, seed=seed, rng_alg="philox", noise_shape=shape
    )
