"""The Gaussian policy over locations."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from sat_tf.digits.glimpses import LocationNetwork, gaussian
from training.distributed.workers import make_strategy


def policy(std=0.2, state_dim=4):
    network = LocationNetwork(state_dim, 8, std)
    network.mean_layer.kernel.assign(tf.random.stateless_normal([8, 2], [1, 2]))
    return network


def states(batch=1000):
    return tf.random.stateless_normal([batch, 4], [3, 4])


def test_the_log_probability_is_the_gaussians_at_the_sample():
    std, mean = 0.3, np.array([[0.2, -0.5]])
    drawn = np.array([[0.9, -1.7]])
    squares = ((drawn - mean) / std) ** 2
    expected = (-0.5 * squares - np.log(std) - 0.5 * np.log(2 * np.pi)).sum(-1)
    found = gaussian(tf.constant(mean), std).log_prob(tf.constant(drawn))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_samples_are_clipped_and_their_log_probability_is_not():
    network, std = policy(std=2.0), 2.0
    aim = network(states(), tf.constant([0, 1]))
    assert np.abs(aim.location).max() == 1.0
    drawn = gaussian(aim.mean, std).sample(seed=tf.constant([0, 1]))
    np.testing.assert_allclose(aim.log_prob, gaussian(aim.mean, std).log_prob(drawn), rtol=1e-5)
    clipped = gaussian(aim.mean, std).log_prob(aim.location)
    assert np.abs(aim.log_prob - clipped).max() > 0.1


def test_without_a_seed_the_policy_looks_at_its_mean():
    aim = policy()(states())
    np.testing.assert_array_equal(aim.location, aim.mean)
    np.testing.assert_allclose(np.tanh(aim.activation), aim.mean, rtol=1e-5)
    assert np.abs(aim.mean).max() < 1.0


def test_samples_spread_by_the_standard_deviation():
    network = LocationNetwork(4, 8, 0.05)
    aim = network(states(), tf.constant([0, 1]))
    np.testing.assert_allclose(np.std(aim.location - aim.mean), 0.05, rtol=0.1)


def test_a_replica_without_states_draws_no_locations():
    strategy = make_strategy("mirrored")
    with strategy.scope():
        network = policy()
    draw = tf.function(
        lambda hidden: network(hidden, tf.constant([0, 1])).location,
        input_signature=[tf.TensorSpec([None, 4])],
    )
    drawn = strategy.run(draw, args=(states(0),))
    assert strategy.experimental_local_results(drawn)[0].shape == (0, 2)


@pytest.mark.parametrize("seed", [None, [0, 1]])
def test_no_gradient_flows_through_a_location(seed):
    network, hidden = policy(), states()
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(hidden)
        aim = network(hidden, None if seed is None else tf.constant(seed))
    assert tape.gradient(aim.location, [hidden, *network.trainable_variables]) == [None] * 5


def test_the_log_probability_teaches_the_mean_towards_the_sample():
    network, hidden = policy(std=0.1), states(1)
    with tf.GradientTape() as tape:
        aim = network(hidden, tf.constant([0, 1]))
    # d log N / d mean = (sample - mean) / std^2
    (gradient,) = tape.gradient(aim.log_prob, [network.mean_layer.bias])
    inside = (1.0 - np.square(aim.mean)) * (aim.location - aim.mean) / 0.1**2
    np.testing.assert_allclose(gradient, inside[0], rtol=1e-4)
