"""Estimators and bounds against enumeration, closed forms and TensorFlow Probability."""

import functools
import itertools

import numpy as np
import pytest
import tensorflow as tf

from sat_tf.objectives import estimators
from sat_tf.objectives.estimators import (
    Estimator,
    Rollout,
    Signal,
    learning_signal,
    stochastic_loss,
)
from tests.sat_tf.objectives.estimator_toys import (
    NAMES,
    PATHS,
    exact_bound,
    exact_gradient,
    expected_gradient,
    make_toy,
    path_log_probs,
    rollout,
)

AVERAGE = -2.8  # A moving average that is already warm.


@pytest.fixture(scope="module")
def toy():
    return make_toy()


BASELINES = ("none", "moving_average", "learned", "leave_one_out")
CASES = [
    (samples, bound, baseline, to_go)
    for samples, bound, baseline, to_go in itertools.product(
        (1, 2), ("elbo", "importance_weighted"), BASELINES, (False, True)
    )
    if samples > 1 or baseline != "leave_one_out"
    # Only VIMCO's baseline has a past to keep: for the others to go is whole.
    if bound == "elbo" or baseline == "leave_one_out" or not to_go
]


@pytest.mark.parametrize(("samples", "bound", "baseline", "to_go"), CASES)
def test_the_expected_gradient_is_the_exact_gradient_of_its_bound(
    toy, samples, bound, baseline, to_go
):
    estimator = Estimator(bound=bound, baseline=baseline, to_go=to_go)

    def loss(made):
        return stochastic_loss(made, learning_signal(made, estimator, AVERAGE), estimator)

    got = expected_gradient(toy, samples, loss)
    exact = exact_gradient(toy, functools.partial(exact_bound, bound=bound, samples=samples))
    for name in NAMES:
        np.testing.assert_allclose(got[name], exact[name], rtol=1e-5, atol=1e-8, err_msg=name)


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


def test_leave_one_out_by_hand():
    returns = tf.constant([[[1.0]], [[2.0]], [[6.0]]])
    np.testing.assert_allclose(estimators.leave_one_out(returns), [[[4.0]], [[3.5]], [[1.5]]])


def exact_marginal(toy):
    return np.log(np.exp(sum(path_log_probs(toy))).sum())


def test_the_importance_weighted_bound_rises_from_the_elbo_to_the_marginal():
    toy = make_toy()
    variables = {name: tf.Variable(value) for name, value in toy.items()}
    log_lik = rollout(variables, PATHS).log_lik.numpy()
    log_prob, _ = path_log_probs(toy)
    bounds = []
    for samples in (1, 2, 3):
        tuples = np.array(list(itertools.product(range(len(PATHS)), repeat=samples)))
        # Every tuple as a caption of its own: [M, tuples, T].
        made = np.swapaxes(log_lik[tuples][:, :, 0], 0, 1)
        of_tuple = estimators.importance_weighted_bound(tf.constant(made))
        if samples == 1:
            np.testing.assert_allclose(of_tuple, estimators.elbo(made), rtol=1e-12)
        bounds.append(np.exp(log_prob[tuples].sum(-1)) @ of_tuple.numpy())
        exact = exact_bound(toy, "importance_weighted", samples)
        np.testing.assert_allclose(bounds[-1], exact, rtol=1e-12)
    np.testing.assert_allclose(bounds[0], exact_bound(toy), rtol=1e-12)
    print(f"bounds for 1, 2, 3 samples: {bounds}; log p: {exact_marginal(toy)}")
    assert bounds[0] < bounds[1] < bounds[2] < exact_marginal(toy)


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
