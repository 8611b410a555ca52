"""Confidence and familiarity: learned at the end of a run, and judged.

Calibration says whether words, or captions, given the probability p are right in p of the cases;
risk against coverage, how many wrong captions go if the least sure ones are not answered.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sat_tf.inference.confidence import (
    LEAST_DEV,
    LEVELS,
    Confidence,
    Familiarity,
    Limits,
    caption_evidence,
    known_share,
    sigmoid,
)
from sat_tf.inference.run_folder import RunFolder
from sat_tf.text.detokenize import primary
from sat_tf.util.commands import counted
from sat_tf.util.fields import to_dict
from sat_tf.util.files import finite, write_atomically
from training.evaluation.bootstrap import FEW, LEVEL, Interval, interval_over_images, resamples

if TYPE_CHECKING:
    from sat_tf.config import SearchConfig
    from sat_tf.inference.captioning import TrainedCaptioner
    from sat_tf.inference.captions import Caption
    from training.data.examples import Split
    from training.data.image_loader import InputSource

BINS = 15
_BEYOND_DOUBT = 4.0  # standard deviations of a bin's gap

UNANSWERED = 0.3
"""Share of the captions, the least sure ones, that `errors_unanswered` leaves out."""
OF_EACH = 5
"""Captions that are right, and that are not, from which a confidence is learned."""
_FOLDS = 10
_LEAST_EVIDENCE = -1e3  # where there is no caption, log p is a million times as low


class WordConfidence(NamedTuple):
    """Words that a model chose, each with its probability and whether it was right.

    Attributes:
        confidence: `[N]`, in [0, 1].
        right: bool `[N]`.
        image: int `[N]`, the image of each word.
    """

    confidence: np.ndarray
    right: np.ndarray
    image: np.ndarray


class Reliability(NamedTuple):
    """Words by confidence, in bins of equal width.

    Attributes:
        words: `[B]`, words per bin.
        confidence: `[B]`, percent, mean of the probabilities; NaN for an empty bin.
        accuracy: `[B]`, percent that were right; NaN for an empty bin.
    """

    words: np.ndarray
    confidence: np.ndarray
    accuracy: np.ndarray


def reliability(found: WordConfidence, bins: int = BINS) -> Reliability:
    """Divides [0, 1] into bins of equal width, closed at the upper end."""
    words, confidence, right = (part.sum(axis=0) for part in _by_image(found, bins))
    with np.errstate(invalid="ignore"):
        return Reliability(words, 100.0 * confidence / words, 100.0 * right / words)


def calibration_error(found: WordConfidence, bins: int = BINS) -> Interval:
    """Computes the expected calibration error, percentage points, and its interval over images.

    ECE = sum_b (n_b / N) |accuracy_b - confidence_b| = sum_b |g_b|

    Chance moves each gap g_b by some e_b, and the sum mostly upwards: that of a calibrated model is
    above 0. Percentiles of resamples would double that. But the sum is too large by at most
    sum_b |e_b|, or sum_b sign(g_b) e_b over bins with a sign beyond doubt, and too small by at
    most -sum_b sign(g_b) e_b; the ends are the estimate without these, each at 97.5 %.

    Args:
        found: The words, at least one.
        bins: Number of bins.

    References:
        Guo et al. (2017), "On Calibration of Modern Neural Networks", arXiv:1706.04599.
    """
    words, confidence, right = _by_image(found, bins)
    gaps, sizes = right - confidence, words.sum(axis=1)

    def signed(weights: np.ndarray) -> np.ndarray:
        return 100.0 * (weights @ gaps) / (weights @ sizes)[:, None]

    (own,) = signed(np.ones((1, len(sizes))))
    estimate = float(np.abs(own).sum())
    if len(sizes) < FEW:
        return Interval(estimate, math.nan, math.nan)
    moved = np.concatenate([signed(weights) for weights in resamples(len(sizes))]) - own
    outwards = moved * np.sign(own)
    in_doubt = np.abs(own) <= _BEYOND_DOUBT * moved.std(axis=0)
    too_large = np.where(in_doubt, np.abs(moved), outwards).sum(axis=1)
    share = (1.0 + LEVEL) / 2.0
    low = estimate - np.quantile(too_large, share)
    high = estimate + np.quantile(-outwards.sum(axis=1), share)
    return Interval(estimate, max(float(low), 0.0), float(high))


def confidence_auroc(found: WordConfidence) -> Interval | None:
    """Computes how well confidence separates right words from wrong ones, with its interval.

    AUROC = 100 P(confidence of a right word > that of a wrong one), ties counting one half: 50 for
    a confidence that says nothing.

    Returns:
        Percent; None if all words are right, or none.
    """
    right = found.right.astype(bool)
    if right.all() or not right.any():
        return None
    _, image = np.unique(found.image, return_inverse=True)
    order = np.argsort(found.confidence, kind="stable")
    confidence, right, image = found.confidence[order], right[order], image[order]
    starts = np.flatnonzero(np.diff(confidence, prepend=-1.0))  # of each run of equal confidence

    def area(weights: np.ndarray) -> np.ndarray:
        of_word = weights[:, image]
        rights = np.add.reduceat(of_word * right, starts, axis=1)
        wrongs = np.add.reduceat(of_word * ~right, starts, axis=1)
        below = np.cumsum(wrongs, axis=1) - wrongs / 2.0
        pairs = rights.sum(axis=1) * wrongs.sum(axis=1)
        # A draw without right words, or without wrong ones, says nothing.
        nothing = np.full(pairs.shape, np.nan)
        share = np.divide((rights * below).sum(axis=1), pairs, where=pairs > 0, out=nothing)
        return 100.0 * share

    fewer = min(len(np.unique(image[right])), len(np.unique(image[~right])))
    return interval_over_images(area, int(image.max()) + 1, measured=fewer)


def _by_image(found: WordConfidence, bins: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sums words, confidence and right words by image and bin, each `[images, bins]`."""
    ids, image = np.unique(found.image, return_inverse=True)
    bin_of = np.clip(np.ceil(found.confidence * bins).astype(int) - 1, 0, bins - 1)
    cell, size = image * bins + bin_of, len(ids) * bins
    summed = (
        np.bincount(cell, weights, size).reshape(len(ids), bins)
        for weights in (None, found.confidence, found.right.astype(float))
    )
    return tuple(summed)


def enough(right: np.ndarray) -> bool:
    """Returns whether so many captions, right or wrong, can fit a confidence."""
    return len(right) >= FEW and OF_EACH <= right.sum() <= len(right) - OF_EACH


def fit_confidence(evidence: np.ndarray, right: np.ndarray, **kept: Any) -> Confidence:
    """Fits a ridge-regularised logistic regression of `right` `[N]` on `[N, 4]`.

    The chance is k sigmoid(z) of z, linear in the evidence, where k lowers it for unlike
    photographs; Fisher scoring maximises the likelihood of that product.

    Args:
        evidence: See `Confidence`.
        right: Whether each caption is right.
        **kept: Further fields of the confidence.
    """
    evidence = np.maximum(evidence, _LEAST_EVIDENCE)
    mean, scale = evidence.mean(axis=0), evidence.std(axis=0) + 1e-6
    rows = np.column_stack([(evidence - mean) / scale, np.ones(len(right))])
    ridge, found = np.diag([1.0, 1.0, 1.0, 1.0, 1e-6]), np.zeros(5)
    known = known_share(evidence)
    for _ in range(50):
        share = sigmoid(rows @ found)
        chance = known * share
        # d log(likelihood) / dz, and its variance; those of a plain regression where k = 1.
        gain = (1 - share) / np.maximum(1 - chance, 1e-12)
        weight = chance * (1 - share) * gain
        slope = rows.T @ (gain * (chance - right)) + ridge @ found
        found -= np.linalg.solve((rows.T * weight) @ rows + ridge, slope)
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
    """Measures chances of being right against outcomes, `[N]` each.

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


MOST = 6000
"""Images of a split to read annotations of, spread over it."""
_BATCH = 64
_MOST_BYTES = 120_000  # of the directions: 160 kB in base64
_LEAST = 1e-6  # of the variance, so that nothing is divided by 0


def learn_familiarity(
    captioner: TrainedCaptioner, inputs: Mapping[Split, InputSource]
) -> TrainedCaptioner:
    """Learns the familiarity of images from those of train and of dev, and writes it to the run.

    Nothing is written if fewer than two training images can be read.

    Args:
        captioner: The captioner, loaded from its run, which then knows it.
        inputs: Train and dev with their inputs, in this order.
    """
    means = [mean_annotations(captioner, *of_split) for of_split in inputs.items()]
    if len(means[0]) > 1 and len(means[1]):
        found = fit_familiarity(*means, captioner.weights_sha256)
        write_atomically(RunFolder(captioner.path).familiarity, found.content())
        captioner.limits = Limits(found)
        if found.images < LEAST_DEV:
            print(
                f"Note: with {counted(found.images, 'dev image')}, no photograph can be called "
                f"unlike the training data; that takes {LEAST_DEV}."
            )
    return captioner


def fit_familiarity(train: np.ndarray, dev: np.ndarray, weights: str) -> Familiarity:
    """Learns from the mean annotations `[N, D]` of training images and `[M, D]` of dev images.

    Args:
        train: Those of two images or more.
        dev: Those of one image or more.
        weights: SHA-256 of the file of weights that gave them.
    """
    count, width = train.shape
    mean = train.mean(axis=0, dtype=np.float64)
    moved = (train - mean).astype(np.float32)
    total = float(np.square(moved, dtype=np.float64).sum()) / count
    k = max(min(_MOST_BYTES // width, (count - 1) // 2, width // 2), 1)
    basis = _principal(moved, k)
    scales = np.abs(basis).max(axis=1) / 127
    whole = np.round(basis / scales[:, None]).astype(np.int8)
    variances = np.square(moved @ (whole * scales[:, None]).T).mean(axis=0)
    rest = (total - float(variances.sum())) / max(width - k, 1)
    least = _LEAST * total / width or 1.0
    found = Familiarity(
        mean.astype(np.float32),
        whole,
        scales.astype(np.float32),
        np.sqrt(np.maximum(variances, least)).astype(np.float32),
        max(rest, least),
        np.zeros(LEVELS, np.float32),
        len(dev),
        (weights,),
    )
    levels = np.quantile(found.distances(dev), np.linspace(0, 1, LEVELS))
    found.levels[:] = np.maximum.accumulate(levels)
    return found


def _principal(moved: np.ndarray, k: int) -> np.ndarray:
    """Returns the first k principal directions `[k, D]` of centred rows, by subspace iteration."""
    width = moved.shape[1]
    start = np.random.default_rng(0).normal(size=(width, min(k + 8, width)))
    basis = np.linalg.qr(start)[0].astype(np.float32)
    for _ in range(6):
        basis = np.linalg.qr(moved.T @ (moved @ basis))[0]
    _, _, turned = np.linalg.svd(moved @ basis, full_matrices=False)
    return (basis @ turned.T).T[:k].astype(np.float64)


def mean_annotations(captioner: TrainedCaptioner, split: Split, source: InputSource) -> np.ndarray:
    """Returns the mean annotation `[n, D]` of each image of a split, or of `MOST` of them."""
    count = len(split)
    every = np.unique(np.linspace(0, count - 1, min(count, MOST)).astype(int))
    means, kept = [], []
    for start in range(0, len(every), _BATCH):
        indices = every[start : start + _BATCH]
        read = source.read(indices)
        if source.key != "annotations":
            read = captioner.annotate(read)
        means.append(np.asarray(read, np.float32).mean(axis=1))
        kept += [index not in source.known and index not in source.found for index in indices]
    return np.concatenate(means)[kept]


def learn_confidence(
    captioner: TrainedCaptioner,
    search: SearchConfig,
    captions: Sequence[Caption],
    right: np.ndarray,
    path: Path,
) -> Confidence:
    """Fits the chance of a caption of being right, and writes it with its quality.

    Only where `no_confidence` gives no reason against it.

    Args:
        captioner: Its captions; `familiarity` is known.
        search: The search that found them.
        captions: One of each dev image.
        right: Whether each is, bool `[N]`.
        path: The file.
    """
    evidence = np.array([*map(caption_evidence, captions)])
    scores, details = judge(cross_validated(evidence, right), right)
    figures = {name: [round(part, 2) for part in score] for name, score in scores.items()}
    figures = finite({"images": len(right), **figures, **details})
    kept = {"search": to_dict(search), "figures": figures}
    found = fit_confidence(evidence, right, weights=(captioner.weights_sha256,), **kept)
    write_atomically(path, found.content())
    captioner.limits = captioner.limits._replace(confidence=found)
    return found


def no_confidence(language: str, captions: Sequence[Caption], right: np.ndarray) -> str:
    """Returns why a confidence cannot be learned from captions; empty if it can."""
    if any(caption.familiarity is None for caption in captions):
        return "Confidence is not learned: it takes familiarity, and that two training images."
    if primary(language) != "en":
        return "Confidence is not learned: content words are known in English only."
    if enough(right):
        return ""
    return (
        f"Confidence is not learned: {int(right.sum())} of {len(right)} dev captions are right, "
        f"and it takes {FEW}, {OF_EACH} of them right and {OF_EACH} not."
    )


def judge_captions(
    confidence: Confidence | None, split: str, captions: Sequence[Caption], right: np.ndarray
) -> tuple[dict[str, Interval], dict[str, Any]]:
    """Measures the confidence of captions, see `judge`; that of dev, which fitted it, anew.

    Args:
        confidence: The captioner's.
        split: Name of the split.
        captions: One of each image.
        right: Whether each is, bool `[N]`.

    Returns:
        Nothing without a confidence, or if the captions have none.
    """
    if confidence is None or any(caption.confidence is None for caption in captions):
        return {}, {}
    crossed = split == "dev" and enough(right)
    if crossed:
        chances = cross_validated(np.array([*map(caption_evidence, captions)]), right)
    else:
        chances = np.array([caption.confidence for caption in captions])
    scores, details = judge(chances, right)
    return scores, {"cross_validated": crossed} | details
