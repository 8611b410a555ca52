"""Risk against coverage, and the confidence that it is measured of."""

import numpy as np
import pytest

from training.evaluation.confidence import cross_validated, enough, judge

RNG = np.random.default_rng(0)


def test_wrong_captions_go_with_the_least_sure():
    chances = np.linspace(0, 1, 400)
    right = np.arange(400) >= 100  # the least sure quarter is wrong
    scores, details = judge(chances, right)
    assert scores["errors_unanswered"].difference == 100
    assert scores["captions_right"].difference == scores["captions_right"][0] == 75
    assert scores["confidence_auroc"].difference == 100
    assert details["errors_unanswered_most"] == 100
    assert details["risk"][0] == [100, 25.0] and details["risk"][3] == [70, 0.0]
    scores, details = judge(chances[::-1], right)
    assert scores["errors_unanswered"].difference == 0
    # With more wrong captions than are left out, some stay.
    scores, details = judge(chances, np.arange(400) >= 240)
    assert scores["errors_unanswered"].difference == details["errors_unanswered_most"] == 50
    low, high = scores["errors_unanswered"][1:]
    assert low < 50 < high


def test_chances_of_captions_that_fitted_nothing_are_calibrated():
    evidence = np.column_stack([RNG.normal(-9, 3, 2000), *RNG.uniform(0.1, 1, [3, 2000])])
    right = RNG.random(2000) < 1 / (1 + np.exp(-(4 + 0.5 * evidence[:, 0])))
    scores, _ = judge(cross_validated(evidence, right), right)
    assert scores["confidence_error"].difference < 5
    noise, _ = judge(cross_validated(evidence, RNG.random(2000) < 0.3), right)
    assert noise["confidence_auroc"].difference == pytest.approx(50, abs=35)


def test_few_captions_fit_nothing():
    assert enough(np.arange(30) < 5)
    assert not enough(np.arange(29) < 5) and not enough(np.arange(99) < 4)
