"""The deletion test: how much a word depends on the places that its map lights up.

The annotations where a content word's map is largest are replaced with the mean annotation of
training images, and the caption is read again: by how much does the word's log-probability fall?
Three controls replace as many other places.

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
from training.evaluation.bootstrap import interval_over_images
from training.evaluation.pointing import over_images
from training.evaluation.reading import Reading

SHARES = (10, 20, 30)
"""Percent of the locations that are replaced."""
CONTROLS = ("random", "other", "centre")
"""Random locations, those of another content word's map, those nearest to the middle."""


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

        Also the paired differences from the controls, and `ratio`, the fall at attended locations
        over that at random ones, NaN if these cost nothing. Each has its interval, images drawn
        with all their words.
        """
        _, image = np.unique(self.images, return_inverse=True)
        found: dict[str, Any] = {"words": len(self.words), "images": int(image.max()) + 1}
        for share in SHARES:
            falls = {kind: self.falls[kind, share] for kind in ("attended", *CONTROLS)}
            values = falls | {f"over_{k}": falls["attended"] - falls[k] for k in CONTROLS}
            ones = np.ones(len(image))
            section = {name: over_images(image, ones, each) for name, each in values.items()}
            own, control = (np.bincount(image, falls[kind]) for kind in ("attended", "random"))

            def ratio(weights: np.ndarray, own=own, control=control) -> np.ndarray:
                below = weights @ control
                return (weights @ own) / np.where(below > 0.0, below, np.nan)

            found[f"{share}"] = section | {"ratio": interval_over_images(ratio, len(own))}
        return found


def delete(reading: Reading, captions: Mapping[str, Caption], mean: np.ndarray) -> Deletion:
    """Replaces annotations with the mean `[D]` over training images, and reads captions again.

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
    spans: Sequence[tuple[int, int]],
    mean: np.ndarray,
    random: np.random.Generator,
) -> dict[tuple[str, int], list[float]]:
    """Computes the falls of one caption's words."""
    log_lik, alpha = (part[0] for part in reading.words(annotations, [tokens]))
    maps = np.stack([alpha[first : last + 1].mean(axis=0) for first, last in spans])
    orders = orders_of(maps, reading.captioner.grid, random)
    counts = {share: max(1, round(share * maps.shape[1] / 100)) for share in SHARES}
    kinds = [(kind, share) for share in SHARES for kind in orders]
    chosen = [tuple(sorted(row[: counts[share]])) for kind, share in kinds for row in orders[kind]]
    sets = {places: number for number, places in enumerate(dict.fromkeys(chosen))}
    altered = np.repeat(annotations, len(sets), axis=0)
    for one, places in zip(altered, sets, strict=True):
        one[list(places)] = mean
    after, _ = reading.words(altered, [tokens] * len(sets))
    rows = [after[sets[places]] for places in chosen]
    falls = [
        float((log_lik - row)[first : last + 1].sum())
        for row, (first, last) in zip(rows, [*spans] * len(kinds), strict=True)
    ]
    return {kind: falls[n * len(spans) : (n + 1) * len(spans)] for n, kind in enumerate(kinds)}


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
