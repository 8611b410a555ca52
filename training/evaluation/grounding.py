"""Grounding of attention in the boxes of what captions name: drawn ones, or of `--boxes PATH`."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sat_tf.inference.captions import Caption
from sat_tf.text.vocabulary import Vocabulary
from sat_tf.text.words import spans
from training.data.boxes import Placed, PlacedBoxes, PlacedPhrase
from training.data.captions import CaptionTable
from training.data.examples import Box
from training.evaluation.bootstrap import Interval
from training.evaluation.pointing import SMALL, image_means, over_images, score_phrases
from training.evaluation.reading import Reading

_BATCH = 64
_VARIANTS = ("", "_uniform", "_other")


@dataclass(frozen=True)
class BoxGrounding:
    """Grounding of a captioner in the boxes of phrases."""

    scores: Mapping[str, float]
    intervals: Mapping[str, Interval] = field(default_factory=dict)  # over images
    by_image: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Image id -> scores and sizes, see `training.evaluation.pointing`."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """`phrases`, `skipped` (reason -> count), `boxes` (their SHA-256) and `by_type`."""
    nouns: Mapping[tuple[str, str], Sequence[Box]] = field(default_factory=dict)
    """(image id, head noun) -> boxes of all phrases of the image with that noun, in the view."""


@dataclass
class _Found:
    """Maps and log-likelihoods of the phrases read so far."""

    maps: list[np.ndarray] = field(default_factory=list)
    phrases: list[PlacedPhrase] = field(default_factory=list)
    images: list[str] = field(default_factory=list)
    log_lik: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    @property
    def boxes(self) -> list[Sequence[Box]]:
        """Boxes of each phrase."""
        return [one.phrase.boxes for one in self.phrases]

    @property
    def words(self) -> np.ndarray:
        """Number of tokens of each phrase."""
        return np.array([one.last + 1 - one.first for one in self.phrases])

    def nll(self) -> dict[str, np.ndarray]:
        """Nats per word of each phrase, by score."""
        nll = {f"nll_phrase{k}": -np.array(self.log_lik[k]) / self.words for k in _VARIANTS}
        if self.maps:
            nll["nll_phrase_gain"] = nll["nll_phrase_uniform"] - nll["nll_phrase"]
        return nll


def ground(
    reading: Reading,
    boxes: PlacedBoxes,
    captions: Mapping[str, Caption],
) -> BoxGrounding:
    """Scores where a captioner looks, and how much it depends on it, against boxes of phrases.

    Teacher-forced, at the last word of each phrase: `pointing_game` and `attention_correctness`
    with their controls, see `training.evaluation.pointing`. Free-running, at each head noun
    (the last word of a phrase) that the captioner wrote itself: the same with `generated_`, against
    the boxes of all phrases of the image with that noun. And nats per word within phrases:
    `nll_phrase`, with the same weight at every location (`_uniform`: without a map), and
    with another image's annotations (`_other`); `nll_phrase_gain`, the value of looking, is
    `_uniform` minus `nll_phrase`.
    """
    placed, vocabulary = boxes.phrases, reading.captioner.vocabulary
    # Neighbours in length share a batch, so that little is padding.
    rows = sorted(_captions_with(placed, reading), key=reading.table.lengths.__getitem__)
    found = _read_phrases(reading, placed, rows)
    images, values, sizes = found.images, found.nll(), {"phrase_words": found.words}
    intervals = {
        name: over_images(images, sizes["phrase_words"], of_all) for name, of_all in values.items()
    }
    scores = {name: interval.difference for name, interval in intervals.items()}
    details = {
        "phrases": len(found.phrases),
        "skipped": dict(boxes.skipped),
        "boxes": _fingerprint(placed),
    }
    if not found.maps:  # a captioner without attention
        return BoxGrounding(scores, intervals, image_means(images, sizes, values), details)
    nouns: dict[tuple[str, str], list[Box]] = defaultdict(list)
    for (image, _), phrases in placed.items():
        for one in phrases:
            noun = vocabulary.base_words(one.phrase.text)[-1]
            nouns[reading.split.examples[image].image_id, noun] += one.phrase.boxes
    types = [one.phrase.types for one in found.phrases]
    pixels = [one.pixel for one in found.phrases]
    result = score_phrases(found.maps, found.boxes, images, types, pixels=pixels)
    scores |= result.means() | generated_grounding(captions, nouns, vocabulary)
    intervals |= result.intervals()
    details |= {"by_type": result.by_type()}
    sizes |= {"phrases": np.ones(len(images)), "phrases_small": result.shares < SMALL}
    by_image = image_means(images, sizes, values | dict(result.values))
    return BoxGrounding(scores, intervals, by_image, details, nouns)


def _read_phrases(reading: Reading, placed: Placed, rows: Sequence[int]) -> _Found:
    """Reads the phrases of captions, by row in the table."""
    captioner, table, found = reading.captioner, reading.table, _Found()
    pool = np.unique(table.image_index[rows])

    def annotations(images: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        return np.asarray(reading.annotations(images), np.float32)[numbers]

    for start in range(0, len(rows), _BATCH):
        chosen = rows[start : start + _BATCH]
        tokens = [table.tokens[row] for row in chosen]
        different, numbers = np.unique(table.image_index[chosen], return_inverse=True)
        own = annotations(different, numbers)
        log_liks = {}
        log_liks[""], alphas = reading.words(own, tokens)
        log_liks["_uniform"], _ = reading.words(own, tokens, uniform=True)
        # The other image is the next one of the pool: scores do not depend on the batches.
        next_ones = pool[(np.searchsorted(pool, different) + 1) % len(pool)]
        log_liks["_other"], _ = reading.words(annotations(next_ones, numbers), tokens)
        for n, row in enumerate(chosen):
            image, caption = _place(table, row)
            for phrase in placed[image, caption]:
                found.phrases.append(phrase)
                found.images.append(reading.split.examples[image].image_id)
                if captioner.config.attention.kind != "none":
                    # That of the last word: the mean of its tokens'.
                    alpha = alphas[n, phrase.head : phrase.last + 1].mean(axis=0)
                    found.maps.append(alpha.reshape(captioner.grid))
                span = slice(phrase.first, phrase.last + 1)
                for kind, log_lik in log_liks.items():
                    found.log_lik[kind].append(float(log_lik[n, span].sum()))
    return found


def _captions_with(phrases: Container[tuple[int, int]], reading: Reading) -> list[int]:
    """Returns the rows of readable captions that have phrases."""
    return [row for row in reading.rows if _place(reading.table, row) in phrases]


def _place(table: CaptionTable, row: int) -> tuple[int, int]:
    return int(table.image_index[row]), int(table.caption_index[row])


def _fingerprint(placed: Placed) -> str:
    """Returns the SHA-256 (hexadecimal) of phrases and boxes, by which evaluations are compared."""
    # Rounded, so that views and file formats that differ in the last bits are the same boxes.
    found = [
        (place, one.first, one.last, np.round(one.phrase.boxes, 4).tolist())
        for place, phrases in sorted(placed.items())
        for one in phrases
    ]
    return hashlib.sha256(repr(found).encode()).hexdigest()


def generated_grounding(
    captions: Mapping[str, Caption],
    wanted: Mapping[tuple[str, str], Sequence[Box]],
    vocabulary: Vocabulary,
) -> dict[str, float]:
    """Scores the maps of nouns that captioners wrote themselves.

    The map of a word is the mean of the maps of its tokens. `wanted` maps image id and noun to its
    boxes.

    Returns:
        `generated_match_rate`, percent of the nouns that were written; and, if any was, the means
        of `PhraseScores` as `generated_...`.
    """
    words = {name: vocabulary.base_words(caption.text) for name, caption in captions.items()}
    maps, boxes, images = [], [], []
    for (image_id, noun), boxes_of in wanted.items():
        own = words.get(image_id, [])
        if noun in own:
            caption = captions[image_id]
            first, last = spans(own, caption.words)[own.index(noun)]
            maps.append(caption.alpha[first : last + 1].mean(axis=0))
            boxes.append(boxes_of)
            images.append(image_id)
    means = score_phrases(maps, boxes, images).means() if maps else {}
    rate = 100.0 * len(maps) / max(len(wanted), 1)
    return {"generated_match_rate": rate} | {f"generated_{k}": v for k, v in means.items()}
