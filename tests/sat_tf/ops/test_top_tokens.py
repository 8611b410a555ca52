"""The best tokens of a large vocabulary against a sort of all of them."""

import numpy as np
import pytest
import tensorflow as tf

from sat_tf.ops.top_tokens import top_tokens


@pytest.mark.parametrize("vocabulary", [640, 641, 2540, 2559])
@pytest.mark.parametrize("levels", [3, 40, 1_000_000])
def test_the_best_tokens_are_those_of_a_whole_sort(vocabulary, levels):
    # With few levels most log-probabilities are ties, which the lower token has to win.
    rng = np.random.default_rng(vocabulary + levels)
    log_probs = -rng.integers(0, levels, [200, vocabulary]).astype(np.float32)
    log_probs[:, rng.integers(0, vocabulary, vocabulary // 3)] = -np.inf
    found, tokens = top_tokens(tf.constant(log_probs), 5)
    order = np.argsort(-log_probs, axis=1, kind="stable")[:, :5]
    np.testing.assert_array_equal(tokens, order)
    np.testing.assert_array_equal(found, np.take_along_axis(log_probs, order, axis=1))


def test_tokens_stay_within_the_vocabulary_if_few_are_allowed():
    log_probs = np.full([3, 641], -np.inf, np.float32)
    log_probs[0, 640], log_probs[1, 2:4] = -1.0, -2.0
    found, tokens = top_tokens(tf.constant(log_probs), 5)
    assert np.all((np.asarray(tokens) >= 0) & (np.asarray(tokens) < 641))
    np.testing.assert_array_equal(np.isfinite(found).sum(axis=1), [1, 2, 0])
    assert tokens[0, 0] == 640
    np.testing.assert_array_equal(tokens[1, :2], [2, 3])
