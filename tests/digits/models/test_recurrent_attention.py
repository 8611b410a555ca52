"""RAM and DRAM: where they look, what each term of the loss teaches, the loss by hand."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from digits.config import DRAMConfig
from digits.models.recurrent_attention import DRAM, LearnedBaseline
from tests.digits.models.small_models import SEED, SIZE, B, T, batch, make, spread, terms_of


def test_the_first_glimpse_may_be_random_and_the_others_are_the_policys():
    looks = make(first_location="random")(batch()["images"], SEED)
    assert looks.location.shape == (B, T, 2) and np.ptp(looks.location[:, 0]) > 0.5
    np.testing.assert_array_equal(looks.drawn, np.tile([0.0, 1.0, 1.0], [B, 1]))
    np.testing.assert_array_equal(make()(batch()["images"], SEED).drawn, np.ones([B, T]))


def test_mean_locations_do_not_depend_on_the_seed_and_samples_do():
    model = make()

    def locations(seed, sample):
        return model(batch()["images"], tf.constant(seed), sample=sample).location.numpy()

    np.testing.assert_array_equal(locations([0, 1], False), locations([0, 2], False))
    np.testing.assert_array_equal(locations([0, 1], True), locations([0, 1], True))
    assert np.any(locations([0, 1], True) != locations([0, 2], True))
    assert np.any(locations([0, 1], True) != locations([0, 1], False))


def test_random_locations_of_the_warm_up_teach_the_policy_nothing():
    model = make(random_steps=10)
    model.compile(keras.optimizers.SGD())
    with tf.GradientTape() as tape:
        loss, _ = terms_of(model, batch())
    layers = model.locator, model.glimpse_network
    policy, seen = tape.gradient(loss, [layer.trainable_variables for layer in layers])
    assert len(policy) == 4 and not any(np.any(g) for g in policy)
    assert any(np.any(g) for g in seen)


def half_right(model, data):
    """The batch with labels; every other one is the model's answer."""
    logits = model(data["images"], SEED).logits.numpy()
    labels = (logits.argmax(axis=-1) + [0, 1, 0, 1]) % logits.shape[-1]
    return data | {"labels": tf.constant(labels, tf.int32)}


def test_the_loss_is_the_estimators_by_hand():
    model = make(aim_weight=0.7)
    values = model.baseline.output_layer.kernel
    values.assign(tf.random.stateless_normal(values.shape, [1, 2]))
    data = half_right(model, batch())
    loss, logs = terms_of(model, data)
    looks, labels = model(data["images"], SEED), data["labels"].numpy()
    log_lik = tf.nn.log_softmax(looks.logits).numpy()[np.arange(B), labels]
    correct = np.array([1.0, 0.0, 1.0, 0.0])
    drawn, value = looks.drawn.numpy(), model.baseline(looks.aiming).numpy()
    advantage = correct[:, np.newaxis] - value
    reinforced = (drawn * advantage * looks.log_prob.numpy()).sum(axis=1).mean()
    error = (drawn * advantage**2).sum(axis=1).mean()
    means = model.locator(tf.reshape(looks.aiming, [-1, 12])).mean.numpy().reshape(B, T, 2)
    squares = (np.arctanh(means) ** 2).sum((1, 2)).mean()
    expected = -log_lik.mean() - reinforced + error + 0.7 * squares
    np.testing.assert_allclose(logs["aim_penalty"], squares, rtol=1e-5)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    np.testing.assert_allclose(logs["nll"], -log_lik.mean(), rtol=1e-5)
    np.testing.assert_allclose(logs["reward"], correct.mean())
    assert set(logs) == set(model.objective.log_names)


def make_dram(**settings):
    sizes = {"glimpse_filters": 2, "context_filters": 2, "glimpse_dim": 8, "hidden_dim": 6}
    sizes |= {"glimpses": T, "glimpse_size": 4, "scales": 2, "location_hidden_dim": 8}
    return spread(DRAM(DRAMConfig(**sizes | settings), image_size=24, classes=55))


def dram_images():
    return batch(image_size=24)["images"]


def test_the_context_aims_the_first_glimpse():
    first = make_dram()(dram_images(), SEED, sample=False).location[:, 0].numpy()
    assert np.ptp(first, axis=0).min() > 0.0
    without = make_dram(context=False)(dram_images(), SEED, sample=False).location[:, 0].numpy()
    np.testing.assert_array_equal(without, np.tile(without[:1], [B, 1]))


def test_the_answer_sees_nothing_of_the_context():
    model = make_dram()
    before = model(dram_images(), SEED, random_share=1.0)
    for weight in model.context_network.weights:
        weight.assign(weight + 1.0)
    after = model(dram_images(), SEED, random_share=1.0)
    assert np.any(before.aiming != after.aiming)
    np.testing.assert_array_equal(before.logits, after.logits)


@pytest.mark.parametrize(
    ("make", "image_size", "aims"),
    [(make, SIZE, ()), (make_dram, 24, ("upper", "context_network"))],
    ids=["RAM", "DRAM"],
)
def test_rewards_teach_what_aims_and_likelihood_teaches_what_answers(make, image_size, aims):
    model = make()
    data, layers = half_right(model, batch(image_size=image_size)), model.saved_layers()
    own, values = (
        {id(weight) for name in names for weight in layers[name].weights}
        for names in (("locator", *aims), ("baseline",))
    )
    assert {id(variable) for variable in model.separately_clipped} == own | values

    def gradients(weight):
        estimator = model.objective.estimator
        model.objective.estimator = dataclasses.replace(estimator, reward_weight=weight)
        with tf.GradientTape() as tape:
            loss, _ = terms_of(model, data)
        return tape.gradient(loss, model.trainable_variables)

    for variable, told, untold in zip(
        model.trainable_variables, gradients(1.0), gradients(0.0), strict=True
    ):
        if id(variable) in own:
            assert np.any(told) and not np.any(untold), variable.path
        elif id(variable) not in values:
            np.testing.assert_allclose(told, untold, rtol=1e-4, atol=1e-7)


def test_the_learned_baseline_starts_at_nought_and_gives_the_state_no_gradient():
    baseline = LearnedBaseline(3)
    np.testing.assert_array_equal(baseline(tf.ones([2, 4, 3])), np.zeros([2, 4]))
    baseline.set_weights([np.ones(w.shape) for w in baseline.weights])
    hidden = tf.ones([2, 3])
    with tf.GradientTape() as tape:
        tape.watch(hidden)
        loss = tf.reduce_sum(baseline(hidden))
    gradients = tape.gradient(loss, [hidden, *baseline.trainable_variables])
    assert gradients[0] is None
    assert all(np.abs(gradient).max() > 0.0 for gradient in gradients[1:])
