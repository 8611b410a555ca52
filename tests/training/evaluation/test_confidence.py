"""Calibration by hand, risk against coverage, and the confidence that a run learns from dev."""

from types import SimpleNamespace

import numpy as np
import pytest

from sat_tf.config import SearchConfig
from sat_tf.inference.captions import Caption
from sat_tf.inference.confidence import Confidence, Limits
from training.evaluation.confidence import (
    WordConfidence,
    calibration_error,
    cross_validated,
    fit_confidence,
    judge,
    no_confidence,
    reliability,
    weigh,
)

RNG = np.random.default_rng(0)


def words(confidence, right, image=None) -> WordConfidence:
    image = np.arange(len(confidence)) if image is None else np.array(image)
    return WordConfidence(np.array(confidence), np.array(right, bool), image)


# Two bins: (.2, .4; one of two right) and (.6, .8, 1.; two of three right).
BY_HAND = words([0.2, 0.4, 0.6, 0.8, 1.0], [0, 1, 1, 0, 1], [7, 7, 8, 8, 9])


def test_words_are_counted_in_bins_closed_above():
    found = reliability(BY_HAND, bins=2)
    np.testing.assert_array_equal(found["words"], [2, 3])
    np.testing.assert_allclose(found["confidence"], [30.0, 80.0])
    np.testing.assert_allclose(found["accuracy"], [50.0, 200.0 / 3.0])
    edges = reliability(words([0.0, 0.5, 1.0], [0, 0, 1]), bins=4)
    np.testing.assert_array_equal(edges["words"], [1, 1, 0, 1])
    assert np.isnan(edges["accuracy"][2])


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


def test_wrong_captions_go_with_the_least_sure():
    chances = np.linspace(0, 1, 400)
    scores, details = judge(chances, np.arange(400) >= 100)  # the least sure quarter is wrong
    assert scores["captions_right"].difference == 75
    assert details["risk"][0] == [100, 25.0] and details["risk"][3] == [70, 0.0]


def test_chances_of_captions_that_fitted_nothing_are_calibrated():
    evidence = np.column_stack([RNG.normal(-9, 3, 2000), *RNG.uniform(0.1, 1, [3, 2000])])
    right = RNG.random(2000) < 1 / (1 + np.exp(-(4 + 0.5 * evidence[:, 0])))
    scores, _ = judge(cross_validated(evidence, right), right)
    assert scores["confidence_error"].difference < 5


def caption(log_prob: float) -> Caption:
    return Caption(
        *("a dog", ("a", "dog"), log_prob / 2, log_prob, np.zeros(2), None, None),
        alternatives=(("a cat", log_prob / 2 - 0.5),),
        tokens=(4, 5, 2),
        familiarity=0.5,
    )


def test_confidence_is_learned_from_dev_and_judged_by_captions_that_did_not_fit_it(tmp_path):
    log_probs = RNG.normal(-9, 3, 500)
    right = RNG.random(500) < 1 / (1 + np.exp(-(6 + 0.7 * log_probs)))
    captions, search = [caption(float(value)) for value in log_probs], SearchConfig()
    words = SimpleNamespace(language="en-GB")
    captioner = SimpleNamespace(
        weights_sha256="mine", limits=Limits(), path=tmp_path, vocabulary=words
    )
    assert "it takes 30, 5 of them right" in no_confidence("en", captions[:20], right[:20])
    assert "in English only" in no_confidence("de", captions, right)
    assert weigh(captioner, search, "dev", captions, right) == (captions, {}, {}, [])
    told, scores, details, _ = weigh(captioner, search, "dev", captions, right, learn=True)
    found = captioner.limits.confidence
    assert Confidence.read(tmp_path / "confidence.json", ["mine"]) == found and found.fits(search)
    assert details["cross_validated"] and scores["confidence_error"].difference < 8
    assert found.figures["captions_right"][0] == round(scores["captions_right"].difference, 2)
    details = weigh(captioner, search, "test", told, right)[2]
    assert not details["cross_validated"]
    # Another search's captions have none.
    others = captioner.limits.weighed(captions, SearchConfig(beam=2))
    assert weigh(captioner, search, "test", others, right) == (others, {}, {}, [])
    # An image without a caption spoils nothing.
    none = fit_confidence(
        np.array([[-1e9, 0, 0, 0.5], *[[x, 2, 0, 0.5] for x in log_probs]]),
        np.array([False, *right]),
    )
    assert none.slopes[0] > 0.01
