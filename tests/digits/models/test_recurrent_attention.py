"""RAM and DRAM: where they look, what each term of the loss teaches, the loss by hand."""

import numpy as np
import pytest
import tensorflow as tf

from digits.models.config import DRAMConfig
from digits.models.recurrent_attention import DRAM
from tests.digits.models.small_models import (
    SEED,
    B,
    T,
    batch,
    losses,
    make,
    spread,
    terms_of,
)


def test_the_first_glimpse_is_in_the_middle_and_the_others_are_the_policys():
    looks = make()(batch(), SEED)
    assert looks.location.shape == (B, T, 2)
    np.testing.assert_array_equal(looks.location[:, 0], np.zeros([B, 2]))
    np.testing.assert_array_equal(looks.drawn, np.tile([0.0, 1.0, 1.0], [B, 1]))
    assert np.abs(looks.location[:, 1:]).min() > 0.0


def test_the_first_glimpse_may_be_random_or_learned():
    looks = make(first_location="random")(batch(), SEED)
    assert np.ptp(looks.location[:, 0]) > 0.5
    np.testing.assert_array_equal(looks.drawn[:, 0], np.zeros(B))
    looks = make(first_location="learned")(batch(), SEED)
    np.testing.assert_array_equal(looks.drawn, np.ones([B, T]))


def test_mean_locations_do_not_depend_on_the_seed_and_samples_do():
    model = make()

    def locations(seed, sample):
        return model(batch(), tf.constant(seed), sample=sample).location.numpy()

    np.testing.assert_array_equal(locations([0, 1], False), locations([0, 2], False))
    np.testing.assert_array_equal(locations([0, 1], True), locations([0, 1], True))
    assert np.any(locations([0, 1], True) != locations([0, 2], True))
    assert np.any(locations([0, 1], True) != locations([0, 1], False))


def test_samples_share_an_image_and_differ_in_locations():
    looks = make()(batch(), SEED, samples=2)
    assert looks.logits.shape == (2 * B, 10)
    # After the first glimpse, which all take in the middle, and after their own.
    aiming = looks.aiming.numpy().reshape(B, 2, T, -1)
    np.testing.assert_allclose(aiming[:, 0, 1], aiming[:, 1, 1], rtol=1e-5)
    assert np.all(np.any(aiming[:, 0, 2] != aiming[:, 1, 2], axis=-1))
    assert np.all(np.any(aiming[1:, 0, 1] != aiming[:-1, 0, 1], axis=-1))


@pytest.mark.parametrize("locations", ["random", "oracle"])
def test_locations_that_are_given_teach_the_policy_nothing(locations):
    model = make(locations=locations, baseline="none")
    looks = model(batch(), SEED)
    np.testing.assert_array_equal(looks.drawn, np.zeros([B, T]))
    _, _, gradients = losses(model)
    policy = [g for name, g in gradients.items() if "locator" in name]
    assert len(policy) == 4 and not any(np.any(g) for g in policy)
    assert any(np.any(g) for name, g in gradients.items() if "glimpse" in name)


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


def make_dram(**settings):
    sizes = {"glimpse_filters": 2, "context_filters": 2, "glimpse_dim": 8, "hidden_dim": 6}
    sizes |= {"glimpses": T, "glimpse_size": 4, "scales": 2, "location_hidden_dim": 8}
    return spread(DRAM(DRAMConfig(**sizes | settings), image_size=24, classes=55))


def dram_batch():
    return batch(image_size=24)


def test_the_context_aims_the_first_glimpse():
    first = make_dram()(dram_batch(), SEED, sample=False).location[:, 0].numpy()
    assert np.ptp(first, axis=0).min() > 0.0
    without = make_dram(context=False)(dram_batch(), SEED, sample=False).location[:, 0].numpy()
    np.testing.assert_array_equal(without, np.tile(without[:1], [B, 1]))


def test_the_answer_sees_nothing_of_the_context():
    model = make_dram(locations="oracle")
    before = model(dram_batch(), SEED)
    for weight in model.context_network.weights:
        weight.assign(weight + 1.0)
    after = model(dram_batch(), SEED)
    assert np.any(before.aiming != after.aiming)
    np.testing.assert_array_equal(before.logits, after.logits)


def test_rewards_teach_what_aims_and_likelihood_teaches_what_answers():
    model = make_dram(baseline="none", reward="log_lik")
    own = {id(variable) for variable in model.separately_clipped}
    layers = model.saved_layers()
    aims = [v for name in ("locator", "upper", "context_network") for v in layers[name].weights]
    assert own == {id(v) for v in aims}

    def gradients(weight):
        untold = make_dram(baseline="none", reward="log_lik", reward_weight=weight)
        untold.set_weights(model.get_weights())
        with tf.GradientTape() as tape:
            loss, _ = terms_of(untold, dram_batch())
        return tape.gradient(loss, untold.trainable_variables)

    for variable, told, untold in zip(
        model.trainable_variables, gradients(1.0), gradients(0.0), strict=True
    ):
        if id(variable) in own:
            assert np.any(told) and not np.any(untold), variable.path
        else:
            np.testing.assert_allclose(told, untold, rtol=1e-4, atol=1e-7)
