"""Logs of rollouts, by hand and against automatic differentiation."""

import numpy as np
import pytest
import tensorflow as tf

from sat_tf.objectives.estimators import (
    ROLLOUT_LOGS,
    Estimator,
    Rollout,
    learning_signal,
    rollout_logs,
    stochastic_loss,
)

M, B, T, L = 3, 4, 5, 6


@pytest.fixture
def drawn():
    """Scores `[M, B, T, L]`, locations drawn, rewards and a mask with a caption that drew none."""
    rng = np.random.default_rng(0)
    scores = tf.constant(rng.normal(size=[M, B, T, L]), tf.float32)
    mask = (np.arange(T) < [[5], [2], [3], [4]]) * np.array([[1], [1], [0], [1]])
    mask = np.broadcast_to(mask, [M, B, T]).astype(np.float32)
    reward = rng.normal(size=[M, B, T]).astype(np.float32)
    return scores, rng.integers(0, L, [M, B, T]), reward * (mask > 0), mask


def logs_of(drawn, estimator, scores=None):
    scores, places, reward, mask = (drawn[0] if scores is None else scores, *drawn[1:])
    alpha = tf.nn.softmax(scores)
    log_prob = tf.gather(tf.math.log(alpha), places, batch_dims=3)
    value = tf.constant(0.3 * reward) if estimator.baseline == "learned" else None
    made = Rollout(log_prob, None, tf.constant(reward), tf.constant(reward), mask, value)
    signal = learning_signal(made, estimator, -0.4)
    logs = rollout_logs(made, signal, estimator, reward, tf.reduce_sum(alpha**2, axis=-1))
    return logs, stochastic_loss(made, signal, estimator)


ESTIMATORS = [
    Estimator(0.3, baseline="moving_average"),
    Estimator(1.0, baseline="leave_one_out", to_go=True),
    Estimator(1.0, bound="importance_weighted", baseline="leave_one_out", to_go=True),
]


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_score_gradient_s_norm_is_that_of_its_gradient_in_the_scores(drawn, estimator):
    with tf.GradientTape() as tape:
        tape.watch(drawn[0])
        logs, loss = logs_of(drawn, estimator)
    norm = np.linalg.norm(tape.gradient(loss, drawn[0]))
    assert set(logs) == set(ROLLOUT_LOGS)
    np.testing.assert_allclose(logs["score_gradient_norm"], norm, rtol=1e-4)


def test_variances_and_bounds_are_of_what_was_drawn(drawn):
    logs, _ = logs_of(drawn, Estimator(baseline="learned", to_go=True))
    _, _, reward, mask = drawn
    returns = np.cumsum(reward[..., ::-1], -1)[..., ::-1]
    returns, left = returns[mask > 0], (returns - 0.3 * reward)[mask > 0]
    np.testing.assert_allclose(logs["reward_variance"], returns.var(), rtol=1e-4)
    np.testing.assert_allclose(logs["advantage_variance"], left.var(), rtol=1e-4)
    explained = 1 - left.var() / returns.var()
    np.testing.assert_allclose(logs["explained_variance"], explained, rtol=1e-3, atol=1e-6)
    sums = reward.sum(-1)[:, [0, 1, 3]]
    np.testing.assert_allclose(logs["elbo"], sums.mean(), rtol=1e-4)
    bound = np.log(np.exp(sums).mean(0)).mean()
    np.testing.assert_allclose(logs["importance_weighted_bound"], bound, rtol=1e-4)


def test_nothing_drawn_is_nought_and_no_nan(drawn):
    nothing = (*drawn[:3], np.zeros_like(drawn[3]))
    logs, _ = logs_of(nothing, ESTIMATORS[0])
    assert all(float(value) == 0.0 for value in logs.values())
