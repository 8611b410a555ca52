"""Estimators proved by enumeration: L = 3 locations, T = 2 steps, float64, no random draw.

The toy is autoregressive, so that the second location is drawn from a distribution which the first
one chose. Exact gradients are central differences of a plain NumPy sum over all samples.
"""

from __future__ import annotations

import functools
import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from sat_tf import estimators
from sat_tf.estimators import MovingAverageBaseline, Objective, Rollout

L, T = 3, 2
WORDS = (1, 0)  # The caption: one of two words at each step.
PATHS = list(itertools.product(range(L), repeat=T))
NAMES = ("first", "second", "words_1", "words_2")


@pytest.fixture(scope="module")
def toy():
    """Logits of the locations (first, second given first) and of the words given the locations."""
    rng = np.random.default_rng(0)
    shapes = {"first": [L], "second": [L, L], "words_1": [L, 2], "words_2": [L, L, 2]}
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}


def log_softmax(logits):
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def exact_elbo(toy):
    """`sum_s p(s) log p(y|s)` in NumPy."""
    first, second = log_softmax(toy["first"]), log_softmax(toy["second"])
    words_1, words_2 = log_softmax(toy["words_1"]), log_softmax(toy["words_2"])
    return sum(
        np.exp(first[s] + second[s, u]) * (words_1[s, WORDS[0]] + words_2[s, u, WORDS[1]])
        for s, u in PATHS
    )


def exact_gradient(toy, function=exact_elbo, width=1e-5):
    gradients = {}
    for name, value in toy.items():
        gradients[name] = np.zeros_like(value)
        for index in np.ndindex(value.shape):
            high, low = value.copy(), value.copy()
            high[index] += width
            low[index] -= width
            difference = function(toy | {name: high}) - function(toy | {name: low})
            gradients[name][index] = difference / (2 * width)
    return gradients


def rollout(variables, paths, mask=None, entropy=False):
    """The toy made to draw `paths`, one caption, `M = len(paths)` samples."""
    first, second = np.array(paths).T
    both = np.array(paths)
    p_1, p_2 = (tf.nn.log_softmax(variables[name]) for name in ("first", "second"))
    words_1, words_2 = (tf.nn.log_softmax(variables[name]) for name in ("words_1", "words_2"))

    def steps(one, two):
        return tf.stack([one, two], axis=-1)[:, tf.newaxis]

    log_prob = steps(tf.gather(p_1, first), tf.gather_nd(p_2, both))
    log_lik = steps(
        tf.gather(words_1[:, WORDS[0]], first), tf.gather_nd(words_2[..., WORDS[1]], both)
    )
    spread = None
    if entropy:
        spread_1 = -tf.reduce_sum(tf.exp(p_1) * p_1) * tf.ones(len(paths), tf.float64)
        spread = steps(spread_1, tf.gather(-tf.reduce_sum(tf.exp(p_2) * p_2, axis=-1), first))
    mask = tf.ones_like(log_prob) if mask is None else tf.constant(mask, tf.float64)
    return Rollout(log_prob, spread, log_lik, tf.stop_gradient(log_lik), mask)


def choose(made, samples):
    """The rollout of some samples of `made`."""
    return Rollout(*(None if part is None else tf.gather(part, samples) for part in made))


def over_every_tuple(samples, function):
    """`function(paths [M])` of every tuple of samples, stacked, in one graph loop."""
    tuples = tf.constant(list(itertools.product(range(len(PATHS)), repeat=samples)))
    return tf.map_fn(function, tuples, fn_output_signature=tf.float64)


def probabilities(every_path, samples):
    log_prob = tf.reduce_sum(every_path.log_prob, axis=[1, 2])
    return over_every_tuple(
        samples, lambda paths: tf.exp(tf.reduce_sum(tf.gather(log_prob, paths)))
    )


def expected_gradient(toy, samples, loss):
    """`-E[grad loss]` over every tuple of `samples` paths, weighted by its probability."""
    variables = {name: tf.Variable(value) for name, value in toy.items()}

    @tf.function
    def run():
        with tf.GradientTape() as tape:
            every_path = rollout(variables, PATHS)
            weights = tf.stop_gradient(probabilities(every_path, samples))
            losses = over_every_tuple(samples, lambda paths: loss(choose(every_path, paths)))
            expected = tf.reduce_sum(weights * losses)
        return tf.reduce_sum(weights), tape.gradient(expected, variables)

    total, gradients = run()
    np.testing.assert_allclose(total, 1.0, rtol=1e-12)
    return {name: -g.numpy() for name, g in gradients.items()}


@functools.cache
def warm_baseline():
    baseline = MovingAverageBaseline()
    baseline.update(-3.0)
    baseline.update(-1.0)
    return baseline


def moving_average(returns):
    return tf.cast(warm_baseline().value, returns.dtype)


RETURNS = {
    "reward_to_go": estimators.reward_to_go,
    "whole_return": estimators.whole_return,
}
BASELINES = {
    "none": lambda returns: 0.0,
    "constant": lambda returns: tf.constant(-1.7, returns.dtype),
    "moving_average": moving_average,
    "leave_one_out": estimators.leave_one_out,
}
CASES = [
    (samples, returns, baseline)
    for samples in (1, 2)
    for returns in RETURNS
    for baseline in BASELINES
    if samples > 1 or baseline != "leave_one_out"
]


def make_loss(returns, baseline, objective=None):
    def loss(made):
        values = RETURNS[returns](made.reward)
        centre = BASELINES[baseline](values) if isinstance(baseline, str) else baseline(values)
        return estimators.stochastic_loss(made, values, centre, objective or Objective())

    return loss


@pytest.mark.parametrize(("samples", "returns", "baseline"), CASES)
def test_expected_gradient_is_the_exact_gradient_of_the_bound(toy, samples, returns, baseline):
    got = expected_gradient(toy, samples, make_loss(returns, baseline))
    exact = exact_gradient(toy)
    for name in NAMES:
        np.testing.assert_allclose(got[name], exact[name], rtol=1e-5, atol=1e-8, err_msg=name)


def test_the_proof_sees_a_baseline_that_depends_on_its_own_sample(toy):
    got = expected_gradient(toy, 1, make_loss("whole_return", lambda returns: 0.5 * returns))
    assert np.abs(got["first"] - exact_gradient(toy)["first"]).max() > 1e-2


def test_reward_weight_scales_the_score_function_term_alone(toy):
    got = expected_gradient(toy, 1, make_loss("whole_return", "none", Objective(0.1)))
    exact = exact_gradient(toy)
    for name, weight in zip(NAMES, (0.1, 0.1, 1.0, 1.0), strict=True):
        np.testing.assert_allclose(got[name], weight * exact[name], rtol=1e-5, atol=1e-8)


def test_a_baseline_lowers_the_variance_and_leaves_the_mean(toy):
    variables = {name: tf.Variable(value) for name, value in toy.items()}

    @tf.function
    def run(samples, baseline):
        def gradient(paths):
            with tf.GradientTape() as tape:
                made = choose(rollout(variables, PATHS), paths)
                loss = make_loss("whole_return", baseline)(made)
            return tape.gradient(loss, variables["first"])

        weights = probabilities(rollout(variables, PATHS), samples)
        return weights, over_every_tuple(samples, gradient)

    def spread(samples, baseline):
        weights, gradients = (part.numpy() for part in run(samples, baseline))
        mean = weights @ gradients
        return mean, weights @ ((gradients - mean) ** 2).sum(-1)

    average = exact_elbo(toy)
    spreads = {
        "one sample, none": spread(1, "none"),
        "one sample, mean return": spread(1, lambda _: average),
        "two samples, none": spread(2, "none"),
        "two samples, leave one out": spread(2, "leave_one_out"),
    }
    for name, (mean, variance) in spreads.items():
        print(f"{name}: variance of the gradient {variance:.4f}, mean {mean}")
        np.testing.assert_allclose(mean, spreads["one sample, none"][0], rtol=1e-9)
    variances = {name: variance for name, (_, variance) in spreads.items()}
    assert variances["one sample, mean return"] < variances["one sample, none"]
    assert variances["two samples, leave one out"] < variances["two samples, none"]


def test_the_entropy_term_raises_the_entropy(toy):
    def mean_entropy(toy):
        first, second = log_softmax(toy["first"]), log_softmax(toy["second"])
        # Of the two steps along the path (0, 0).
        return -(np.exp(first) * first).sum() - (np.exp(second[0]) * second[0]).sum()

    variables = {name: tf.Variable(value) for name, value in toy.items()}
    objective = Objective(reward_weight=0.0, entropy_weight=0.7)
    with tf.GradientTape() as tape:
        made = rollout(variables, [(0, 0)], entropy=True)
        loss = estimators.stochastic_loss(made, estimators.whole_return(made.reward), 0, objective)
    gradient = tape.gradient(loss, variables["first"]).numpy()
    exact = exact_gradient(toy, mean_entropy)["first"]
    np.testing.assert_allclose(-gradient, 0.7 * exact, rtol=1e-5)
    moved = toy | {"first": toy["first"] - 0.1 * gradient}
    assert mean_entropy(moved) > mean_entropy(toy)


@pytest.mark.parametrize("dropped", range(T))
def test_masked_steps_contribute_nothing(toy, dropped):
    mask = np.ones([1, 1, T])
    mask[..., dropped] = 0.0
    variables = {name: tf.Variable(value) for name, value in toy.items()}
    with tf.GradientTape() as tape:
        made = rollout(variables, [(2, 1)], mask)
        loss = estimators.score_function_loss(made.log_prob, tf.constant(2.5, tf.float64), mask)
    location_logits = [variables["first"], variables["second"]]
    gradients = tape.gradient(loss, location_logits)
    sizes = [np.abs(tf.convert_to_tensor(g)).sum() for g in gradients]
    assert sizes[dropped] == 0.0
    assert sizes[1 - dropped] > 0.0
    made = made._replace(value=tf.constant([[[1.0, 2.0]]], tf.float64))
    with tf.GradientTape() as tape:
        tape.watch(made.value)
        loss = estimators.stochastic_loss(
            made, estimators.reward_to_go(made.reward), 0.0, Objective()
        )
    gradient = tape.gradient(loss, made.value).numpy()[0, 0]
    assert gradient[dropped] == 0.0
    assert gradient[1 - dropped] != 0.0


def test_the_learned_baseline_regresses_on_the_return():
    rng = np.random.default_rng(1)
    log_prob, reward = rng.normal(size=[2, 2, 3, 4]).astype(np.float32)
    value = tf.constant(rng.normal(size=[2, 3, 4]).astype(np.float32))
    reward = tf.constant(reward)
    made = Rollout(log_prob, None, reward, reward, tf.ones_like(reward), value)
    returns = estimators.reward_to_go(reward)
    with tf.GradientTape() as tape:
        tape.watch([value, reward])
        loss = estimators.stochastic_loss(
            made, estimators.reward_to_go(reward), 0.0, Objective(0.0, 0.0, 3.0)
        )
    gradient, through_reward = tape.gradient(loss, [value, reward])
    np.testing.assert_allclose(gradient, 3.0 * 2.0 * (value - returns) / 6, rtol=1e-4, atol=1e-6)
    # Beside the bound's own -1 / (M B) nothing reaches the reward.
    np.testing.assert_allclose(through_reward, np.full([2, 3, 4], -1.0 / 6), rtol=1e-5)


def test_no_gradient_flows_through_the_advantage():
    advantage = tf.Variable([[[2.0]]])
    with tf.GradientTape() as tape:
        loss = estimators.score_function_loss(
            tf.constant([[[-1.0]]]), advantage, tf.ones([1, 1, 1])
        )
    assert tape.gradient(loss, advantage) is None
    np.testing.assert_allclose(loss, 2.0)


def test_terms_are_sums_over_words_and_means_over_samples_and_captions():
    rng = np.random.default_rng(2)
    log_prob, log_lik, entropy = rng.normal(size=[3, 2, 3, 4]).astype(np.float32)
    mask = (rng.uniform(size=[2, 3, 4]) < 0.7).astype(np.float32)
    made = Rollout(log_prob, entropy, log_lik, log_lik, mask)
    returns = estimators.whole_return(tf.constant(log_lik))
    loss = estimators.stochastic_loss(made, returns, 0.3, Objective(0.6, 0.2))
    advantage = log_lik.sum(-1, keepdims=True) - 0.3
    expected = (
        -log_lik.sum(-1).mean()
        - 0.6 * (mask * advantage * log_prob).sum(-1).mean()
        - 0.2 * entropy.sum(-1).mean()
    )
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    np.testing.assert_allclose(estimators.elbo(log_lik), log_lik.sum(-1).mean(0), rtol=1e-5)


def test_returns_by_hand():
    reward = tf.constant([[[1.0, 2.0, 4.0]]])
    np.testing.assert_array_equal(estimators.reward_to_go(reward), [[[7.0, 6.0, 4.0]]])
    np.testing.assert_array_equal(estimators.whole_return(reward), [[[7.0]]])


def test_leave_one_out_by_hand():
    returns = tf.constant([[[1.0]], [[2.0]], [[6.0]]])
    np.testing.assert_allclose(estimators.leave_one_out(returns), [[[4.0]], [[3.5]], [[1.5]]])


def test_leave_one_out_of_one_sample_is_an_error():
    with pytest.raises(ValueError, match="at least 2 samples.*got 1"):
        estimators.leave_one_out(tf.zeros([1, 4, 1]))


@pytest.mark.parametrize("decay", [0.9, 0.5])
def test_the_moving_average_follows_its_equation_after_the_first_value(decay):
    baseline = MovingAverageBaseline(decay)
    update = tf.function(baseline.update)
    assert baseline.value == 0.0
    expected = None
    for mean_return in (-8.0, -6.0, -7.0, 3.0):
        update(tf.constant(mean_return))
        first = expected is None
        expected = mean_return if first else decay * expected + (1 - decay) * mean_return
        np.testing.assert_allclose(baseline.value, expected, rtol=1e-6)


def test_the_moving_average_is_saved_and_restored_with_its_start():
    baseline = MovingAverageBaseline()
    baseline.update(-8.0)
    copy = MovingAverageBaseline.from_config(baseline.get_config())
    copy.set_weights(baseline.get_weights())
    copy.update(-6.0)
    np.testing.assert_allclose(copy.value, -0.9 * 8.0 - 0.1 * 6.0, rtol=1e-6)
    assert not copy.trainable_weights
    name = keras.saving.get_registered_name(MovingAverageBaseline)
    assert keras.saving.get_registered_object(name) is MovingAverageBaseline
