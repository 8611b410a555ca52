"""Grounding on photographs: attention and words against the boxes of phrases, `--boxes PATH`."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sat_tf.runs import Caption
from sat_tf.vocabulary import tokenize
from training.data.batches import readable_rows
from training.data.box_files import read_boxes
from training.data.boxes import PlacedPhrase, place_phrases, skipped_note, visible_phrases
from training.data.bucketing import CaptionTable, caption_table
from training.data.examples import Box, DataError, Split
from training.data.input_source import InputSource
from training.evaluate.teacher_forcing import TeacherForcing
from training.metrics.bootstrap import Interval
from training.metrics.grounding import METRICS, SMALL, score_phrases
from training.metrics.image_means import image_means, over_images

_BATCH = 64
_VARIANTS = ("", "_uniform", "_other")


@dataclass(frozen=True)
class BoxGrounding:
    """Grounding of a captioner in the boxes of phrases.

    Attributes:
        scores: Every score, by name.
        intervals: Intervals over images.
        by_image: Image id -> scores and sizes, see `training.metrics.image_means`.
        details: `phrases`, `skipped` (reason -> count), `boxes` (their SHA-256) and `by_type`
            (type -> scores), for the report.
        nouns: (image id, head noun) -> the boxes of all phrases of the image with that noun, in
            the encoder's view.
    """

    scores: Mapping[str, float]
    intervals: Mapping[str, Interval] = field(default_factory=dict)
    by_image: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)
    nouns: Mapping[tuple[str, str], Sequence[Box]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class PlacedBoxes:
    """Phrases of a split's captions with their boxes.

    Attributes:
        path: The file or folder that they are of.
        phrases: (image index, caption index) -> phrases, with boxes in the encoder's view.
        skipped: Reason -> how many boxes or phrases were left out for it.
    """

    path: Path
    phrases: Mapping[tuple[int, int], Sequence[PlacedPhrase]]
    skipped: Mapping[str, int]


def place_boxes(path: Path, split: Split, resize: str) -> PlacedBoxes:
    """Reads boxes and finds the phrases of a split's captions among them.

    Args:
        path: Boxes, see `training.data.box_files`.
        split: Images with reference captions.
        resize: Policy of the encoder, `crop` or `squash`.

    Raises:
        DataError: The boxes cannot be read, or none is of a phrase of this split.
    """
    phrases, outside = read_boxes(path)
    placed, dropped = place_phrases(split.examples, phrases)
    placed, unseen = visible_phrases(split.examples, placed, resize)
    skipped = outside + dropped + unseen
    if not placed:
        why = skipped_note(skipped)
        raise DataError(f"{path} has no usable phrase of the {split.name} split's captions{why}.")
    return PlacedBoxes(path, placed, dict(skipped))


@dataclass
class _Found:
    """Maps and log-likelihoods of the phrases read so far."""

    maps: list[np.ndarray] = field(default_factory=list)
    phrases: list[PlacedPhrase] = field(default_factory=list)
    images: list[str] = field(default_factory=list)
    words: list[int] = field(default_factory=list)
    log_lik: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def nll(self) -> dict[str, np.ndarray]:
        """Nats per word of each phrase, by score."""
        words = np.array(self.words)
        nll = {f"nll_phrase{kind}": -np.array(self.log_lik[kind]) / words for kind in _VARIANTS}
        if self.maps:
            nll["nll_phrase_gain"] = nll["nll_phrase_uniform"] - nll["nll_phrase"]
        return nll


def ground(
    forced: TeacherForcing,
    split: Split,
    source: InputSource,
    boxes: PlacedBoxes,
    captions: Mapping[str, Caption],
) -> BoxGrounding:
    """Scores where a captioner looks, and how much it depends on it, by the boxes of phrases.

    Teacher-forced, at the last word of each phrase: `pointing_game` and `attention_correctness`
    with their controls, see `training.metrics.grounding`. Free-running, at each head noun
    (the last word of a phrase) that the captioner wrote itself: the same with `generated_`, against
    the boxes of all phrases of the image with that noun. And nats per word within phrases:
    `nll_phrase`, with the same weight at every location (`_uniform`: what no map could tell), and
    with another image's annotations (`_other`); `nll_phrase_gain`, what looking is worth, is
    `_uniform` minus `nll_phrase`.

    Args:
        forced: The captioner, compiled; its tokens are words.
        split: Images with reference captions.
        source: Images or annotations of the split.
        boxes: Phrases of the split, from `place_boxes`.
        captions: Generated captions by image id.
    """
    placed = boxes.phrases
    found = _read_phrases(forced, split, source, placed)
    images, values, sizes = found.images, found.nll(), {"phrase_words": np.array(found.words)}
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
    nouns = _boxes_of_nouns(split, placed)
    boxes_of = [one.phrase.boxes for one in found.phrases]
    types = [one.phrase.types for one in found.phrases]
    result = score_phrases(found.maps, boxes_of, images, types)
    scores |= result.means() | _generated(captions, nouns)
    intervals |= result.intervals()
    details |= {"by_type": result.by_type()}
    sizes |= {"phrases": np.ones(len(images)), "phrases_small": result.shares < SMALL}
    by_image = image_means(images, sizes, values | dict(result.values))
    return BoxGrounding(scores, intervals, by_image, details, nouns)


def _read_phrases(
    forced: TeacherForcing,
    split: Split,
    source: InputSource,
    placed: Mapping[tuple[int, int], Sequence[PlacedPhrase]],
) -> _Found:
    captioner, found = forced.captioner, _Found()
    longest = max(len(tokenize(c)) for e in split.examples for c in e.captions)
    table = caption_table(split, captioner.vocabulary, longest)
    rows = [row for row in readable_rows(table, source) if _place(table, row) in placed]
    # Neighbours in length share a batch, so that little is padding.
    rows = np.array(sorted(rows, key=lambda row: len(table.tokens[row])))
    pool = np.unique(table.image_index[rows])
    for start in range(0, len(rows), _BATCH):
        chosen = rows[start : start + _BATCH]
        tokens = [table.tokens[row] for row in chosen]
        own, others = _own_and_others(forced, source, table.image_index[chosen], pool)
        outputs = {
            "": forced.words(own, tokens),
            "_uniform": forced.words(own, tokens, uniform=True),
            "_other": forced.words(others, tokens),
        }
        for n, row in enumerate(chosen):
            image, caption = _place(table, row)
            for phrase in placed[image, caption]:
                span = slice(phrase.first, phrase.last + 1)
                found.phrases.append(phrase)
                found.images.append(split.examples[image].image_id)
                found.words.append(phrase.last + 1 - phrase.first)
                for kind, (log_lik, _) in outputs.items():
                    found.log_lik[kind].append(float(log_lik[n, span].sum()))
                if captioner.config.attention.kind != "none":
                    alpha = outputs[""][1][n, phrase.last]
                    found.maps.append(alpha.reshape(captioner.grid))
    return found


def _fingerprint(placed: Mapping[tuple[int, int], Sequence[PlacedPhrase]]) -> str:
    """Returns the SHA-256 (hexadecimal) of phrases and boxes, by which evaluations are compared."""
    # Rounded, so that views and file formats that differ in the last bits are the same boxes.
    found = [
        (place, one.first, one.last, np.round(one.phrase.boxes, 4).tolist())
        for place, phrases in sorted(placed.items())
        for one in phrases
    ]
    return hashlib.sha256(repr(found).encode()).hexdigest()


def _place(table: CaptionTable, row: int) -> tuple[int, int]:
    return int(table.image_index[row]), int(table.caption_index[row])


def _own_and_others(
    forced: TeacherForcing, source: InputSource, images: np.ndarray, pool: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the annotations `[n, L, D]` of images, and of another image for each.

    The other image is the next one of the pool, so that scores do not depend on the batches.
    """
    different, numbers = np.unique(images, return_inverse=True)
    others = pool[(np.searchsorted(pool, different) + 1) % len(pool)]
    return tuple(forced.annotations(source, rows)[numbers] for rows in (different, others))


def _boxes_of_nouns(
    split: Split, placed: Mapping[tuple[int, int], Sequence[PlacedPhrase]]
) -> dict[tuple[str, str], list[Box]]:
    nouns: dict[tuple[str, str], list[Box]] = {}
    for (image, _), phrases in placed.items():
        for phrase in phrases:
            noun = tokenize(phrase.phrase.text)[-1]
            key = split.examples[image].image_id, noun
            nouns.setdefault(key, []).extend(phrase.phrase.boxes)
    return nouns


def _generated(
    captions: Mapping[str, Caption], nouns: Mapping[tuple[str, str], Sequence[Box]]
) -> dict[str, float]:
    """Scores the captioner's own maps at the head nouns that it wrote."""
    maps, boxes, images = [], [], []
    for (image_id, noun), boxes_of in nouns.items():
        caption = captions.get(image_id)
        if caption is not None and noun in caption.words:
            maps.append(caption.alpha[caption.words.index(noun)])
            boxes.append(boxes_of)
            images.append(image_id)
    rate = {"generated_match_rate": 100.0 * len(maps) / len(nouns)}
    if not maps:
        return rate
    means = score_phrases(maps, boxes, images).means()
    wanted = (*METRICS, *(f"{metric}_small" for metric in METRICS))
    kept = {name: value for name, value in means.items() if name.startswith(wanted)}
    return rate | {f"generated_{name}": value for name, value in kept.items()}
