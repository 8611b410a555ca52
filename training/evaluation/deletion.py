"""The deletion test: how much a word depends on the places that its map lights up.

A map that points at the thing named need not be what the captioner used. So the annotations where
a content word's map is largest are replaced by the mean annotation of training images, and the
caption is read again: by how much does the word's log-probability fall? Beside it, as many places
of three controls.

References:
    Petsiuk et al. (2018), "RISE", arXiv:1806.07421 (deletion as a test of maps).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sat_tf.inference.captions import Caption
from sat_tf.scores.meteor_words import function_words
from sat_tf.text.vocabulary import END, START
from training.evaluation.bootstrap import Interval, interval_over_images
from training.evaluation.pointing import over_images
from training.evaluation.reading import Reading

SHARES = (10, 20, 30)
"""Percent of the locations that are replaced."""
CONTROLS = ("random", "other", "centre")
"""Random locations, those of another content word's map, those nearest to the middle."""

Span = tuple[int, int]
"""First and last token of a word."""


@dataclass(frozen=True, eq=False)
class Deletion:
    """Falls of log-probability, nats, of N content words.

    Attributes:
        falls: (`attended` or a control, share) -> `[N]`.
        words: The words.
        images: Image id of each.
    """

    falls: Mapping[tuple[str, int], np.ndarray]
    words: Sequence[str]
    images: Sequence[str]

    def details(self) -> dict[str, Any]:
        """Returns the report's section: words, images, and by share means of the falls.

        Beside them the paired differences from the controls, and `ratio`, the fall at attended
        locations over that at random ones, NaN if these cost nothing. Each has its interval,
        images drawn with all their words.
        """
        found: dict[str, Any] = {"words": len(self.words), "images": len(set(self.images))}
        for share in SHARES:
            falls = {kind: self.falls[kind, share] for kind in ("attended", *CONTROLS)}
            values = falls | {f"over_{k}": falls["attended"] - falls[k] for k in CONTROLS}
            ones = np.ones(len(self.images))
            section = {name: over_images(self.images, ones, each) for name, each in values.items()}
            found[f"{share}"] = section | {"ratio": self._ratio(falls["attended"], falls["random"])}
        return found

    def _ratio(self, falls: np.ndarray, others: np.ndarray) -> Interval:
        _, image = np.unique(self.images, return_inverse=True)
        own, control = (np.bincount(image, each) for each in (falls, others))

        def ratio(weights: np.ndarray) -> np.ndarray:
            below = weights @ control
            return (weights @ own) / np.where(below > 0.0, below, np.nan)

        return interval_over_images(ratio, len(own))


def delete(reading: Reading, captions: Mapping[str, Caption], mean: np.ndarray) -> Deletion:
    """Replaces annotations by their mean `[D]` over training images, and reads captions again.

    Captions with at least two content words are read, words that METEOR does not count as function
    words.

    Raises:
        TablesError: METEOR's tables are not there.
    """
    vocabulary, skipped = reading.captioner.vocabulary, function_words()
    kinds = [(kind, share) for share in SHARES for kind in ("attended", *CONTROLS)]
    falls: dict[tuple[str, int], list[float]] = {kind: [] for kind in kinds}
    words, images = [], []
    for number, example in enumerate(reading.split.examples):
        if (image := example.image_id) not in captions:
            continue
        text = captions[image].text
        found = vocabulary.places(text)
        spans = {(first, last): word for word, first, last in found if word not in skipped}
        if len(spans) < 2:
            continue
        tokens = np.array([START, *vocabulary.encode(text), END], np.int32)
        annotations = np.asarray(reading.annotations(np.array([number])), np.float32)
        random = np.random.default_rng([0, number])
        for kind, of_words in _falls(reading, annotations, tokens, [*spans], mean, random).items():
            falls[kind] += of_words
        words += spans.values()
        images += [image] * len(spans)
    return Deletion({kind: np.array(each) for kind, each in falls.items()}, words, images)


def _falls(
    reading: Reading,
    annotations: np.ndarray,
    tokens: np.ndarray,
    spans: Sequence[Span],
    mean: np.ndarray,
    random: np.random.Generator,
) -> dict[tuple[str, int], list[float]]:
    """Computes the falls of one caption's words."""
    log_lik, alpha = (part[0] for part in reading.words(annotations, [tokens]))
    maps = np.stack([alpha[first : last + 1].mean(axis=0) for first, last in spans])
    orders = orders_of(maps, reading.captioner.grid, random)
    stacked = np.concatenate([*orders.values()])
    chosen, read = [], {}
    for share in SHARES:
        count = max(1, round(share * maps.shape[1] / 100))
        # The control `other` and the centre have sets of locations in common.
        sets, rows = np.unique(np.sort(stacked[:, :count]), axis=0, return_inverse=True)
        for kind, own in zip(
            orders, np.split(rows.reshape(-1) + len(chosen), len(orders)), strict=True
        ):
            read[kind, share] = own
        chosen += [*sets]
    altered = np.repeat(annotations, len(chosen), axis=0)
    for one, places in zip(altered, chosen, strict=True):
        one[places] = mean
    after, _ = reading.words(altered, [tokens] * len(chosen))
    fall = log_lik - after
    return {
        kind: [float(fall[row, a : b + 1].sum()) for row, (a, b) in zip(rows, spans, strict=True)]
        for kind, rows in read.items()
    }


def orders_of(
    maps: np.ndarray, grid: tuple[int, int], random: np.random.Generator
) -> dict[str, np.ndarray]:
    """Orders the locations for each of a caption's content words, those to replace first.

    Args:
        maps: `[N, L]`, of the words.
        grid: `(h, w)`.
        random: Draws random locations, and among those of the same weight.

    Returns:
        `attended` and the controls -> `[N, L]`.
    """
    noise = random.random((2, *maps.shape))
    attended = np.lexsort((noise[0], -maps))
    middle = (np.array(grid)[:, np.newaxis, np.newaxis] - 1) / 2
    distance = np.square(np.indices(grid) - middle).sum(axis=0).ravel()
    return {
        "attended": attended,
        "random": noise[1].argsort(axis=1),
        "other": np.roll(attended, -1, axis=0),
        "centre": np.broadcast_to(distance.argsort(kind="stable"), maps.shape),
    }
