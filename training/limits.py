"""Limits that a run learns once it is trained, see `sat_tf.inference.confidence`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sat_tf.inference.confidence import LEVELS, Confidence, Familiarity, Limits, caption_evidence
from sat_tf.inference.run_folder import RunFolder
from sat_tf.text.detokenize import primary
from sat_tf.util.fields import to_dict
from sat_tf.util.files import finite, write_atomically
from training.evaluation.bootstrap import FEW
from training.metrics.calibration import OF_EACH, cross_validated, enough, fit_confidence, judge

if TYPE_CHECKING:
    from sat_tf.config import SearchConfig
    from sat_tf.inference.captioning import TrainedCaptioner
    from sat_tf.inference.captions import Caption
    from training.data.examples import Split
    from training.data.image_loader import InputSource
    from training.evaluation.bootstrap import Interval

MOST = 6000
"""Images of a split whose annotations are read, spread over it."""
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
    """Fits the chance of a caption of being right, and writes it with what it is worth.

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
        return "Confidence is not learned: content words are told apart in English only."
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
