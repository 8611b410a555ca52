"""Gradients taken after the loop are those of the loop."""

import numpy as np
import pytest
import tensorflow as tf

from sat_tf.layers.lstm import unroll
from sat_tf.ops.deferred_gradients import DeferredKernels

B, T, X, G = 3, 5, 4, 4


def loss_in_loop(term, kernel, state, deferred=None):
    """A small recurrent net: `h[t] = tanh(term[t] + h[t-1] kernel)`, loss `sum h^2`."""
    inside = kernel if deferred is None else deferred.inside[0]

    def step(term_t, hidden):
        hidden = tf.tanh(term_t + tf.matmul(hidden, inside))
        return hidden, hidden

    term = term if deferred is None else deferred.tap(term)
    hidden, _ = unroll(step, state, term, tf.TensorSpec([None, G]))
    if deferred is not None:
        deferred.record(tf.concat([state[tf.newaxis], hidden[:-1]], axis=0))
    return tf.reduce_sum(tf.square(hidden))


@pytest.mark.parametrize("compiled", [False, True])
def test_deferred_gradients_are_those_of_the_loop(compiled):
    rng = np.random.default_rng(0)
    term, kernel, state = (
        tf.Variable(rng.normal(size=shape).astype("float32"))
        for shape in ([T, B, G], [X, G], [B, G])
    )

    def gradients(defer):
        with tf.GradientTape() as tape:
            value = tf.convert_to_tensor(kernel)
            deferred = DeferredKernels([value]) if defer else None
            loss = loss_in_loop(term, value, tf.convert_to_tensor(state), deferred)
        return tape.gradient(loss, [term, kernel, state])

    run = tf.function(gradients, autograph=False) if compiled else gradients
    for late, plain in zip(run(True), run(False), strict=True):
        np.testing.assert_allclose(late, plain, rtol=1e-5, atol=1e-6)


def test_the_loop_alone_gives_the_kernel_nothing():
    kernel = tf.Variable(tf.eye(G))
    term, state = tf.ones([T, B, G]), tf.zeros([B, G])
    with tf.GradientTape() as tape:
        deferred = DeferredKernels([tf.convert_to_tensor(kernel)])
        hidden, _ = unroll(
            lambda term_t, h: (tf.tanh(term_t + tf.matmul(h, deferred.inside[0])),) * 2,
            state,
            term,
            tf.TensorSpec([None, G]),
        )
        loss = tf.reduce_sum(hidden)
    assert tape.gradient(loss, kernel) is None
