"""The common part of RAM and DRAM: locations of the glimpses, scores, drawings."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from sat_tf.digits.config import RAMConfig
from tests.sat_tf.digits.digit_terms import SEED, assert_learns
from tests.sat_tf.digits.small_ram import B, T, batch, losses, make


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


def test_what_glimpses_see_is_the_image_about_their_locations():
    model = make(glimpse_size=2, scales=1)
    image = np.arange(28 * 28, dtype=np.float32).reshape(1, 28, 28, 1)
    # Between pixels 13 and 14, and on the border, beyond which all is zero.
    seen = model.seen(image, tf.constant([[[0.0, 0.0], [1.0, 0.0]]])).numpy()[0, ..., 0]
    np.testing.assert_allclose(seen[0], image[0, 13:15, 13:15, 0], rtol=1e-5)
    edge = image[0, 13:15, 26:, 0]
    wanted = np.stack([edge.mean(axis=1), edge[:, 1] / 2], axis=1)
    np.testing.assert_allclose(seen[1], wanted, rtol=1e-5)


@pytest.mark.parametrize("locations", ["random", "oracle"])
def test_locations_that_are_given_teach_the_policy_nothing(locations):
    model = make(locations=locations, baseline="none")
    looks = model(batch(), SEED)
    np.testing.assert_array_equal(looks.drawn, np.zeros([B, T]))
    _, _, gradients = losses(model)
    policy = [g for name, g in gradients.items() if "locator" in name]
    assert len(policy) == 4 and not any(np.any(g) for g in policy)
    assert any(np.any(g) for name, g in gradients.items() if "glimpse" in name)


def test_random_locations_are_spread_over_the_image():
    looks = make(locations="random")(batch(50), SEED)
    assert np.abs(np.mean(looks.location)) < 0.1
    np.testing.assert_allclose(np.std(looks.location), np.sqrt(1 / 3), rtol=0.1)


def test_oracle_locations_are_at_the_digit_then_around_it():
    data = batch(image_size=60)
    looks = make(locations="oracle", image_size=60)(data, SEED)
    np.testing.assert_allclose(looks.location[:, 0], data["centres"][:, 0], atol=1e-6)
    inside = np.abs(data["centres"][:, 0]).max(axis=-1) < 0.7
    distance = np.linalg.norm(looks.location - data["centres"], axis=-1) * 59 / 2
    np.testing.assert_allclose(distance[inside], [[0.0, 6.0, 6.0]] * inside.sum(), atol=1e-3)


def test_a_warm_up_looks_anywhere_less_and_less_often():
    model = make(random_steps=10)
    shares = []
    for step in (0, 5, 10, 20):
        share = model.objective.random_share(tf.constant(step))
        looks = model(batch(400), SEED, random_share=share)
        shares.append(1.0 - np.mean(looks.drawn[:, 1:]))
    np.testing.assert_allclose(shares, [1.0, 0.5, 0.0, 0.0], atol=0.08)


def test_the_number_of_glimpses_needs_no_weights():
    few, many = make(glimpses=2), make(glimpses=5)
    assert [w.shape for w in few.weights] == [w.shape for w in many.weights]


def test_scores_give_errors_at_mean_and_at_sampled_locations():
    model = make(std=1.0)
    scores = model.scores(batch(200), SEED)
    assert set(scores) == {"error", "error_sampled", "nll"}
    for name in ("error", "error_sampled"):
        assert set(np.unique(scores[name].values)) <= {0.0, 100.0}
    assert np.any(scores["error"].values != scores["error_sampled"].values)


def test_figures_show_the_path():
    (drawn, _) = make().figures(batch(2), SEED)
    assert drawn.dtype == np.uint8 and drawn.ndim == 3


@pytest.mark.parametrize("core", ["relu", "lstm"])
def test_a_few_steps_lower_the_loss(core):
    assert_learns(make(core=core), batch())


def test_leave_one_out_needs_two_samples():
    with pytest.raises(ValueError, match="`--model.samples` of at least 2"):
        RAMConfig(baseline="leave_one_out", samples=1)
