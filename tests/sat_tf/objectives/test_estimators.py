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
    T,
    choose,
    exact_bound,
    exact_gradient,
    exact_log_marginal,
    expected_gradient,
    log_softmax,
    make_toy,
    over_every_tuple,
    path_log_probs,
    probabilities,
    rollout,
)

AVERAGE = -2.8  # A moving average that is already warm.


@pytest.fixture(scope="module")
def toy():
    return make_toy()


RETURNS = {
    "reward_to_go": estimators.reward_to_go,
    "whole_return": estimators.whole_return,
}


def make_loss(returns, baseline, estimator=None):
    """A baseline of the test's own, or none."""

    def loss(made):
        made = made._replace(value=None)
        values = RETURNS[returns](made.reward)
        centre = 0.0 if baseline == "none" else baseline(values)
        return stochastic_loss(made, Signal(values, centre), estimator or Estimator())

    return loss


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


def test_vimco_s_advantages_averaged_over_the_samples_miss_the_exact_gradient(toy):
    """They carry the weight of the whole bound: they are summed."""
    estimator = Estimator(bound="importance_weighted", baseline="leave_one_out")

    def loss(made):
        signal = learning_signal(made, estimator)
        bound = -tf.reduce_mean(estimators.importance_weighted_bound(made.log_lik))
        return bound + estimators.score_function_loss(made.log_prob, signal.advantage, made.mask)

    got = expected_gradient(toy, 2, loss)
    exact = exact_gradient(toy, functools.partial(exact_bound, bound=estimator.bound, samples=2))
    assert np.abs(got["first"] - exact["first"]).max() > 1e-3


def test_the_proof_sees_a_baseline_that_depends_on_its_own_sample(toy):
    got = expected_gradient(toy, 1, make_loss("whole_return", lambda returns: 0.5 * returns))
    assert np.abs(got["first"] - exact_gradient(toy)["first"]).max() > 1e-2


def test_reward_weight_scales_the_score_function_term_alone(toy):
    got = expected_gradient(toy, 1, make_loss("whole_return", "none", Estimator(0.1)))
    exact = exact_gradient(toy)
    for name, weight in zip(NAMES, (0.1, 0.1, 1.0, 1.0), strict=True):
        np.testing.assert_allclose(got[name], weight * exact[name], rtol=1e-5, atol=1e-8)


def test_a_baseline_lowers_the_variance_and_leaves_the_mean(toy):
    variables = {name: tf.Variable(value) for name, value in toy.items()}

    @tf.function(autograph=False)
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

    average = exact_bound(toy)
    spreads = {
        "one sample, none": spread(1, "none"),
        "one sample, mean return": spread(1, lambda _: average),
        "two samples, none": spread(2, "none"),
        "two samples, leave one out": spread(2, estimators.leave_one_out),
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
    estimator = Estimator(reward_weight=0.0, entropy_weight=0.7)
    with tf.GradientTape() as tape:
        made = rollout(variables, [(0, 0)], entropy=True)._replace(value=None)
        signal = Signal(estimators.whole_return(made.reward), 0.0)
        loss = stochastic_loss(made, signal, estimator)
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
        signal = Signal(estimators.reward_to_go(made.reward), 0.0)
        loss = stochastic_loss(made, signal, Estimator())
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
        signal = Signal(estimators.reward_to_go(reward), 0.0)
        loss = stochastic_loss(made, signal, Estimator(0.0, 0.0, 3.0))
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
    loss = stochastic_loss(made, Signal(returns, 0.3), Estimator(0.6, 0.2))
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


def exact_marginal(toy):
    return np.log(np.exp(sum(path_log_probs(toy))).sum())


def test_the_exact_marginal_sums_over_every_path():
    toy = make_toy()
    variables = {name: tf.Variable(value) for name, value in toy.items()}
    with tf.GradientTape() as tape:
        made = rollout(variables, PATHS)
        found = exact_log_marginal(made.log_prob, made.log_lik)
    np.testing.assert_allclose(found, [exact_marginal(toy)], rtol=1e-12)
    # Its gradient in the words' logits is the posterior's share of each word.
    log_prob, log_lik = path_log_probs(toy)
    posterior = np.exp(log_prob + log_lik - exact_marginal(toy))
    of_first = posterior.reshape(3, 3).sum(-1)
    expected = of_first[:, None] * ([0, 1] - np.exp(log_softmax(toy["words_1"])))
    np.testing.assert_allclose(tape.gradient(found, variables["words_1"]), expected, rtol=1e-9)


def test_log_p_is_the_elbo_and_a_divergence():
    """`log p(y|a) = ELBO + KL(p(s|a) || p(s|y,a))`."""
    toy = make_toy()
    variables = {name: tf.Variable(value) for name, value in toy.items()}
    made = rollout(variables, PATHS)
    log_prior = tf.reduce_sum(made.log_prob, axis=[1, 2])
    prior = tf.exp(log_prior)
    found = [estimators.elbo(made.log_lik[m : m + 1])[0] for m in range(len(PATHS))]
    elbo = tf.reduce_sum(prior * tf.stack(found))
    marginal = exact_log_marginal(made.log_prob, made.log_lik)[0]
    log_posterior = log_prior + tf.reduce_sum(made.log_lik, axis=[1, 2]) - marginal
    divergence = tf.reduce_sum(prior * (log_prior - log_posterior))
    assert divergence > 1e-3
    np.testing.assert_allclose(marginal, elbo + divergence, rtol=0, atol=1e-6)


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


def test_vimco_s_baseline_does_not_see_what_the_action_leads_to(reward):
    changed = reward.copy()
    changed[1, :, 2:] += 3.0
    for to_go in (False, True):
        one, other = (
            estimators.vimco_baseline(tf.constant(r), to_go).numpy() for r in (reward, changed)
        )
        np.testing.assert_allclose(other[1, :, :3], one[1, :, :3], rtol=1e-9)
        assert np.abs(other[0] - one[0]).max() > 0.1


@pytest.mark.parametrize("bound", ["elbo", "importance_weighted"])
def test_leave_one_out_of_one_sample_is_an_error_for_both_bounds(bound):
    made = Rollout(*[tf.zeros([1, 2, 3])] * 5)
    with pytest.raises(ValueError, match="at least 2 samples.*got 1"):
        learning_signal(made, Estimator(bound=bound, baseline="leave_one_out"))


@pytest.mark.parametrize("bound", ["elbo", "importance_weighted"])
@pytest.mark.parametrize("baseline", ["none", "leave_one_out", "learned"])
def test_padding_changes_no_bound_and_no_signal(reward, bound, baseline):
    def losses(padding):
        rng = np.random.default_rng(2)
        log_prob, value = rng.normal(size=[2, M, B, 5])
        parts = [np.pad(x, [(0, 0), (0, 0), (0, padding)]) for x in (log_prob, reward, value)]
        # What a padded step drew and what is expected of it are not zero.
        parts[0][..., 5:], parts[2][..., 5:] = -7.0, 9.0
        mask = np.pad(np.ones([M, B, 5]), [(0, 0), (0, 0), (0, padding)])
        log_prob, reward_, value = map(tf.constant, parts)
        value = value if baseline == "learned" else None
        made = Rollout(log_prob, None, reward_, reward_, tf.constant(mask), value)
        estimator = Estimator(bound=bound, baseline=baseline, to_go=bound == "elbo")
        return stochastic_loss(made, learning_signal(made, estimator), estimator).numpy()

    np.testing.assert_allclose(losses(3), losses(0), rtol=1e-9)


# --- a Gaussian location, by quadrature ---

MEAN, SPREAD, TARGET = 0.7, 0.4, -0.2


@pytest.mark.parametrize(
    ("samples", "baseline"),
    [(1, "none"), (1, "moving_average"), (2, "none"), (2, "leave_one_out")],
)
def test_a_gaussian_location_gets_its_closed_form_gradient(samples, baseline):
    """`E[-(x - c)^2]` for x ~ N(m, d^2) has the gradient `-2 (m - c)` in m and `-2 d` in d."""
    # Four nodes are exact for the polynomials of these estimators.
    nodes, weights = np.polynomial.hermite_e.hermegauss(4)
    weights = weights / weights.sum()
    mean, spread = tf.Variable(MEAN, dtype=tf.float64), tf.Variable(SPREAD, dtype=tf.float64)
    estimator = Estimator(baseline=baseline)
    expected = 0.0
    with tf.GradientTape() as tape:
        for chosen in itertools.product(range(4), repeat=samples):
            drawn = MEAN + SPREAD * nodes[list(chosen)].reshape(samples, 1, 1)
            log_prob = -0.5 * tf.square((drawn - mean) / spread) - tf.math.log(spread)
            reward = tf.constant(-((drawn - TARGET) ** 2))
            # No task term: the location learns from its reward alone.
            made = Rollout(log_prob, None, 0.0 * reward, reward, tf.ones_like(reward))
            signal = learning_signal(made, estimator, -0.5)
            expected += weights[list(chosen)].prod() * stochastic_loss(made, signal, estimator)
    gradients = tape.gradient(expected, [mean, spread])
    np.testing.assert_allclose(gradients[0], 2 * (MEAN - TARGET), rtol=1e-5)
    np.testing.assert_allclose(gradients[1], 2 * SPREAD, rtol=1e-5)
