"""Minimum Bayes risk on the host: `sat_tf.search.consensus` for the hypotheses of one image."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from sat_tf.vocabulary import END
from serving.litert.beam_search import Hypothesis

ORDERS, SIGMA = 4, 6.0


def rank_by_consensus(
    found: Sequence[Hypothesis], length_power: float, sharpness: float
) -> list[Hypothesis]:
    """Orders hypotheses by their expected similarity to a caption of the image, highest first."""
    if not found:
        return []
    scores = sharpness * np.array([h.score(length_power) for h in found], np.float64)
    weights = np.exp(scores - scores.max())
    weights /= weights.sum()
    counts = [_count([token for token in h.tokens if token != END]) for h in found]
    lengths = np.array([h.length for h in found])
    overlap = np.array([[_overlap(ours, theirs) for theirs in counts] for ours in counts])
    near = np.exp(-((lengths[:, None] - lengths) ** 2) / (2 * SIGMA**2))
    agreed = (overlap * near @ weights).astype(np.float32)
    return [found[k] for k in np.argsort(-agreed, kind="stable")]


def _count(words: Sequence[int]) -> list[Counter]:
    """Counts n-grams, by order."""
    return [
        Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))
        for n in range(1, ORDERS + 1)
    ]


def _overlap(ours: list[Counter], theirs: list[Counter]) -> float:
    """Computes the mean over orders of `<min(c_i, c_j), c_j> / |c_i| |c_j|`."""
    total = 0.0
    for a, b in zip(ours, theirs, strict=True):
        norms = _norm(a) * _norm(b)
        if norms:
            total += sum(min(n, b[gram]) * b[gram] for gram, n in a.items()) / norms
    return total / ORDERS


def _norm(counts: Counter) -> float:
    return float(np.sqrt(sum(n * n for n in counts.values())))
