"""The hand-written gradient of the log-likelihood against TensorFlow's."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from sat_tf.ops.likelihood_gradient import fast_log_likelihoods, plain_log_likelihoods

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
