"""Calibration against values computed by hand."""

import numpy as np
import pytest

from training.evaluation.confidence import (
    WordConfidence,
    calibration_error,
    confidence_auroc,
    reliability,
)


def words(confidence, right, image=None) -> WordConfidence:
    image = np.arange(len(confidence)) if image is None else np.array(image)
    return WordConfidence(np.array(confidence), np.array(right, bool), image)


# Two bins: (.2, .4; one of two right) and (.6, .8, 1.; two of three right).
BY_HAND = words([0.2, 0.4, 0.6, 0.8, 1.0], [0, 1, 1, 0, 1], [7, 7, 8, 8, 9])


def test_words_are_counted_in_bins_closed_above():
    found = reliability(BY_HAND, bins=2)
    np.testing.assert_array_equal(found.words, [2, 3])
    np.testing.assert_allclose(found.confidence, [30.0, 80.0])
    np.testing.assert_allclose(found.accuracy, [50.0, 200.0 / 3.0])
    edges = reliability(words([0.0, 0.5, 1.0], [0, 0, 1]), bins=4)
    np.testing.assert_array_equal(edges.words, [1, 1, 0, 1])
    assert np.isnan(edges.accuracy[2])


def test_the_error_is_the_mean_gap_over_the_words():
    # 2/5 |.5 - .3| + 3/5 |2/3 - .8|
    found = calibration_error(BY_HAND, bins=2)
    assert found.difference == pytest.approx(100 * (0.4 * 0.2 + 0.6 * (0.8 - 2 / 3)))
    assert np.isnan(found.low) and np.isnan(found.high)  # of three images


def test_calibrated_words_have_a_small_error_and_confident_ones_a_large_one():
    rng = np.random.default_rng(0)
    confidence = rng.uniform(size=20_000)
    right = rng.uniform(size=20_000) < confidence
    image = np.arange(20_000) // 20
    assert calibration_error(words(confidence, right, image)).high < 2.5
    # Right in p of the cases, said to be right in sqrt(p): off by 2/3 - 1/2 on average.
    found = calibration_error(words(np.sqrt(confidence), right, image))
    assert found.low < 100 / 6 < found.high


def test_auroc_is_the_share_of_pairs_in_order():
    # Right .4 .6 1., wrong .2 .8: four of six pairs in order.
    assert confidence_auroc(BY_HAND).difference == pytest.approx(100 * 4 / 6)
    tied = words([0.5, 0.5, 0.9], [1, 0, 1])
    assert confidence_auroc(tied).difference == pytest.approx(75.0)
    assert confidence_auroc(words([0.5, 0.6], [1, 1])) is None


def test_the_interval_of_auroc_needs_wrong_words_in_enough_images():
    rights = np.arange(60)
    for wrong, given in ((29, False), (30, True)):
        confidence = np.random.default_rng(0).normal(np.r_[np.zeros(wrong), np.ones(60)])
        found = words(confidence, [0] * wrong + [1] * 60, [*range(wrong), *rights])
        assert np.isfinite(confidence_auroc(found).low) == given
    # Draws without a pair to compare say nothing.
    found = words([*np.linspace(0.1, 0.2, 30), 0.9], [0] * 30 + [1], [*range(30), 0])
    assert confidence_auroc(found).difference == 100.0


@pytest.mark.parametrize(
    ("images", "too_confident"), [(100, 0.0), (100, 0.02), (300, 0.005), (300, 0.15)]
)
def test_intervals_of_the_error_hold_the_truth_as_often_as_they_say(images, too_confident):
    def draw(rng, images):
        confidence = rng.beta(2, 1.2, 11 * images)
        return confidence, np.clip(confidence - too_confident, 0, 1)

    confidence, chance = draw(np.random.default_rng(1), 100_000)
    bins = np.ceil(confidence * 15).astype(int)
    truth = 100 * np.abs(np.bincount(bins, chance - confidence)).sum() / len(bins)
    held = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        confidence, chance = draw(rng, images)
        right = rng.random(len(chance)) < chance
        found = calibration_error(words(confidence, right, np.arange(len(right)) // 11))
        assert found.low <= found.difference <= found.high
        held += found.low <= truth <= found.high
    assert held >= 55  # 57 of 60 are 95 %
