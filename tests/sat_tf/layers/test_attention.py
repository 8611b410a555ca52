"""Alignment scores, alpha and the two ways of choosing a location, against plain NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from sat_tf.layers.attention import (
    BahdanauAttention,
    attention_entropy,
    attention_weights,
    multinoulli,
)
from tests.sat_tf.layers.decoder_numpy import SEED, build, random, softmax

B, G, L, D, A, N = 3, 2, 5, 4, 6, 7


@pytest.fixture
def attention():
    return build(BahdanauAttention(A), (None, N), (None, L, D))


def equation_4(layer, annotations, hidden):
    """`v . tanh(W_a a_i + W_h h + b)`, location by location."""
    key, bias = (w.numpy() for w in layer.key_projection.weights)
    (query,) = (w.numpy() for w in layer.query_projection.weights)
    scores = np.zeros([len(annotations), L])
    for b, i in np.ndindex(scores.shape):
        inside = annotations[b, i] @ key + hidden[b] @ query + bias
        scores[b, i] = np.tanh(inside) @ layer.score_vector.numpy()
    return scores


@pytest.mark.parametrize("wrap", [lambda f: f, tf.function], ids=["eager", "graph"])
def test_alignment_scores_are_equation_4(attention, wrap):
    annotations, hidden = random(B, L, D), random(B, N, seed=9)
    got = wrap(lambda a, h: attention(h, a))(annotations, hidden)
    np.testing.assert_allclose(got, equation_4(attention, annotations, hidden), rtol=1e-4)
    assert got.dtype == tf.float32


def test_samples_come_from_a_one_hot_categorical_whose_score_is_the_sample_less_alpha():
    import tensorflow_probability as tfp

    distribution = multinoulli(tf.constant(random(B, L)))
    assert isinstance(distribution, tfp.distributions.OneHotCategorical)
    assert distribution.dtype == tf.float32
    scores = tf.constant(random(B, L))
    with tf.GradientTape() as tape:
        tape.watch(scores)
        chosen = attention_weights(scores, "sample", SEED)
    assert chosen.weights.dtype == tf.float32
    np.testing.assert_array_equal(np.sort(chosen.weights, axis=-1)[:, :-1], 0.0)
    np.testing.assert_array_equal(np.max(chosen.weights, axis=-1), 1.0)
    drawn = np.argmax(chosen.weights, axis=-1)
    alpha = softmax(scores.numpy())
    np.testing.assert_allclose(chosen.log_prob, np.log(alpha)[np.arange(B), drawn], rtol=1e-5)
    found = tape.gradient(chosen.log_prob, scores)
    np.testing.assert_allclose(found, chosen.weights - alpha, rtol=1e-4, atol=1e-6)


def test_a_sample_without_a_seed_is_an_error():
    with pytest.raises(ValueError, match="`seed`: expected int32"):
        attention_weights(random(B, L), "sample")


@pytest.mark.parametrize("selection", ["sample", "argmax"])
def test_no_gradient_flows_through_a_one_hot(selection):
    scores = tf.constant(random(B, L))
    with tf.GradientTape() as tape:
        tape.watch(scores)
        loss = tf.reduce_sum(
            attention_weights(scores, selection, SEED).weights * random(B, L, seed=3)
        )
    assert tape.gradient(loss, scores) is None


def test_rows_switched_to_the_expectation_take_alpha_and_draw_nothing():
    scores = tf.constant(random(4, L))
    switch = tf.constant([True, False, True, False])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(scores)
        chosen = attention_weights(scores, "sample", SEED, switch)
        context = tf.reduce_sum(chosen.weights * random(4, L, seed=3))
        log_prob = tf.reduce_sum(chosen.log_prob)
    drawn = attention_weights(scores, "sample", SEED)
    expected = np.where(switch.numpy()[:, None], softmax(scores.numpy()), drawn.weights)
    np.testing.assert_allclose(chosen.weights, expected, rtol=1e-5)
    np.testing.assert_array_equal(chosen.log_prob, np.where(switch, 0.0, drawn.log_prob))
    # The context teaches alpha where it is used, the score where a location was drawn.
    through_context = np.abs(tape.gradient(context, scores)).sum(-1)
    through_score = np.abs(tape.gradient(log_prob, scores)).sum(-1)
    np.testing.assert_array_equal(through_context > 0, switch)
    np.testing.assert_array_equal(through_score > 0, ~switch.numpy())


def test_entropy_of_alpha():
    scores = random(B, 2, L)
    alpha = softmax(scores)
    expected = -(alpha * np.log(alpha)).sum(-1)
    np.testing.assert_allclose(attention_entropy(scores), expected, rtol=1e-5)


def test_entropy_and_its_gradient_are_finite_when_alpha_vanishes():
    scores = tf.constant([[0.0, 300.0, -300.0]])
    with tf.GradientTape() as tape:
        tape.watch(scores)
        entropy = attention_entropy(scores)
    np.testing.assert_allclose(entropy, [0.0], atol=1e-6)
    assert np.all(np.isfinite(tape.gradient(entropy, scores)))
