"""The loss of RAM and DRAM by hand, and the parts of the model that each term teaches."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from sat_tf.digits.glimpses import gaussian
from sat_tf.objectives.estimators import Estimator, Rollout, learning_signal, stochastic_loss
from tests.sat_tf.digits.digit_terms import SEED
from tests.sat_tf.digits.small_ram import B, T, batch, losses, make, named


def test_the_loss_is_the_estimators_by_hand():
    model = make(samples=2, baseline="leave_one_out", reward_weight=0.3, aim_weight=0.7)
    loss, logs, _ = losses(model)
    data = batch()
    looks = model(data, SEED, samples=2)
    log_p = tf.nn.log_softmax(looks.logits).numpy().reshape(B, 2, 10)
    labels = data["labels"].numpy()
    log_lik = log_p[np.arange(B), :, labels]
    correct = (log_p.argmax(-1) == labels[:, np.newaxis]).astype(np.float32)
    advantage = correct - correct[:, ::-1]
    log_prob = (looks.drawn * looks.log_prob).numpy().reshape(B, 2, T).sum(-1)
    # Of the means at which it aims; the first glimpse is in the middle, whatever it would be.
    means = model.locator(tf.reshape(looks.aiming, [-1, 12])).mean.numpy().reshape(B * 2, T, 2)
    squares = (np.arctanh(means[:, 1:]) ** 2).sum((1, 2)).mean()
    expected = -log_lik.mean() - 0.3 * (advantage * log_prob).mean() + 0.7 * squares
    np.testing.assert_allclose(logs["aim_penalty"], squares, rtol=1e-5)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    np.testing.assert_allclose(logs["nll"], -log_lik.mean(), rtol=1e-5)
    np.testing.assert_allclose(logs["reward"], correct.mean())
    assert set(logs) == set(model.objective.log_names)


def test_the_reward_may_be_the_log_likelihood():
    model = make(samples=2, baseline="none", reward="log_lik")
    _, logs, _ = losses(model)
    np.testing.assert_allclose(logs["reward"], -logs["nll"], rtol=1e-6)


def test_rewards_reach_the_policy_and_nothing_else():
    told, untold = (
        make(reward_weight=5.0, baseline="none", reward="log_lik", aim_weight=0.0),
        make(reward_weight=0.0, baseline="none", aim_weight=0.0),
    )
    untold.set_weights(told.get_weights())
    with_reward, without = losses(told)[2], losses(untold)[2]
    for (name, gradient), other in zip(with_reward.items(), without.values(), strict=True):
        if "locator" in name:
            assert np.any(gradient) and not np.any(other)
        elif "baseline" not in name:
            np.testing.assert_allclose(gradient, other, rtol=1e-4, atol=1e-7)


def test_the_logged_value_is_that_of_the_locations_drawn():
    model = make()
    model.baseline.output_layer.bias.assign([0.25])
    assert float(losses(model)[1]["value"]) == pytest.approx(0.25)
    assert losses(make(locations="random"))[1]["value"] == 0.0


def test_the_baselines_error_reaches_the_baseline_alone():
    model = make(reward_weight=0.0, value_weight=1.0, reward="log_lik")
    without = make(reward_weight=0.0, value_weight=0.0, reward="log_lik")
    without.set_weights(model.get_weights())
    ours, theirs = losses(model)[2], losses(without)[2]
    for (name, gradient), other in zip(ours.items(), theirs.values(), strict=True):
        if "baseline" in name and "output" in name:
            assert np.any(gradient) and not np.any(other)
        elif "baseline" not in name:
            np.testing.assert_allclose(gradient, other, rtol=1e-4, atol=1e-7)


def test_a_policy_at_the_border_is_called_back():
    pulled, left = (make(reward_weight=0.0, baseline="none", aim_weight=w) for w in (0.5, 0.0))
    # Where tanh has no slope.
    pulled.locator.mean_layer.bias.assign([-40.0, 0.0])
    left.set_weights(pulled.get_weights())
    assert np.max(left(batch(), SEED).location[:, 1:, 0]) < -0.5
    for (name, gradient), other in zip(
        losses(pulled)[2].items(), losses(left)[2].values(), strict=True
    ):
        if name == "locator/mean/bias":
            # Of the two glimpses that are the policy's.
            assert float(gradient[0]) == pytest.approx(0.5 * 2 * 2 * -40.0, rel=0.1) and not np.any(
                other
            )
        elif "locator" not in name:
            np.testing.assert_allclose(gradient, other, rtol=1e-4, atol=1e-7)


def test_policy_and_baseline_are_clipped_apart_from_the_rest():
    model = make()
    own = {id(variable) for variable in model.separately_clipped}
    parts = {name.split("/")[0] for name, v in named(model).items() if id(v) in own}
    assert parts == {"locator", "baseline"} and len(own) == 8


def test_the_gaussian_policy_gradient_is_the_integral():
    """One dimension: the mean over many samples against the gradient integrated on a grid."""
    mean, std = 0.3, 0.4

    def reward(x):
        return np.sin(3.0 * x) + x**2

    # The place that is looked at is clipped; the density is that of the sample before.
    grid = np.linspace(mean - 8 * std, mean + 8 * std, 200_001)
    density = np.exp(-0.5 * ((grid - mean) / std) ** 2) / (std * np.sqrt(2 * np.pi))
    score = (grid - mean) / std**2
    exact = np.trapezoid(density * score * reward(np.clip(grid, -1.0, 1.0)), grid)

    samples, images = 2, 200_000
    variable = tf.Variable([mean], dtype=tf.float64)
    estimator = Estimator(baseline="leave_one_out")
    with tf.GradientTape() as tape:
        policy = gaussian(tf.tile(variable[tf.newaxis], [samples * images, 1]), std)
        drawn = tf.stop_gradient(policy.sample(seed=SEED))
        rewards = reward(np.clip(drawn.numpy(), -1.0, 1.0))
        shape = [samples, images, 1]
        rollout = Rollout(
            log_prob=tf.reshape(policy.log_prob(drawn), shape),
            entropy=None,
            log_lik=tf.zeros(shape, tf.float64),
            reward=tf.constant(rewards.reshape(shape)),
            mask=tf.ones(shape, tf.float64),
        )
        loss = stochastic_loss(rollout, learning_signal(rollout, estimator), estimator)
    (found,) = -tape.gradient(loss, variable).numpy()
    print(f"integrated {exact:.4f}, mean of {samples * images} samples {found:.4f}")
    np.testing.assert_allclose(found, exact, atol=0.02)
    assert abs(exact) > 0.5
