"""Bootstrap confidence intervals of scores over the choice of images."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

FEW = 30
"""Fewer images, of those with a measurement, give no interval: their resamples say
too little of other images."""
SMALL = 250
"""Sets of fewer images get BCa intervals; from here on percentile intervals cover as well."""
VARIED = 5
"""Means get no interval if fewer images differ from the most common value."""

LEVEL = 0.95
"""Nominal coverage."""
SAMPLES = 1000
"""Resamples; the same number of images gives the same draws."""
_CHUNK = 100  # resamples per matrix of weights, which bounds the memory

Statistic = Callable[[np.ndarray], np.ndarray]


class Interval(NamedTuple):
    """Score, or difference of scores, on the images themselves, with its confidence interval."""

    difference: float
    low: float
    high: float


UNDEFINED = Interval(math.nan, math.nan, math.nan)
"""The interval of an undefined score."""


def resampled_means(sums: np.ndarray, sizes: np.ndarray) -> Interval:
    """Computes the interval of a mean over the phrases of all images.

    The estimate is `sum_n sums_n / sum_n sizes_n`; images that have phrases are drawn with
    replacement. Without phrases at all, all three numbers are NaN; if fewer than `VARIED` images
    differ from the others, the interval is: their resamples say too little of rare values.
    """
    measured = sizes > 0
    sums, sizes = sums[measured], sizes[measured]
    if not len(sums):
        return UNDEFINED
    found = interval_over_images(lambda weights: (weights @ sums) / (weights @ sizes), len(sums))
    _, alike = np.unique(np.round(sums / sizes, 9), return_counts=True)
    if len(sums) - alike.max() < VARIED:
        return Interval(found.difference, math.nan, math.nan)
    return found


def interval_over_images(statistic: Statistic, count: int) -> Interval:
    """Computes the interval of any statistic of images.

    Args:
        statistic: Maps weights `[S, N]`, how often each image counts, to values `[S]`; NaN for a
            draw that says nothing, which then does not count.
        count: Number of images, N.
    """
    estimate = float(statistic(np.ones((1, count)))[0])
    if count < FEW:
        return Interval(estimate, math.nan, math.nan)
    values = np.concatenate([statistic(weights) for weights in resamples(count)])
    values = values[~np.isnan(values)]
    shares = np.array([(1.0 - LEVEL) / 2.0, (1.0 + LEVEL) / 2.0])
    if count < SMALL:
        without = statistic(1.0 - np.eye(count))
        shares = _bca_shares(shares, values, estimate, without[~np.isnan(without)])
    low, high = np.quantile(values, shares)
    return Interval(estimate, float(low), float(high))


def _bca_shares(
    shares: np.ndarray, values: np.ndarray, estimate: float, without: np.ndarray
) -> list[float]:
    """Moves shares to Phi(z0 + (z0 + z) / (1 - a (z0 + z))), with a from the jackknife."""
    normal = NormalDist()
    below = (np.mean(values < estimate) + np.mean(values <= estimate)) / 2.0
    edge = 0.5 / len(values)
    bias = normal.inv_cdf(float(np.clip(below, edge, 1.0 - edge)))
    influence = without.mean() - without if len(without) else without
    spread = np.sum(influence**2) ** 1.5
    acceleration = np.sum(influence**3) / (6.0 * spread) if spread > 0.0 else 0.0
    moved = (bias + normal.inv_cdf(float(share)) for share in shares)
    return [normal.cdf(bias + z / (1.0 - acceleration * z)) for z in moved]


def resamples(count: int) -> Iterator[np.ndarray]:
    """Yields how often each image is drawn, `[_CHUNK, count]` at a time."""
    rng, shape = np.random.default_rng(0), (_CHUNK, count)
    for _ in range(SAMPLES // _CHUNK):
        drawn = rng.integers(count, size=shape) + count * np.arange(_CHUNK)[:, None]
        yield np.bincount(drawn.ravel(), minlength=drawn.size).reshape(shape).astype(float)


def few_images_note(count: int) -> list[str]:
    """Returns a caveat on so few images; none from `FEW` on."""
    if count >= FEW:
        return []
    return [
        f"Intervals are left out: they need {FEW} images, and got {count}. CIDEr takes the weights "
        "of words from these few images."
    ]
