"""Intervals: the estimate, its spread, coverage, and pairing."""

import numpy as np
import pytest

from training.evaluation.bootstrap import FEW, SAMPLES, SMALL, VARIED, resampled_means
from training.evaluation.scores import CaptionScores, bleu_scores, paired_over_seeds, score_interval


def made_up(count=200, quality=0.5):
    """Scores of a system which finds each n-gram with probability `quality ** n`."""
    rng = np.random.default_rng(0)
    length = rng.integers(5, 15, count)
    guess = np.maximum(0, length[:, None] - np.arange(4))
    correct = rng.binomial(guess, quality ** np.arange(1, 5))
    statistics = np.column_stack([correct, guess, length, rng.integers(6, 16, count)])
    per_image = bleu_scores(statistics) | {"cider": rng.normal(50, 20, count)}
    scores = {name: float(v) for name, v in bleu_scores(statistics.sum(0)).items()}
    scores["cider"] = float(per_image["cider"].mean())
    return CaptionScores(scores, tuple(map(str, range(count))), per_image, statistics, "simple")


def test_bleu_is_resampled_as_a_corpus():
    scores = made_up(count=SMALL)
    rng = np.random.default_rng(0)
    drawn = rng.integers(SMALL, size=(SAMPLES, SMALL))
    expected = [float(bleu_scores(scores.bleu[chosen].sum(0))["bleu_4"]) for chosen in drawn]
    low, high = np.quantile(expected, [0.025, 0.975])
    interval = score_interval(scores, "bleu_4")
    assert (interval.low, interval.high) == pytest.approx((low, high))


def test_a_difference_is_a_minus_b_and_none_from_itself():
    better, worse = made_up(quality=0.6), made_up(quality=0.4)
    assert paired_over_seeds([better], [better], "bleu_4") == (0.0, 0.0, 0.0)
    interval = paired_over_seeds([better], [worse], "bleu_4")
    assert 0 < interval.low < interval.difference < interval.high
    expected = better.scores["bleu_4"] - worse.scores["bleu_4"]
    assert interval.difference == pytest.approx(expected)


def test_means_over_what_images_hold_count_by_how_much_that_is():
    rng = np.random.default_rng(0)
    sizes = rng.integers(0, 6, 300)
    a, b = rng.normal(60, 20, 300), rng.normal(50, 20, 300)
    found = resampled_means(sizes * (a - b), sizes)
    assert found.difference == pytest.approx(sizes @ (a - b) / sizes.sum())
    # The spread of a ratio of sums over images, by linearisation.
    errors = sizes * (a - b - found.difference) / sizes.mean()
    theory = 2 * 1.96 * errors.std() / np.sqrt(300)
    assert found.high - found.low == pytest.approx(theory, rel=0.1)
    assert np.isnan(resampled_means(0 * a, 0 * sizes)).all()  # nothing was measured
    flat = resampled_means(a - b, np.ones(300))
    assert flat.difference == pytest.approx((a - b).mean())


def test_only_images_in_which_something_was_measured_count():
    """And those that differ: without, the interval of a rare hit is of no width."""
    rng = np.random.default_rng(0)
    for measured, given in ((FEW - 1, False), (FEW, True)):
        sizes = np.r_[np.ones(measured), np.zeros(1000)]
        found = resampled_means(sizes * rng.normal(size=len(sizes)), sizes)
        assert np.isfinite(found.difference) and np.isfinite(found.low) == given
    for hits, given in ((0, False), (VARIED - 1, False), (VARIED, True)):
        for values in (np.arange(100) < hits, np.arange(100) >= hits):
            found = resampled_means(values.astype(float), np.ones(100))
            assert found.difference == values.mean() and np.isfinite(found.low) == given


@pytest.mark.parametrize(("images", "share"), [(30, 0.3), (100, 0.05), (100, 0.5), (400, 0.02)])
def test_intervals_of_a_share_hold_it_as_often_as_they_say(images, share):
    rng, held = np.random.default_rng(0), []
    for _ in range(150):
        found = resampled_means(rng.binomial(2, share, images) / 2.0, np.ones(images))
        held += [found.low <= share <= found.high] if np.isfinite(found.low) else []
    assert len(held) > 100 and np.mean(held) >= 0.91


def test_an_undefined_score_has_no_interval_and_no_difference():
    scores, other = made_up(quality=0.0), made_up()
    assert np.isnan(score_interval(scores, "bleu_4")).all()
    assert np.isnan(paired_over_seeds([other, scores], [other, other], "bleu_4")).all()
    assert not np.isnan(paired_over_seeds([scores], [other], "cider")).any()


def test_draws_without_a_match_count_as_zero():
    one = np.zeros((300, 10))
    one[:, 4:] = [8, 7, 6, 5, 8, 8]
    one[0, :4] = [8, 7, 6, 5]  # about a third of the draws lack this image
    scores = {name: float(v) for name, v in bleu_scores(one.sum(0)).items()}
    ids = tuple(map(str, range(300)))
    interval = score_interval(CaptionScores(scores, ids, bleu_scores(one), one, "simple"), "bleu_4")
    assert interval.low == 0 < interval.difference < interval.high
