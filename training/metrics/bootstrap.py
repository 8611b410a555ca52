"""Bootstrap confidence intervals of caption scores over the choice of images."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from sat_tf.errors import invalid_value
from training.metrics.captions import CaptionScores, bleu_scores
from training.metrics.meteor import meteor_scores

FEW = 30
"""Sets of fewer images get no interval: their resamples tell too little of other images."""
SMALL = 250
"""Sets of fewer images get BCa intervals; from here on percentile intervals cover as well."""

_REPORTED = ("bleu_4", "meteor", "cider")
_LEVEL = 0.95  # nominal coverage
_CHUNK = 100  # resamples per matrix of weights, which bounds the memory

Statistic = Callable[[np.ndarray], np.ndarray]


class Interval(NamedTuple):
    """Score, or difference of scores, with its confidence interval.

    Attributes:
        difference: Estimate on the images themselves (of `a - b` if paired).
        low: Lower end.
        high: Upper end.
    """

    difference: float
    low: float
    high: float


UNDEFINED = Interval(math.nan, math.nan, math.nan)
"""The interval of an undefined score."""


def bootstrap(a: CaptionScores, metric: str, samples: int = 1000, seed: int = 0) -> Interval:
    """Computes the 95 % interval of one system's score.

    Images are drawn with replacement and each draw is scored: BLEU and METEOR from summed
    statistics, other metrics as means over images, CIDEr with the document frequencies of the
    whole set. The ends are percentiles of these scores; for fewer than 250 images they are
    corrected for bias and skewness (BCa). Of nominal 95 % intervals of BLEU-4 on 100 made-up
    images (tests/training/metrics/test_bootstrap.py), 92 % covered the truth without the
    correction and 94 % with it.

    Args:
        a: Scores with their statistics.
        metric: Key of `a.per_image`.
        samples: Number of resamples, at least 1.
        seed: Seed of the draws; the same seed and number of images give the same draws.

    Returns:
        Estimate, low, high, on the scale of the metric; all NaN if the score is undefined, the ends
        if there are fewer than `FEW` images. A draw whose BLEU is undefined counts as 0, the limit
        of fewer and fewer matches.

    Raises:
        ValueError: Unknown metric, or arguments out of range.

    References:
        Koehn (2004), "Statistical Significance Tests for Machine Translation Evaluation"; Efron
        (1987), "Better Bootstrap Confidence Intervals".
    """
    if _undefined(a, metric):
        return UNDEFINED
    count = len(a.image_ids)
    order = np.arange(count)
    return interval_over_images(lambda w: _resampled(a, metric, order, w), count, samples, seed)


def intervals(a: CaptionScores) -> dict[str, Interval]:
    """Computes the intervals of a report: BLEU-4, METEOR and CIDEr, if scored."""
    return {metric: bootstrap(a, metric) for metric in _REPORTED if metric in a.scores}


def few_images_note(count: int) -> list[str]:
    """Returns a sentence on what so many images cannot tell; none from `FEW` on."""
    if count >= FEW:
        return []
    return [
        f"Intervals are left out: they need {FEW} images, and got {count}. CIDEr takes the weights "
        "of words from these few images."
    ]


def paired_over_seeds(
    a: Sequence[CaptionScores],
    b: Sequence[CaptionScores],
    metric: str,
    samples: int = 1000,
    seed: int = 0,
) -> Interval:
    """Computes the interval of the difference of two mean scores over runs of several seeds.

    All runs are scored on the same draws of images; the seeds themselves are not drawn. The
    difference is undefined, all NaN, if the score of one of the runs is.

    Args:
        a: Scores of each run of the first system.
        b: Scores of each run of the second.
        metric: See `bootstrap`, as for all else.
        samples: Number of resamples.
        seed: Seed of the draws.

    Raises:
        ValueError: As `bootstrap`, or systems scored on different images or in another
            language or by another tokeniser.
    """
    first = a[0]
    orders = [_order(first, one) for one in (*a, *b)]
    if any(_undefined(one, metric) for one in (*a, *b)):
        return UNDEFINED
    shares = [1 / len(a)] * len(a) + [-1 / len(b)] * len(b)

    def difference(weights: np.ndarray) -> np.ndarray:
        scored = zip((*a, *b), orders, shares, strict=True)
        return sum(share * _resampled(one, metric, order, weights) for one, order, share in scored)

    return interval_over_images(difference, len(first.image_ids), samples, seed)


def _undefined(one: CaptionScores, metric: str) -> bool:
    return math.isnan(one.scores.get(metric, 0.0))


def _order(a: CaptionScores, b: CaptionScores) -> np.ndarray:
    """Returns the place in `b` of each image of `a`."""
    if (a.tokeniser, a.signature) != (b.tokeniser, b.signature):
        wanted, got = (one.signature or one.tokeniser for one in (a, b))
        raise invalid_value("b", f"scores with the signature of `a` ({wanted})", got)
    if different := set(a.image_ids) ^ set(b.image_ids):
        got = f"{len(different)} images found in one only"
        raise invalid_value("b", "scores of the images of `a`", got)
    position = {image: n for n, image in enumerate(b.image_ids)}
    return np.array([position[image] for image in a.image_ids])


def resampled_means(
    sums: np.ndarray, sizes: np.ndarray, samples: int = 1000, seed: int = 0
) -> Interval:
    """Computes the interval of a mean over the phrases of all images.

    The estimate is `sum_n sums_n / sum_n sizes_n`; images are drawn with replacement, and draws
    without any phrase are left out. Without phrases at all, all three numbers are NaN.
    """

    def mean(weights: np.ndarray) -> np.ndarray:
        drawn = weights @ sizes
        return np.divide(weights @ sums, drawn, out=np.full(drawn.shape, np.nan), where=drawn > 0)

    if not np.any(sizes):
        return UNDEFINED
    return interval_over_images(mean, len(sums), samples, seed)


def _resampled(
    scores: CaptionScores, metric: str, order: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """Computes the metric `[S]` if image n counts `weights[s, n]` times."""
    if metric not in scores.per_image:
        raise invalid_value("metric", f"one of {', '.join(scores.per_image)}", repr(metric))
    if metric.startswith("bleu") or metric == "brevity_ratio":
        return np.nan_to_num(bleu_scores(weights @ scores.bleu[order])[metric])
    if metric == "meteor":
        return meteor_scores(weights @ scores.meteor[order], scores.tables)
    return weights @ scores.per_image[metric][order] / weights.sum(axis=1)


def interval_over_images(
    statistic: Statistic, count: int, samples: int = 1000, seed: int = 0
) -> Interval:
    """Computes the interval of any statistic of images.

    Args:
        statistic: Maps weights `[S, N]`, how often each image counts, to values `[S]`; NaN for a
            draw that says nothing, which then does not count.
        count: Number of images, N.
        samples: See `bootstrap`.
        seed: See `bootstrap`.
    """
    if samples < 1:
        raise invalid_value("samples", "a positive integer", samples)
    estimate = float(statistic(np.ones((1, count)))[0])
    if count < FEW:
        return Interval(estimate, math.nan, math.nan)
    values = np.concatenate([statistic(weights) for weights in _draws(count, samples, seed)])
    values = values[~np.isnan(values)]
    shares = np.array([(1.0 - _LEVEL) / 2.0, (1.0 + _LEVEL) / 2.0])
    if count < SMALL:
        without = statistic(1.0 - np.eye(count))
        shares = _bca_shares(shares, values, estimate, without[~np.isnan(without)])
    low, high = np.quantile(values, shares)
    return Interval(estimate, float(low), float(high))


def _bca_shares(
    shares: np.ndarray, values: np.ndarray, estimate: float, without: np.ndarray
) -> list[float]:
    """Corrects the shares of two percentiles for bias and skewness.

    Phi(z0 + (z0 + z) / (1 - a (z0 + z))), with z0 from the share of resamples below the estimate
    and the acceleration a from the jackknife.
    """
    normal = NormalDist()
    below = (np.mean(values < estimate) + np.mean(values <= estimate)) / 2.0
    edge = 0.5 / len(values)
    bias = normal.inv_cdf(float(np.clip(below, edge, 1.0 - edge)))
    influence = without.mean() - without if len(without) else without
    spread = np.sum(influence**2) ** 1.5
    acceleration = np.sum(influence**3) / (6.0 * spread) if spread > 0.0 else 0.0
    moved = (bias + normal.inv_cdf(float(share)) for share in shares)
    return [normal.cdf(bias + z / (1.0 - acceleration * z)) for z in moved]


def _draws(count: int, samples: int, seed: int) -> Iterator[np.ndarray]:
    """Yields how often each image was drawn, `[<= _CHUNK, count]` at a time."""
    rng = np.random.default_rng(seed)
    for start in range(0, samples, _CHUNK):
        size = min(_CHUNK, samples - start)
        drawn = rng.integers(count, size=(size, count)) + count * np.arange(size)[:, None]
        yield np.bincount(drawn.ravel(), minlength=size * count).reshape(size, count).astype(float)
