"""Gradients written by hand are those of TensorFlow."""

import numpy as np
import pytest
import tensorflow as tf

from sat_tf.layers.lstm import unroll
from sat_tf.ops.gradients import DeferredKernels, fast_log_likelihoods, plain_log_likelihoods

R, K, J = 12, 6, 4


def random_labels(kind, targets):
    """None; the target with a share; or words of which some occur twice or are the target."""
    rng = np.random.default_rng(2)
    if kind == "target":
        return targets[:, None], tf.fill([R, 1], tf.constant(0.7, tf.float64))
    if kind == "words":
        words, shares = rng.integers(0, K, [R, J]), rng.dirichlet(np.ones(J + 1), R)[:, :J]
        return tf.constant(words), tf.constant(shares)
    return None


@pytest.mark.parametrize("kind", [None, "target", "words"])
@pytest.mark.parametrize("weights", [(1.0, 0.0), (0.0, 1.0), (0.7, -2.0)])
def test_values_and_gradients_are_those_of_the_plain_form(kind, weights):
    rng = np.random.default_rng(1)
    logits = tf.constant(rng.normal(size=[R, K], scale=4.0))
    targets, upstream = tf.constant(rng.integers(0, K, R)), tf.constant(rng.normal(size=R))
    labels = random_labels(kind, targets)

    def run(form):
        with tf.GradientTape() as tape:
            tape.watch(logits)
            exact, soft = form(logits, targets, labels)
            total = tf.reduce_sum(upstream * (weights[0] * exact + weights[1] * soft))
        return exact, soft, tape.gradient(total, logits)

    expected = run(plain_log_likelihoods)
    compiled = tf.function(lambda: run(fast_log_likelihoods), autograph=False)()
    for found in (run(fast_log_likelihoods), compiled):
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)


def test_improbable_and_impossible_words_leave_numbers():
    logits = tf.constant([[80.0, -80.0, -1e9]])
    with tf.GradientTape() as tape:
        tape.watch(logits)
        value, _ = fast_log_likelihoods(logits, tf.constant([1]))
    np.testing.assert_allclose(value, [-160.0])
    np.testing.assert_allclose(tape.gradient(value, logits), [[-1.0, 1.0, 0.0]], atol=1e-6)


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
