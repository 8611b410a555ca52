"""DRAM: two networks, one that answers and one that aims, and the context."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from sat_tf.digits.config import DRAMConfig
from sat_tf.digits.recurrent_attention import DRAM
from tests.sat_tf.digits.digit_terms import SEED, assert_learns, terms_of

B, T, SIZE, N = 3, 4, 24, 6
SMALL = {"glimpse_filters": 2, "context_filters": 2, "glimpse_dim": 8, "hidden_dim": N}


def make(**settings):
    defaults = SMALL | {"glimpses": T, "glimpse_size": 4, "scales": 2, "location_hidden_dim": 8}
    return DRAM(DRAMConfig(**defaults | settings), SIZE, classes=55)


def batch(size=B):
    rng = np.random.default_rng(0)
    return {
        "images": tf.constant(rng.uniform(size=[size, SIZE, SIZE, 1]), tf.float32),
        "labels": tf.constant(rng.integers(0, 55, size), tf.int32),
        "centres": tf.constant(rng.uniform(-1, 1, [size, 2, 2]), tf.float32),
    }


def spread(model):
    """Gives the policy means that differ visibly."""
    kernel = model.locator.mean_layer.kernel
    kernel.assign(tf.random.stateless_normal(kernel.shape, [1, 2]))
    return model


@pytest.mark.parametrize("context", [True, False])
def test_each_sample_of_each_image_has_its_looks_and_an_answer(context):
    looks = make(context=context)(batch(), SEED, samples=2)
    assert looks.location.shape == (2 * B, T, 2)
    assert looks.aiming.shape == (2 * B, T, N)
    assert looks.logits.shape == (2 * B, 55)
    np.testing.assert_array_equal(looks.drawn, np.ones([2 * B, T]))


def test_the_context_aims_the_first_glimpse():
    first = spread(make())(batch(), SEED, sample=False).location[:, 0].numpy()
    assert np.ptp(first, axis=0).min() > 0.0
    without = spread(make(context=False))(batch(), SEED, sample=False).location[:, 0].numpy()
    np.testing.assert_array_equal(without, np.tile(without[:1], [B, 1]))


def test_the_answer_sees_nothing_of_the_context():
    model = make(locations="oracle")
    before = model(batch(), SEED)
    for weight in model.context_network.weights:
        weight.assign(weight + 1.0)
    after = model(batch(), SEED)
    assert np.any(before.aiming != after.aiming)
    np.testing.assert_array_equal(before.logits, after.logits)


def test_without_context_there_are_no_weights_for_it():
    assert make(context=False).context_network is None
    assert len(make().weights) == len(make(context=False).weights) + 8


def test_rewards_teach_what_aims_and_likelihood_teaches_what_answers():
    model = spread(make(baseline="none", reward="log_lik"))
    own = {id(variable) for variable in model.separately_clipped}
    layers = model.saved_layers()
    aims = [v for name in ("locator", "upper", "context_network") for v in layers[name].weights]
    assert own == {id(v) for v in aims}

    def gradients(weight):
        untold = spread(make(baseline="none", reward="log_lik", reward_weight=weight))
        untold.set_weights(model.get_weights())
        with tf.GradientTape() as tape:
            loss, _ = terms_of(untold, batch())
        return tape.gradient(loss, untold.trainable_variables)

    for variable, told, untold in zip(
        model.trainable_variables, gradients(1.0), gradients(0.0), strict=True
    ):
        if id(variable) in own:
            assert np.any(told) and not np.any(untold), variable.path
        else:
            np.testing.assert_allclose(told, untold, rtol=1e-4, atol=1e-7)


def test_a_few_steps_lower_the_loss():
    assert_learns(make(), batch())
