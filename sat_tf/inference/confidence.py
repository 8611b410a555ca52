"""Limits of a captioner: is a photograph like its training data, are the words those people use?

A run, a published captioner and an export keep them as two JSON files, `familiarity.json` and
`confidence.json`. Shapes: B images, L locations, D annotation width, k directions.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np

from sat_tf.config import SearchConfig
from sat_tf.inference import published
from sat_tf.inference.published import CONFIDENCE, FAMILIARITY
from sat_tf.text.vocabulary import END
from sat_tf.util.errors import RunError
from sat_tf.util.fields import from_dict
from sat_tf.util.files import json_object, read_content

if TYPE_CHECKING:
    from sat_tf.inference.captions import Caption

UNFAMILIAR = 0.02
"""Familiarity below which a photograph is unlike the training data."""
LEAST_DEV = 50
"""Dev images from which a familiarity can fall below `UNFAMILIAR`."""
USUAL = 1 / 3
"""Confidence from which people often use a caption's words; people's own captions: 0.226."""
LEVELS = 201
"""Quantiles of the distances of dev images."""

Level = Literal["unlike", "usual words", "other words"]


class Remark(NamedTuple):
    """A level and its sentence; `(None, "")` without familiarity and confidence."""

    level: Level | None
    sentence: str


UNLIKE = "Not like the photographs it was trained on: expect this caption to be wrong."
USUAL_WORDS = "People often describe such a photograph in these words."
OTHER_WORDS = "People often describe such a photograph in other words."


def remark(familiarity: float | None, confidence: float | None = None) -> Remark:
    """Returns the remark on a caption, the same everywhere."""
    if familiarity is not None and familiarity < UNFAMILIAR:
        return Remark("unlike", UNLIKE)
    if confidence is None:
        return Remark(None, "")
    if confidence >= USUAL:
        return Remark("usual words", USUAL_WORDS)
    return Remark("other words", OTHER_WORDS)


class _Part:
    """A part of the limits that a JSON file keeps, with the SHA-256 of the weights it is of."""

    weights: tuple[str, ...]

    def _values(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def content(self, weights: Sequence[str] | None = None) -> bytes:
        """Returns the file, for a copy of the captioner with weights of these SHA-256."""
        values = self._values() | {"weights": [*(weights or self.weights)]}
        return (json.dumps(values, allow_nan=False) + "\n").encode()

    @classmethod
    def read(cls, path: Path, weights: Sequence[str] | None = None) -> Self:
        """Reads the file of a captioner with weights of these SHA-256, if they are given.

        Raises:
            RunError: It is damaged, or of other weights.
        """
        try:
            values = json_object(read_content(path))
            found = cls._of(values | {"weights": tuple(values["weights"])})
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


@dataclass(frozen=True, eq=False)
class Familiarity(_Part):
    """Statistics of the mean annotations of training images, and distances of dev images.

    A Gaussian that keeps its covariance along k principal directions, and one variance for all
    others. The distance of an image is the squared one of Mahalanobis, its familiarity the share
    of M dev images and one more that are farther: with r dev images nearer, 1 - r / (M + 1). A new
    image of the same kind is as likely at each of the M + 1 positions, so at most 2 % fall below
    `UNFAMILIAR`, and with fewer than 50 dev images none can.

    Attributes:
        mean: float32 `[D]`.
        basis: int8 `[k, D]`; times `scales`, unit vectors.
        scales: float32 `[k]`.
        deviations: float32 `[k]`, standard deviations along them.
        rest: Variance of each other direction.
        levels: float32 `[201]`, distances of dev images: their quantiles from 0 to 1, ascending.
        images: M, the number of dev images.
        weights: SHA-256 of the file of weights that gave the annotations.

    References:
        Tipping and Bishop (1999), "Probabilistic Principal Component Analysis".
        Vovk, Gammerman and Shafer (2005), "Algorithmic Learning in a Random World".
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
        """Computes the distances `[B]` of images from their mean annotations `[B, D]`."""
        moved = np.asarray(means, np.float32) - self.mean
        along = moved @ self.basis.T.astype(np.float32) * self.scales
        across = np.square(moved).sum(-1) - np.square(along).sum(-1)
        return np.square(along / self.deviations).sum(-1) + np.maximum(across, 0) / self.rest

    def of(self, annotations: np.ndarray) -> np.ndarray:
        """Returns the familiarity `[B]`, from 1/(M+1) to M/(M+1), of annotations `[B, L, D]`."""
        distances = self.distances(np.asarray(annotations, np.float32).mean(axis=1))
        low, high = self.levels[:-1], self.levels[1:]
        gaps = np.maximum(high - low, np.finfo(np.float32).tiny)
        farther = np.clip((high - distances[:, None]) / gaps, 0, 1).mean(axis=1)
        return (1 + (self.images - 1) * farther) / (self.images + 1)

    def _values(self) -> dict[str, Any]:
        arrays = {
            name: base64.b64encode(np.ascontiguousarray(getattr(self, name), kind)).decode()
            for name, kind in self._ARRAYS.items()
        }
        levels = [float(f"{level:.7g}") for level in self.levels]
        return {"images": self.images, "rest": self.rest, "levels": levels, **arrays}

    @classmethod
    def _of(cls, values: Mapping[str, Any]) -> Self:
        arrays = {
            name: np.frombuffer(base64.b64decode(values[name], validate=True), kind)
            for name, kind in cls._ARRAYS.items()
        }
        arrays["basis"] = arrays["basis"].reshape(len(arrays["scales"]), len(arrays["mean"]))
        levels, rest = np.array(values["levels"], np.float32), float(values["rest"])
        if len(levels) != LEVELS or len(arrays["deviations"]) != len(arrays["scales"]):
            raise ValueError("its shapes do not fit each other")
        if not all(np.isfinite(part).all() for part in (*arrays.values(), levels, rest)):
            raise ValueError("it holds numbers that are not finite")
        if not (rest > 0 and (arrays["deviations"] > 0).all() and values["images"] >= 1):
            raise ValueError("a variance or the number of images is not positive")
        return cls(**arrays, **{n: values[n] for n in ("rest", "images", "weights")}, levels=levels)


@dataclass(frozen=True)
class Confidence(_Part):
    """Chance that every content word of a caption is in a reference, as `Meteor.grounded` judges.

    `sigmoid(bias + slopes . x) min(familiarity / UNFAMILIAR, 1)` of x: log p of the caption, nats;
    its tokens; log of its share of the beam's scores; and familiarity.

    Attributes:
        bias: The constant.
        slopes: The four weights.
        search: The search that made the captions.
        figures: Its quality on images that did not fit it, by cross-validation.
        weights: SHA-256 of the files of weights that wrote the captions.
    """

    bias: float
    slopes: tuple[float, float, float, float]
    search: Mapping[str, Any] = field(default_factory=dict)
    figures: Mapping[str, Any] = field(default_factory=dict)
    weights: tuple[str, ...] = ()

    def chances(self, evidence: np.ndarray) -> np.ndarray:
        """Returns the chance of each of `[N, 4]`."""
        logits = self.bias + evidence @ np.array(self.slopes)
        return sigmoid(logits) * known_share(evidence)

    def fits(self, search: SearchConfig) -> bool:
        """Returns True for the search that it was learned from."""
        return bool(self.search) and from_dict(SearchConfig, dict(self.search)) == search

    @classmethod
    def _of(cls, values: Mapping[str, Any]) -> Self:
        slopes = tuple(map(float, values["slopes"]))
        if len(slopes) != 4 or not all(map(math.isfinite, [*slopes, values["bias"]])):
            raise ValueError("it has no four finite slopes and a bias")
        return cls(**{f.name: values[f.name] for f in fields(cls)} | {"slopes": slopes})


def sigmoid(x: np.ndarray) -> np.ndarray:
    """Computes the logistic function; far from 0 it stays finite."""
    return 1 / (1 + np.exp(-np.clip(x, -60, 60)))


def known_share(evidence: np.ndarray) -> np.ndarray:
    """Returns the factor `[N]` by which an unlike photograph lowers a chance, of `[N, 4]`."""
    return np.minimum(evidence[:, 3] / UNFAMILIAR, 1)


class Limits(NamedTuple):
    """Limits that a captioner knows; None where it was trained without."""

    familiarity: Familiarity | None = None
    confidence: Confidence | None = None

    def files(self, encoder: Sequence[str], captioner: Sequence[str]) -> dict[str, bytes]:
        """Returns the files of a copy of the captioner.

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
        pairs = zip(captions, self.familiarity.of(annotations), strict=True)
        return self.weighed(
            [replace(one, familiarity=float(share)) for one, share in pairs], search
        )

    def weighed(self, captions: Sequence[Caption], search: SearchConfig) -> list[Caption]:
        """Adds confidence to captions that have their familiarity."""
        if self.confidence is None or not self.confidence.fits(search) or not captions:
            return [*captions]
        chances = self.confidence.chances(np.array([*map(caption_evidence, captions)]))
        pairs = zip(captions, chances, strict=True)
        return [replace(one, confidence=float(chance)) for one, chance in pairs]


def caption_evidence(caption: Caption) -> list[float]:
    """Returns what `Confidence` reads of a caption with familiarity."""
    scores = np.array([caption.score, *(score for _, score in caption.alternatives)])
    top = scores.max()
    share = caption.score - top - math.log(np.exp(scores - top).sum())
    tokens = sum(token != END for token in caption.tokens)
    return [caption.log_prob, float(tokens), share, caption.familiarity]


def read_limits(folder: Path, weights_sha256: str | None = None) -> Limits:
    """Reads the limits of a captioner; those of a run are held against the SHA-256 of its weights.

    Raises:
        RunError: A file is damaged, or of other weights.
    """
    paths = limit_files(folder)
    weights = None if weights_sha256 is None else [weights_sha256]
    return Limits(
        Familiarity.read(paths[FAMILIARITY], weights) if FAMILIARITY in paths else None,
        Confidence.read(paths[CONFIDENCE], weights) if CONFIDENCE in paths else None,
    )


def limit_files(folder: Path) -> dict[str, Path]:
    """Returns the files of a run, or of a published captioner as its manifest names them.

    Raises:
        RunError: One that a manifest names is missing or damaged.
    """
    if published.manifest_of(folder) is not None:
        return published.checked_files(folder, [FAMILIARITY, CONFIDENCE])
    paths = {name: folder / name for name in (FAMILIARITY, CONFIDENCE)}
    return {name: path for name, path in paths.items() if path.is_file()}
