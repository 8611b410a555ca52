"""Confidence and familiarity: learned at the end of a run, and judged.

Calibration says whether words, or captions, given the probability p are right in p of the cases;
risk against coverage, how many wrong captions go if the least sure ones are not answered.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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


def reliability(found: WordConfidence, bins: int = BINS) -> dict[str, np.ndarray]:
    """Divides [0, 1] into bins of equal width, closed at the upper end.

    Returns:
        `[B]` each: `words` per bin; `confidence`, the mean of their probabilities, and `accuracy`,
        the share that was right, percent, NaN for an empty bin.
    """
    words, confidence, right = (part.sum(axis=0) for part in _by_image(found, bins))
    with np.errstate(invalid="ignore"):
        shares = {"confidence": 100.0 * confidence / words, "accuracy": 100.0 * right / words}
    return {"words": words} | shares


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
        `captions_right`, percent, and `confidence_error`, the calibration error, with intervals
        over images; and details: `risk`, rows of coverage and of wrong captions among the answered,
        percent, the least sure ones left out first.
    """
    found, count = right.astype(float), len(right)
    wrong = 1 - found[np.argsort(chances, kind="stable")]
    said = WordConfidence(chances, right, np.arange(count))
    scores = {
        "captions_right": interval_over_images(lambda w: 100 * (w @ found) / w.sum(axis=1), count),
        "confidence_error": calibration_error(said, bins=10),
    }
    risk = []
    for coverage in range(100, 0, -10):
        answered = wrong[count - max(round(count * coverage / 100), 1) :]
        risk.append([coverage, round(100 * float(answered.mean()), 1)])
    return scores, {"risk": risk}


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


def weigh(
    captioner: TrainedCaptioner,
    search: SearchConfig,
    split: str,
    captions: Sequence[Caption],
    right: np.ndarray,
    learn: bool = False,
) -> tuple[Sequence[Caption], dict[str, Interval], dict[str, Any], list[str]]:
    """Measures the confidence of captions, see `judge`; that of dev, which fitted it, anew.

    Args:
        captioner: Its captions; `familiarity` is known.
        search: The search that found them.
        split: Name of the split.
        captions: One of each image.
        right: Whether each is, bool `[N]`.
        learn: Fit the captioner's confidence to these captions first, and write it to its run.

    Returns:
        The captions with their confidence; the scores and details of `judge`, empty without a
        confidence; and a note if none can be learned.
    """
    language = captioner.vocabulary.language
    if learn and (reason := no_confidence(language, captions, right)):
        return captions, {}, {}, [reason]
    crossed = learn or (split == "dev" and enough(right))
    if not learn and any(caption.confidence is None for caption in captions):
        return captions, {}, {}, []
    if crossed:
        evidence = np.array([*map(caption_evidence, captions)])
        chances = cross_validated(evidence, right)
    else:
        chances = np.array([caption.confidence for caption in captions])
    scores, details = judge(chances, right)
    if learn:
        figures = {name: [round(part, 2) for part in score] for name, score in scores.items()}
        figures = finite({"images": len(right), **figures, **details})
        kept = {"search": to_dict(search), "figures": figures}
        found = fit_confidence(evidence, right, weights=(captioner.weights_sha256,), **kept)
        write_atomically(RunFolder(captioner.path).confidence, found.content())
        captioner.limits = captioner.limits._replace(confidence=found)
        captions = captioner.limits.weighed(captions, search)
    return captions, scores, {"cross_validated": crossed} | details, []


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
