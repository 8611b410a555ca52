"""Scores of phrases by image: means over each, and intervals over the choice of images."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from training.metrics.bootstrap import Interval, resampled_means

SIZES = {
    "pointing_game": "phrases",
    "pointing_game_small": "phrases_small",
    "attention_correctness": "phrases",
    "attention_correctness_small": "phrases_small",
    "nll_phrase": "phrase_words",
    "nll_phrase_gain": "phrase_words",
}
"""Score -> key of what it is a mean over."""


def image_means(
    images: Sequence[str], sizes: Mapping[str, np.ndarray], values: Mapping[str, np.ndarray]
) -> dict[str, dict[str, float]]:
    """Averages scores of phrases over each image.

    Args:
        images: `[N]`, image of each phrase.
        sizes: Key of what to average over -> `[N]`, how much each phrase counts.
        values: Score -> `[N]`; those over small phrases are taken from the score over all.

    Returns:
        Image -> sizes, and means of the scores of `SIZES`; without those of which the image has
        nothing.
    """
    names, numbers = np.unique(images, return_inverse=True)
    rows: list[dict[str, float]] = [{} for _ in names]
    for score, key in SIZES.items():
        of_all = values.get(score.replace("_small", ""))
        if of_all is None or key not in sizes:
            continue
        totals = np.bincount(numbers, sizes[key])
        sums = np.bincount(numbers, sizes[key] * of_all)
        for number in np.flatnonzero(totals):
            rows[number][key] = int(totals[number])
            rows[number][score] = float(sums[number] / totals[number])
    return dict(zip(names.tolist(), rows, strict=True))


def over_images(
    images: Sequence[Hashable],
    sizes: np.ndarray,
    values: np.ndarray,
    samples: int = 1000,
    seed: int = 0,
) -> Interval:
    """Computes the interval of a mean over phrases; images are drawn with all their phrases."""
    _, numbers = np.unique(images, return_inverse=True)
    sums = np.bincount(numbers, sizes * values)
    return resampled_means(sums, np.bincount(numbers, sizes), samples, seed)


def sums_and_sizes(
    rows: Mapping[str, Mapping[str, float]], score: str, images: Sequence[str]
) -> tuple[np.ndarray, np.ndarray] | None:
    """Reads the sum of a score and its size in each of these images, `[I]` each.

    Returns:
        None if no image has the score.
    """
    own = [rows.get(image, {}) for image in images]
    sizes = np.array([row[SIZES[score]] if score in row else 0 for row in own], float)
    sums = np.array([row.get(score, 0.0) for row in own]) * sizes
    return (sums, sizes) if sizes.any() else None
