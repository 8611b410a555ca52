"""Limits of a captioner: whether a photograph is like those it learned from, and its caption right.

Files of a run, of a published captioner and of an export for LiteRT, all JSON. Shapes: B images, L
locations, D annotation width, k directions, K captions of a beam.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np

from sat_tf.config import SearchConfig
from sat_tf.errors import RunError
from sat_tf.fields import to_dict
from sat_tf.files import json_object, read_content
from sat_tf.trained import published
from sat_tf.trained.published import CONFIDENCE, FAMILIARITY
from sat_tf.vocabulary import END

if TYPE_CHECKING:
    from sat_tf.trained.captions import Caption

UNFAMILIAR = 0.02
"""Familiarity below which a photograph is unlike those that the captioner learned from."""
UNLIKE = "This photograph is unlike those that the captioner learned from."
SURE, UNSURE = 2 / 3, 1 / 3
"""Confidence from which, and below which, a caption is called likely to be right or wrong."""
LEVELS = 201
"""Quantiles of the distances of dev images."""

_FORMAT = 1


class _File:
    """A part that is kept in a file, with the weights that it is of and a checksum."""

    weights: tuple[str, ...]

    def _values(self) -> dict[str, Any]:
        """Returns all but the weights, for JSON."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "weights"}

    def content(self, weights: Sequence[str] | None = None) -> bytes:
        """Returns the file, for a copy of the captioner whose weights have these SHA-256."""
        values = {"format": _FORMAT, "weights": [*(weights or self.weights)], **self._values()}
        return (json.dumps(values | {"sha256": _sum_of(values)}) + "\n").encode()

    @classmethod
    def read(cls, path: Path, weights: Sequence[str] | None = None) -> Self:
        """Reads the file of a captioner whose weights have these SHA-256, if they are given.

        Raises:
            RunError: It is damaged, of another format, or of other weights.
        """
        try:
            values = json_object(read_content(path))
            version, of, given = (values.pop(key) for key in ("format", "weights", "sha256"))
            if version != _FORMAT:
                raise RunError(f"{path} has format {version}, this version reads {_FORMAT}.")
            if given != _sum_of({"format": version, "weights": of, **values}):
                raise ValueError("its checksum differs")
            found = cls._of(values, tuple(of))
        except RunError:
            raise
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunError(
                f"{path} is damaged: {error!r}. Remove it, or learn it again."
            ) from error
        if weights is not None and found.weights != tuple(weights):
            raise RunError(
                f"{path} is of other weights than this captioner's, and says nothing about them: "
                "remove it, or learn it again."
            )
        return found

    @classmethod
    def _of(cls, values: dict[str, Any], weights: tuple[str, ...]) -> Self:
        raise NotImplementedError


def _sum_of(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, eq=False)
class Familiarity(_File):
    """Statistics of the mean annotations of training images, and distances of dev images.

    A Gaussian whose covariance is kept along its k principal directions, and has one variance for
    all others. The distance of an image is the squared one of Mahalanobis.

    Attributes:
        mean: float32 `[D]`.
        basis: int8 `[k, D]`; times `scales`, unit vectors.
        scales: float32 `[k]`.
        deviations: float32 `[k]`, standard deviations along them.
        rest: Variance of each other direction.
        levels: float32 `[201]`, distances of dev images: their quantiles from 0 to 1, ascending.
        images: Number of dev images.
        weights: SHA-256 of the file of weights that gave the annotations.

    References:
        Tipping and Bishop (1999), "Probabilistic Principal Component Analysis".
    """

    mean: np.ndarray
    basis: np.ndarray
    scales: np.ndarray
    deviations: np.ndarray
    rest: float
    levels: np.ndarray
    images: int
    weights: tuple[str, ...] = ()

    _ARRAYS: ClassVar = {"mean": "<f4", "basis": "i1", "scales": "<f4", "deviations": "<f4"}

    def distances(self, means: np.ndarray) -> np.ndarray:
        """Computes the distances `[B]` of images by their mean annotations `[B, D]`."""
        moved = np.asarray(means, np.float32) - self.mean
        along = moved @ self.basis.T.astype(np.float32) * self.scales
        beside = np.square(moved).sum(-1) - np.square(along).sum(-1)
        return np.square(along / self.deviations).sum(-1) + np.maximum(beside, 0) / self.rest

    def of(self, annotations: np.ndarray) -> np.ndarray:
        """Returns the share `[B]` of dev images that lie farther than these, by `[B, L, D]`."""
        distances = self.distances(np.asarray(annotations, np.float32).mean(axis=1))
        low, high = self.levels[:-1], self.levels[1:]
        gaps = np.maximum(high - low, np.finfo(np.float32).tiny)
        return np.clip((high - distances[:, None]) / gaps, 0, 1).mean(axis=1)

    def _values(self) -> dict[str, Any]:
        arrays = {
            name: base64.b64encode(np.ascontiguousarray(getattr(self, name), kind)).decode()
            for name, kind in self._ARRAYS.items()
        }
        levels = [float(f"{level:.7g}") for level in self.levels]
        return {"images": self.images, "rest": self.rest, "levels": levels, **arrays}

    @classmethod
    def _of(cls, values: dict[str, Any], weights: tuple[str, ...]) -> Self:
        arrays = {
            name: np.frombuffer(base64.b64decode(values[name], validate=True), kind)
            for name, kind in cls._ARRAYS.items()
        }
        arrays["basis"] = arrays["basis"].reshape(len(arrays["scales"]), len(arrays["mean"]))
        levels = np.array(values["levels"], np.float32)
        if len(levels) != LEVELS or len(arrays["deviations"]) != len(arrays["scales"]):
            raise ValueError("its shapes do not fit each other")
        return cls(
            **arrays,
            rest=float(values["rest"]),
            levels=levels,
            images=int(values["images"]),
            weights=weights,
        )


@dataclass(frozen=True)
class Confidence(_File):
    """Chance that every content word of a caption is in a reference, as `Meteor.grounded` judges.

    `sigmoid(bias + weight . x) min(familiarity / UNFAMILIAR, 1)` of x: log p of the caption, nats;
    its tokens; log of its share of the beam, by the scores; and familiarity.

    Attributes:
        bias: The constant.
        slopes: The four weights.
        search: The search whose captions it is of.
        figures: What it is worth on images that did not fit it, by cross-validation.
        weights: SHA-256 of the files of weights that wrote the captions.
    """

    bias: float
    slopes: tuple[float, float, float, float]
    search: Mapping[str, Any] = field(default_factory=dict)
    figures: Mapping[str, Any] = field(default_factory=dict)
    weights: tuple[str, ...] = ()

    def chances(self, evidence: np.ndarray) -> np.ndarray:
        """Returns the chance of each of `[N, 4]`."""
        known = np.minimum(evidence[:, 3] / UNFAMILIAR, 1)
        return sigmoid(self.bias + evidence @ np.array(self.slopes)) * known

    def fits(self, search: SearchConfig) -> bool:
        """Returns whether captions of a search are those that it is of."""
        return dict(self.search) == to_dict(search)

    @classmethod
    def _of(cls, values: dict[str, Any], weights: tuple[str, ...]) -> Self:
        slopes = tuple(map(float, values["slopes"]))
        if len(slopes) != 4 or not all(map(math.isfinite, [*slopes, values["bias"]])):
            raise ValueError("it has no four slopes")
        return cls(
            float(values["bias"]), slopes, dict(values["search"]), dict(values["figures"]), weights
        )


def sigmoid(x: np.ndarray) -> np.ndarray:
    """Computes the logistic function; far from 0 it stays finite."""
    return 1 / (1 + np.exp(-np.clip(x, -60, 60)))


class Limits(NamedTuple):
    """Limits that a captioner knows; None where it was trained without."""

    familiarity: Familiarity | None = None
    confidence: Confidence | None = None

    def files(self, encoder: Sequence[str], captioner: Sequence[str]) -> dict[str, bytes]:
        """Returns the files that there are, for a copy of the captioner.

        Args:
            encoder: SHA-256 of its files of weights that give the annotations.
            captioner: Of all its files of weights.
        """
        parts = zip((FAMILIARITY, CONFIDENCE), self, (encoder, captioner), strict=True)
        return {name: part.content(of) for name, part, of in parts if part is not None}

    def told(
        self, captions: Sequence[Caption], annotations: np.ndarray, search: SearchConfig
    ) -> list[Caption]:
        """Returns captions with their familiarity and confidence.

        Args:
            captions: The best caption of each image, with its alternatives.
            annotations: `[B, L, D]`, or their means `[B, 1, D]`.
            search: The search that found them.
        """
        if self.familiarity is None:
            return [*captions]
        shares = self.familiarity.of(annotations)
        found = zip(captions, shares, strict=True)
        return self.weighed(
            [replace(one, familiarity=float(share)) for one, share in found], search
        )

    def weighed(self, captions: Sequence[Caption], search: SearchConfig) -> list[Caption]:
        """Returns captions that have their familiarity with their confidence, as `told` does."""
        if self.confidence is None or not self.confidence.fits(search) or not captions:
            return [*captions]
        chances = self.confidence.chances(np.array([*map(caption_evidence, captions)]))
        found = zip(captions, chances, strict=True)
        return [replace(one, confidence=float(chance)) for one, chance in found]


def read_limits(run_dir: Path, weights_sha256: str | None) -> Limits:
    """Reads the limits of a run, whose weights have this SHA-256, or of a published captioner.

    Raises:
        RunError: A file is damaged, or of other weights.
    """
    encoder, captioner = [weights_sha256], [weights_sha256]
    if published.is_published(run_dir):
        captioner = published.weight_hashes(run_dir)
        encoder = captioner[:1]
    return limits_in(limit_files(run_dir), encoder, captioner)


def limit_paths(folder: Path) -> dict[str, Path]:
    """Returns the files that a folder has, by name."""
    names = (FAMILIARITY, CONFIDENCE)
    return {name: folder / name for name in names if (folder / name).is_file()}


def limit_files(run_dir: Path) -> dict[str, Path]:
    """Returns the files of a run or of a published captioner, whose manifest names them.

    Raises:
        RunError: One that a manifest names is missing or damaged.
    """
    if not published.is_published(run_dir):
        return limit_paths(run_dir)
    paths = {name: published.record(run_dir, name) for name in (FAMILIARITY, CONFIDENCE)}
    return {name: path for name, path in paths.items() if path is not None}


def limits_in(
    paths: Mapping[str, Path],
    encoder: Sequence[str] | None = None,
    captioner: Sequence[str] | None = None,
) -> Limits:
    """Reads files of limits; by default of whatever weights.

    Args:
        paths: The files by name.
        encoder: SHA-256 of the files of weights that give the annotations.
        captioner: Of all files of weights.

    Raises:
        RunError: A file is damaged, or of other weights.
    """
    kinds = (Familiarity, FAMILIARITY, encoder), (Confidence, CONFIDENCE, captioner)
    return Limits(
        *(kind.read(paths[name], of) if name in paths else None for kind, name, of in kinds)
    )


def caption_evidence(caption: Caption) -> list[float]:
    """Returns what `Confidence` reads of a caption with familiarity."""
    scores = np.array([caption.score, *(score for _, score in caption.alternatives)])
    top = scores.max()
    share = caption.score - top - math.log(np.exp(scores - top).sum())
    tokens = sum(token != END for token in caption.tokens)
    return [caption.log_prob, float(tokens), share, caption.familiarity]


def is_unlike(familiarity: float | None) -> bool:
    """Returns whether a photograph is unlike those that the captioner learned from."""
    return familiarity is not None and familiarity < UNFAMILIAR


def sentence_on(confidence: float) -> str:
    """Returns a confidence in words, as the page tells it."""
    if confidence >= SURE:
        return "The caption is likely to be right."
    if confidence >= UNSURE:
        return "A word of the caption may be wrong."
    return "Some word of the caption is likely to be wrong."


def remarks(familiarity: float | None, confidence: float | None) -> list[str]:
    """Returns the sentences that a caption needs: on an unlike photograph, and on confidence."""
    unlike = is_unlike(familiarity)
    return ([UNLIKE] if unlike else []) + ([] if confidence is None else [sentence_on(confidence)])
