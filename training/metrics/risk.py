"""Risk against coverage: how many wrong captions go if the least sure ones are not answered."""

from __future__ import annotations

from typing import Any

import numpy as np

from sat_tf.trained.limits import Confidence, sigmoid
from training.metrics.bootstrap import FEW, Interval, interval_over_images
from training.metrics.calibration import WordConfidence, calibration_error, confidence_auroc

UNANSWERED = 0.3
"""Share of the captions, the least sure ones, that `errors_unanswered` leaves out."""
OF_EACH = 5
"""Captions that are right, and that are not, from which a confidence is learned."""
_FOLDS = 10
_LEAST_EVIDENCE = -1e3  # where there is no caption, log p is a million times as low


def enough(right: np.ndarray) -> bool:
    """Returns whether so many captions, right or wrong, can fit a confidence."""
    return len(right) >= FEW and OF_EACH <= right.sum() <= len(right) - OF_EACH


def fit_confidence(evidence: np.ndarray, right: np.ndarray, **kept: Any) -> Confidence:
    """Fits a ridge-regularised logistic regression of `right` `[N]` on `[N, 4]`.

    Args:
        evidence: See `Confidence`.
        right: Whether each caption is right.
        **kept: Further fields of the confidence.
    """
    evidence = np.maximum(evidence, _LEAST_EVIDENCE)
    mean, scale = evidence.mean(axis=0), evidence.std(axis=0) + 1e-6
    rows = np.column_stack([(evidence - mean) / scale, np.ones(len(right))])
    ridge, found = np.diag([1.0, 1.0, 1.0, 1.0, 1e-6]), np.zeros(5)
    for _ in range(50):
        chance = sigmoid(rows @ found)
        slope = rows.T @ (chance - right) + ridge @ found
        found -= np.linalg.solve((rows.T * (chance * (1 - chance))) @ rows + ridge, slope)
    slopes = found[:4] / scale
    return Confidence(float(found[4] - slopes @ mean), tuple(map(float, slopes)), **kept)


def cross_validated(evidence: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Returns the chance of each of `[N]` captions by a confidence that the others fitted."""
    fold = np.random.default_rng(0).permutation(len(right)) % _FOLDS
    chances = np.zeros(len(right))
    for part in range(_FOLDS):
        own = fold == part
        chances[own] = fit_confidence(evidence[~own], right[~own]).chances(evidence[own])
    return chances


def judge(chances: np.ndarray, right: np.ndarray) -> tuple[dict[str, Interval], dict[str, Any]]:
    """Measures chances of being right against what was right, `[N]` each.

    Returns:
        Percent or points with intervals over images: `captions_right`; `confidence_error`, the
        calibration error; `confidence_auroc`; `errors_unanswered`, the share of the wrong captions
        that are among the `UNANSWERED` least sure. And details: `errors_unanswered_most`, what a
        perfect order would reach, and `risk`, rows of coverage and of wrong captions among the
        answered, percent.
    """
    found, count = right.astype(float), len(right)
    order = np.argsort(chances, kind="stable")
    wrong = 1 - found[order]

    def unanswered(weights: np.ndarray) -> np.ndarray:
        sorted_weights = weights[:, order]
        ends = np.cumsum(sorted_weights, axis=1)
        limit = UNANSWERED * ends[:, -1:]
        share = np.clip(limit - (ends - sorted_weights), 0, sorted_weights)  # of a tie at the limit
        total = (sorted_weights * wrong).sum(axis=1)
        nothing = np.full(len(total), np.nan)
        return 100 * np.divide((share * wrong).sum(axis=1), total, where=total > 0, out=nothing)

    said = WordConfidence(chances, right, np.arange(count))
    scores = {
        "captions_right": interval_over_images(lambda w: 100 * (w @ found) / w.sum(axis=1), count),
        "confidence_error": calibration_error(said, bins=10),
        "confidence_auroc": confidence_auroc(said),
        "errors_unanswered": interval_over_images(unanswered, count),
    }
    risk = []
    for coverage in range(100, 0, -10):
        answered = wrong[count - max(round(count * coverage / 100), 1) :]
        risk.append([coverage, round(100 * float(answered.mean()), 1)])
    most = 100 * min(UNANSWERED / max(1 - found.mean(), 1e-9), 1)
    details = {"errors_unanswered_most": round(float(most), 1), "risk": risk}
    return {name: score for name, score in scores.items() if score is not None}, details
