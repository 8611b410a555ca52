"""Estimators, bounds, baselines, logs by hand; `test_hard_enumerated` proves them unbiased."""

import numpy as np
import pytest
import tensorflow as tf

from sat_tf.objectives import estimators
from sat_tf.objectives.estimators import (
    ROLLOUT_LOGS,
    Estimator,
    MovingAverageBaseline,
    Rollout,
    Signal,
    learning_signal,
    rollout_logs,
    stochastic_loss,
)


def test_the_learned_baseline_regresses_on_the_return_where_an_action_was_drawn():
    rng = np.random.default_rng(1)
    log_prob, reward = rng.normal(size=[2, 2, 3, 4]).astype(np.float32)
    value = tf.constant(rng.normal(size=[2, 3, 4]).astype(np.float32))
    reward = tf.constant(reward)
    mask = (rng.uniform(size=[2, 3, 4]) < 0.7).astype(np.float32)
    made = Rollout(log_prob, None, reward, reward, mask, value)
    returns = estimators.reward_to_go(reward)
    with tf.GradientTape() as tape:
        tape.watch([value, reward])
        signal = Signal(estimators.reward_to_go(reward), 0.0)
        loss = stochastic_loss(made, signal, Estimator(1.0, 0.0, 3.0))
    gradient, through_reward = tape.gradient(loss, [value, reward])
    expected = 3.0 * 2.0 * mask * (value - returns) / 6
    np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-6)
    # Beside the bound's own -1 / (M B) nothing reaches the reward, by the advantage neither.
    np.testing.assert_allclose(through_reward, np.full([2, 3, 4], -1.0 / 6), rtol=1e-5)


def test_terms_are_sums_over_words_and_means_over_samples_and_captions():
    rng = np.random.default_rng(2)
    log_prob, log_lik, entropy = rng.normal(size=[3, 2, 3, 4]).astype(np.float32)
    mask = (rng.uniform(size=[2, 3, 4]) < 0.7).astype(np.float32)
    made = Rollout(log_prob, entropy, log_lik, log_lik, mask)
    returns = estimators.whole_return(tf.constant(log_lik))
    loss = stochastic_loss(made, Signal(returns, 0.3), Estimator(0.6, 0.2))
    advantage = log_lik.sum(-1, keepdims=True) - 0.3
    expected = (
        -log_lik.sum(-1).mean()
        - 0.6 * (mask * advantage * log_prob).sum(-1).mean()
        - 0.2 * entropy.sum(-1).mean()
    )
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    np.testing.assert_allclose(estimators.elbo(log_lik), log_lik.sum(-1).mean(0), rtol=1e-5)
    weighted = np.log(np.exp(log_lik.sum(-1)).mean(0))
    np.testing.assert_allclose(estimators.importance_weighted_bound(log_lik), weighted, rtol=1e-5)


def test_leave_one_out_by_hand():
    returns = tf.constant([[[1.0]], [[2.0]], [[6.0]]])
    np.testing.assert_allclose(estimators.leave_one_out(returns), [[[4.0]], [[3.5]], [[1.5]]])


# --- VIMCO ---

M, B = 4, 3


@pytest.fixture
def reward():
    return np.random.default_rng(1).normal(size=[M, B, 5])


def test_vimco_s_baseline_is_that_of_tensorflow_probability(reward):
    import tensorflow_probability as tfp

    log_weight = reward.sum(-1)
    expected, _ = tfp.stats.log_soomean_exp(log_weight, axis=0)
    found = estimators.vimco_baseline(tf.constant(reward))
    assert found.shape == [M, B, 1]
    np.testing.assert_allclose(found[..., 0], expected, rtol=1e-9)


def test_to_go_vimco_keeps_the_past_of_the_sample(reward):
    found = estimators.vimco_baseline(tf.constant(reward), to_go=True).numpy()
    for m, b, t in np.ndindex(reward.shape):
        others = [n for n in range(M) if n != m]
        stand_in = reward[m, b, :t].sum() + reward[others, b, t:].sum(-1).mean()
        weights = [*reward[others, b].sum(-1), stand_in]
        expected = np.log(np.mean(np.exp(weights)))
        np.testing.assert_allclose(found[m, b, t], expected, rtol=1e-9)


@pytest.mark.parametrize("bound", ["elbo", "importance_weighted"])
def test_leave_one_out_of_one_sample_is_an_error_for_both_bounds(bound):
    made = Rollout(*[tf.zeros([1, 2, 3])] * 5)
    with pytest.raises(ValueError, match="at least 2 samples.*got 1"):
        learning_signal(made, Estimator(bound=bound, baseline="leave_one_out"))


# --- logs ---


@pytest.fixture
def drawn():
    """Scores `[M, B, T, L]`, locations drawn, rewards and a mask with a caption that drew none."""
    rng = np.random.default_rng(0)
    scores = tf.constant(rng.normal(size=[3, 4, 5, 6]), tf.float32)
    mask = (np.arange(5) < [[5], [2], [3], [4]]) * np.array([[1], [1], [0], [1]])
    mask = np.broadcast_to(mask, [3, 4, 5]).astype(np.float32)
    reward = rng.normal(size=[3, 4, 5]).astype(np.float32)
    return scores, rng.integers(0, 6, [3, 4, 5]), reward * (mask > 0), mask


def logs_of(drawn, estimator):
    scores, places, reward, mask = drawn
    log_prob = tf.gather(tf.nn.log_softmax(scores), places, batch_dims=3)
    value = tf.constant(0.3 * reward) if estimator.baseline == "learned" else None
    made = Rollout(log_prob, None, tf.constant(reward), tf.constant(reward), mask, value)
    logs = rollout_logs(made, learning_signal(made, estimator, -0.4), reward)
    assert set(logs) == set(ROLLOUT_LOGS)
    return logs


def test_variances_and_bounds_are_of_what_was_drawn(drawn):
    logs = logs_of(drawn, Estimator(baseline="learned", to_go=True))
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
    logs = logs_of(nothing, Estimator(0.3, baseline="moving_average"))
    assert all(float(value) == 0.0 for value in logs.values())


@pytest.mark.parametrize("decay", [0.9, 0.5])
def test_the_moving_average_follows_its_equation_after_the_first_value(decay):
    baseline = MovingAverageBaseline(decay)
    update, use = tf.function(baseline.update), tf.function(baseline)
    expected = -8.0
    for mean_return in (-8.0, -6.0, -7.0, 3.0):
        # The baseline of a batch is that of the batches before, or of the first itself.
        np.testing.assert_allclose(use(tf.constant(mean_return)), expected, rtol=1e-6)
        update(tf.constant(mean_return))
        expected = decay * expected + (1 - decay) * mean_return
        np.testing.assert_allclose(baseline.value, expected, rtol=1e-6)
