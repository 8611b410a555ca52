"""Grounding of attention in the boxes of what captions name: drawn scenes, and `--boxes PATH`."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from sat_tf.captions import Caption
from sat_tf.tokens import spans
from sat_tf.vocabulary import Vocabulary
from training.data.batches import CaptionTable
from training.data.boxes import WORDS, Placed, PlacedBoxes, PlacedPhrase
from training.data.examples import Box, Phrase, Split
from training.evaluate.reading import Reading
from training.metrics.bootstrap import Interval
from training.metrics.grounding import (
    METRICS,
    SMALL,
    grounding_scores,
    image_means,
    over_images,
    score_phrases,
)

_BATCH = 64
_VARIANTS = ("", "_uniform", "_other")


class PhraseMap(NamedTuple):
    """Attention that predicted the head noun of a reference noun phrase.

    Attributes:
        image_id: Image of the phrase.
        phrase: Phrase with its box.
        alpha: `[h, w]`.
    """

    image_id: str
    phrase: Phrase
    alpha: np.ndarray


@dataclass(frozen=True)
class BoxGrounding:
    """Grounding of a captioner in the boxes of phrases.

    Attributes:
        scores: Every score, by name.
        intervals: Intervals over images.
        by_image: Image id -> scores and sizes, see `training.metrics.grounding`.
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


def phrase_maps(reading: Reading) -> Iterator[PhraseMap]:
    """Yields the map of every reference noun phrase of the readable images.

    A word of several tokens has the mean of their maps.
    """
    captioner, split, table = reading.captioner, reading.split, reading.table
    vocabulary = captioner.vocabulary
    phrases: dict[tuple[int, int], list[Phrase]] = defaultdict(list)
    for image, example in enumerate(split.examples):
        for phrase in example.phrases:
            phrases[image, phrase.caption].append(phrase)
    rows = _captions_with(phrases, reading)
    for start in range(0, len(rows), _BATCH):
        chosen = rows[start : start + _BATCH]
        annotations = reading.annotations(table.image_index[chosen])
        _, alphas = reading.words(annotations, [table.tokens[row] for row in chosen])
        for row, alpha in zip(chosen, alphas, strict=True):
            image, caption = _place(table, row)
            text = split.examples[image].captions[caption]
            places = vocabulary.places(text)
            for phrase in phrases[image, caption]:
                _, first, last = places[phrase.word]
                alpha_of_word = alpha[first : last + 1].mean(axis=0).reshape(captioner.grid)
                yield PhraseMap(split.examples[image].image_id, phrase, alpha_of_word)


def ground_drawn(reading: Reading, captions: Mapping[str, Caption]) -> BoxGrounding:
    """Scores where a captioner looks by the boxes that the data set itself has, of drawn scenes.

    Args:
        reading: The captioner on a split.
        captions: Generated captions by image id.
    """
    maps = [*phrase_maps(reading)]
    scores, by_image = reference_grounding(maps)
    own = generated_grounding(captions, reading.split, reading.captioner.vocabulary)
    return BoxGrounding(scores | own, by_image=by_image)


def reference_grounding(
    found: Sequence[PhraseMap],
) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """Scores the teacher-forced map of every reference noun phrase.

    Returns:
        Scores, those of phrases held out of training with the suffix `_held_out`; and image id ->
        `phrases`, and the means over them of `pointing_game` and `attention_correctness`.
    """
    maps, boxes = [one.alpha for one in found], [one.phrase.box for one in found]
    ids = [one.image_id for one in found]
    scores = grounding_scores(maps, boxes, groups=ids)
    held_out = [one for one in found if not one.phrase.seen]
    if held_out:
        part = grounding_scores([o.alpha for o in held_out], [o.phrase.box for o in held_out])
        scores |= {f"{name}_held_out": part[name] for name in METRICS}
    values = score_phrases(maps, [[box] for box in boxes], ids).values
    sizes = {"phrases": np.ones(len(found))}
    return scores, image_means(ids, sizes, {name: values[name] for name in METRICS})


def generated_grounding(
    captions: Mapping[str, Caption], split: Split, vocabulary: Vocabulary = WORDS
) -> dict[str, float]:
    """Scores the maps of reference noun phrases that generated captions repeat word for word.

    Returns:
        `generated_match_rate`, the share of the distinct reference phrases of each image found in
        its caption, and the scores over these, `generated_pointing_game` and
        `generated_attention_correctness`, if any was found.
    """
    wanted = {
        (example.image_id, phrase.text): [phrase.box]
        for example in split.examples
        if example.image_id in captions
        for phrase in example.phrases
    }
    rate, maps, boxes, _ = _written(captions, wanted, vocabulary)
    if not maps:
        return rate
    found = grounding_scores(maps, [box for (box,) in boxes])
    return rate | {f"generated_{name}": found[name] for name in METRICS}


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
    reading: Reading,
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
        reading: The captioner on a split.
        boxes: Phrases of the split, from `place_boxes`.
        captions: Generated captions by image id.
    """
    placed, vocabulary = boxes.phrases, reading.captioner.vocabulary
    found = _read_phrases(reading, placed)
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
    nouns: dict[tuple[str, str], list[Box]] = defaultdict(list)
    for (image, _), phrases in placed.items():
        for one in phrases:
            noun = vocabulary.base_words(one.phrase.text)[-1]
            nouns[reading.split.examples[image].image_id, noun] += one.phrase.boxes
    boxes_of = [one.phrase.boxes for one in found.phrases]
    types = [one.phrase.types for one in found.phrases]
    result = score_phrases(found.maps, boxes_of, images, types)
    scores |= result.means() | _generated(captions, nouns, vocabulary)
    intervals |= result.intervals()
    details |= {"by_type": result.by_type()}
    sizes |= {"phrases": np.ones(len(images)), "phrases_small": result.shares < SMALL}
    by_image = image_means(images, sizes, values | dict(result.values))
    return BoxGrounding(scores, intervals, by_image, details, nouns)


def _read_phrases(reading: Reading, placed: Placed) -> _Found:
    captioner, table, found = reading.captioner, reading.table, _Found()
    # Neighbours in length share a batch, so that little is padding.
    rows = _captions_with(placed, reading)
    rows = np.array(sorted(rows, key=lambda row: len(table.tokens[row])))
    pool = np.unique(table.image_index[rows])
    for start in range(0, len(rows), _BATCH):
        chosen = rows[start : start + _BATCH]
        tokens = [table.tokens[row] for row in chosen]
        different, numbers = np.unique(table.image_index[chosen], return_inverse=True)
        # The other image is the next one of the pool: scores do not depend on the batches.
        next_ones = pool[(np.searchsorted(pool, different) + 1) % len(pool)]
        own, others = (
            np.asarray(reading.annotations(images), np.float32)[numbers]
            for images in (different, next_ones)
        )
        outputs = {
            "": reading.words(own, tokens),
            "_uniform": reading.words(own, tokens, uniform=True),
            "_other": reading.words(others, tokens),
        }
        for n, row in enumerate(chosen):
            image, caption = _place(table, row)
            for phrase in placed[image, caption]:
                span = slice(phrase.first, phrase.last + 1)
                found.phrases.append(phrase)
                found.images.append(reading.split.examples[image].image_id)
                found.words.append(phrase.last + 1 - phrase.first)
                for kind, (log_lik, _) in outputs.items():
                    found.log_lik[kind].append(float(log_lik[n, span].sum()))
                if captioner.config.attention.kind != "none":
                    # That of the last word: the mean of its tokens'.
                    alpha = outputs[""][1][n, phrase.head : phrase.last + 1].mean(axis=0)
                    found.maps.append(alpha.reshape(captioner.grid))
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


def _generated(
    captions: Mapping[str, Caption],
    nouns: Mapping[tuple[str, str], Sequence[Box]],
    vocabulary: Vocabulary,
) -> dict[str, float]:
    """Scores the captioner's own maps at the head nouns that it wrote."""
    rate, *found = _written(captions, nouns, vocabulary)
    if not found[0]:
        return rate
    means = score_phrases(*found).means()
    wanted = (*METRICS, *(f"{metric}_small" for metric in METRICS))
    kept = {name: value for name, value in means.items() if name.startswith(wanted)}
    return rate | {f"generated_{name}": value for name, value in kept.items()}


def _written(
    captions: Mapping[str, Caption],
    wanted: Mapping[tuple[str, str], Sequence[Box]],
    vocabulary: Vocabulary,
) -> tuple[dict[str, float], list[np.ndarray], list[Sequence[Box]], list[str]]:
    """Finds the phrases that generated captions repeat word for word.

    Args:
        captions: Generated captions by image id.
        wanted: (image id, phrase) -> its boxes.
        vocabulary: Splits captions into words.

    Returns:
        `generated_match_rate`, percent; and of each phrase found the map of its last word, that is
        the mean of the maps of its tokens, the boxes and the image id.
    """
    words = {name: vocabulary.base_words(caption.text) for name, caption in captions.items()}
    maps, boxes, images = [], [], []
    for (image_id, text), boxes_of in wanted.items():
        own, phrase = words.get(image_id, []), text.split()
        for end in range(len(phrase), len(own) + 1):
            if own[end - len(phrase) : end] == phrase:
                caption = captions[image_id]
                first, last = spans(own, caption.words)[end - 1]
                maps.append(caption.alpha[first : last + 1].mean(axis=0))
                boxes.append(boxes_of)
                images.append(image_id)
                break
    rate = 100.0 * len(maps) / max(len(wanted), 1)
    return {"generated_match_rate": rate}, maps, boxes, images
