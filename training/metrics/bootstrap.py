"""Bootstrap intervals of caption scores: what another draw of images might have given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from training.metrics.captions import CaptionScores, bleu_scores
from training.metrics.meteor import meteor_scores

_REPORTED = ("bleu_4", "meteor", "cider")
_CHUNK = 100  # resamples held at once: 100 x N weights, whatever the number asked for


class Interval(NamedTuple):
    """A score, or a difference of scores, with its percentile interval.

    Attributes:
        difference: The estimate on the images as they are (of `a - b` when paired).
        low: Lower end.
        high: Upper end.
    """

    difference: float
    low: float
    high: float


def bootstrap(
    a: CaptionScores, metric: str, samples: int = 1000, seed: int = 0, level: float = 0.95
) -> Interval:
    """Interval of one system's score.

    Images are drawn with replacement and the score is computed again on each draw: BLEU and METEOR
    from summed statistics, the others as means over images. CIDEr's document frequencies stay those
    of the whole set.

    Args:
        a: Scores with their statistics.
        metric: A key of `a.scores`.
        samples: Resamples, at least 1.
        seed: Of the draws; the same seed and number of images give the same draws.
        level: Share of the resamples inside the interval, in (0, 1).

    Returns:
        Estimate, low, high, on the scale of the metric.

    Raises:
        ValueError: A metric these scores do not have, or arguments out of range.

    References:
        Koehn (2004), "Statistical Significance Tests for Machine Translation Evaluation".
    """
    count = len(a.image_ids)
    return _interval(
        lambda weights: _resampled(a, metric, None, weights), count, samples, seed, level
    )


def intervals(a: CaptionScores) -> dict[str, Interval]:
    """What reports give: the intervals of BLEU-4, METEOR and CIDEr, of those that were scored."""
    return {metric: bootstrap(a, metric) for metric in _REPORTED if metric in a.scores}


def paired_bootstrap(
    a: CaptionScores,
    b: CaptionScores,
    metric: str,
    samples: int = 1000,
    seed: int = 0,
    level: float = 0.95,
) -> Interval:
    """Interval of `a - b`: both systems are scored on the same draws of images.

    See `bootstrap` for the arguments and for what is computed on a draw.

    Raises:
        ValueError: As `bootstrap`, or systems scored on different images or with different
            tokenisers.
    """
    if a.tokeniser != b.tokeniser:
        raise ValueError(
            "Received an invalid value for argument `b`: expected scores from the tokeniser of "
            f"`a` ({a.tokeniser}), got {b.tokeniser}."
        )
    if set(a.image_ids) != set(b.image_ids):
        raise ValueError(
            "Received an invalid value for argument `b`: expected scores of the images of `a`, "
            f"got {len(set(a.image_ids) ^ set(b.image_ids))} images found in one only."
        )
    position = {image: n for n, image in enumerate(b.image_ids)}
    order = np.array([position[image] for image in a.image_ids])

    def difference(weights: np.ndarray) -> np.ndarray:
        return _resampled(a, metric, None, weights) - _resampled(b, metric, order, weights)

    return _interval(difference, len(a.image_ids), samples, seed, level)


def paired_means(
    a: np.ndarray,
    b: np.ndarray,
    sizes: np.ndarray,
    samples: int = 1000,
    seed: int = 0,
    level: float = 0.95,
) -> Interval:
    """Interval of the difference of two means over what images hold, such as their phrases.

    Args:
        a: `[N]`, the mean of one system in each image.
        b: `[N]`, of the other, on the same images.
        sizes: `[N]`, over how many each image's means are; one at least holds some.
        samples: As in `bootstrap`, as are the others.

    Returns:
        Of `sum_n size_n (a_n - b_n) / sum_n size_n`, images drawn with replacement.
    """

    def difference(weights: np.ndarray) -> np.ndarray:
        held = weights * sizes
        # A draw without any phrase says nothing of a difference.
        return held @ (a - b) / np.maximum(held.sum(axis=1), 1.0)

    return _interval(difference, len(a), samples, seed, level)


def _resampled(
    scores: CaptionScores, metric: str, order: np.ndarray | None, weights: np.ndarray
) -> np.ndarray:
    """The metric `[S]` when image n counts `weights[s, n]` times."""
    if metric not in scores.per_image:
        raise ValueError(
            f"Received an invalid value for argument `metric`: expected one of "
            f"{', '.join(scores.per_image)}, got {metric!r}."
        )
    order = np.arange(len(scores.image_ids)) if order is None else order
    if metric.startswith("bleu") or metric == "brevity_ratio":
        return bleu_scores(weights @ scores.bleu.matrix()[order])[metric]
    if metric == "meteor":
        return meteor_scores(weights @ scores.meteor[order])
    return weights @ scores.per_image[metric][order] / weights.sum(axis=1)


def _interval(statistic, count: int, samples: int, seed: int, level: float) -> Interval:
    if samples < 1:
        raise ValueError(
            "Received an invalid value for argument `samples`: expected a positive integer, got "
            f"{samples}."
        )
    if not 0.0 < level < 1.0:
        raise ValueError(
            "Received an invalid value for argument `level`: expected a number between 0 and 1, "
            f"got {level}."
        )
    values = np.concatenate([statistic(weights) for weights in _draws(count, samples, seed)])
    low, high = np.quantile(values, [(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    return Interval(float(statistic(np.ones((1, count)))[0]), float(low), float(high))


def _draws(count: int, samples: int, seed: int) -> Iterator[np.ndarray]:
    """How often each image was drawn, `[<= _CHUNK, count]` at a time."""
    rng = np.random.default_rng(seed)
    for start in range(0, samples, _CHUNK):
        size = min(_CHUNK, samples - start)
        drawn = rng.integers(count, size=(size, count)) + count * np.arange(size)[:, None]
        yield np.bincount(drawn.ravel(), minlength=size * count).reshape(size, count).astype(float)
