"""Free-running captions of a split, their scores, and where attention looked."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import tensorflow as tf

from sat_tf.config import SearchConfig
from sat_tf.losses import word_log_likelihood
from sat_tf.models.objective import word_mask
from sat_tf.runs import Caption, TrainedCaptioner, batches
from sat_tf.vocabulary import tokenize
from training.datasets.base import Split
from training.datasets.batches import caption_table
from training.datasets.sources import Source, rows_with_pictures, scoring_batches
from training.metrics.captions import CaptionScores, score_captions
from training.metrics.grounding import grounding_by_group, grounding_scores

_GROUNDING = ("pointing_game", "attention_correctness")
_NO_WORDS = "Where attention looked is left out: boxes are of words, the tokens are characters."


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What an evaluation found.

    Attributes:
        captions: Image id -> caption.
        caption_scores: Of the captions, with what intervals need.
        scores: Every figure, by name.
        seconds: What took how long.
        notes: What was left out, and why.
        grounding: Image id -> `phrases`, and the means over them of `pointing_game` and
            `attention_correctness`; empty where the data has no boxes, or the captioner no maps.
    """

    captions: dict[str, Caption]
    caption_scores: CaptionScores
    scores: dict[str, float]
    seconds: dict[str, float]
    notes: tuple[str, ...] = ()
    grounding: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


def evaluate(
    captioner: TrainedCaptioner,
    split: Split,
    source: Source,
    search: SearchConfig,
    batch_size: int = 50,
    language: str = "en",
) -> Evaluation:
    """Caption every picture of a split and score the captions against the raw references.

    Args:
        captioner: The model.
        split: References, and boxes where it has them.
        source: Its pictures or annotations.
        search: Beam and length normalisation.
        batch_size: Pictures searched at once.
        language: Of the captions, a code such as "de".

    Returns:
        An `Evaluation`.
    """
    start = time.monotonic()
    captions = caption_split(captioner, split, source, search, batch_size)
    searched = time.monotonic()
    references = {e.image_id: list(e.captions) for e in split.examples if e.image_id in captions}
    texts = {image_id: caption.text for image_id, caption in captions.items()}
    unit = captioner.vocabulary.unit
    caption_scores = score_captions(texts, references, language=language, unit=unit)
    scores = dict(caption_scores.scores)
    scored = time.monotonic()
    scores |= likelihood(captioner, split, source)
    notes: tuple[str, ...] = ()
    by_picture: dict[str, dict[str, float]] = {}
    if any(example.phrases for example in split.examples):
        scores |= word_scores(texts, split)
        if captioner.config.attention.kind != "none":
            if unit == "words":
                found, by_picture = grounding(captioner, split, source)
                scores |= found
                scores |= generated_grounding(captions, split)
            else:
                notes = (_NO_WORDS,)
    end = time.monotonic()
    seconds = {
        "search": searched - start,
        "caption metrics": scored - searched,
        "teacher forcing": end - scored,
    }
    return Evaluation(captions, caption_scores, scores, seconds, notes, by_picture)


def caption_split(
    captioner: TrainedCaptioner,
    split: Split,
    source: Source,
    search: SearchConfig,
    batch_size: int = 50,
    count: int | None = None,
) -> dict[str, Caption]:
    """Image id -> caption, for the pictures of a split that can be read (the first `count`)."""
    readable = np.setdiff1d(np.arange(len(split)), list(source.set_aside))[:count]
    captions = {}
    for part in batches(len(readable), batch_size):
        indices = readable[part]
        found = captioner.describe(annotations_of(captioner, source, indices), search)
        ids = [split.examples[index].image_id for index in indices]
        captions |= dict(zip(ids, found, strict=True))
    return captions


def annotations_of(
    captioner: TrainedCaptioner, source: Source, indices: np.ndarray
) -> tf.Tensor | np.ndarray:
    """Annotations `[n, L, D]` of examples by index."""
    inputs = source.read(indices)
    return inputs if source.key == "annotations" else captioner.annotate(inputs)


def likelihood(captioner: TrainedCaptioner, split: Split, source: Source) -> dict[str, float]:
    """Teacher-forced `nll`, nats a token, and its `perplexity`, over the reference captions.

    Those of pictures that can be read, each cut to the search's `max_length`.
    """
    table = caption_table(split, captioner.vocabulary, captioner.config.search.max_length)
    forced = _TeacherForcing(captioner)
    total = words = 0.0
    for batch in scoring_batches(source, table, batch_size=64)[0]:
        log_lik, count = forced.log_likelihood(batch)
        total, words = total + float(log_lik), words + float(count)
    return {"nll": -total / words, "perplexity": float(np.exp(-total / words))}


def grounding(
    captioner: TrainedCaptioner, split: Split, source: Source
) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """Pointing game and attention correctness, teacher-forced over every reference noun phrase.

    The map of a phrase is the alpha that predicted its head noun; the captioner's tokens have to be
    words.

    Returns:
        The figures; those of phrases held out of training end in `_held_out`. And those of each
        picture, by its id: see `grounding_by_group`.
    """
    longest = max(len(tokenize(c)) for e in split.examples for c in e.captions)
    table = caption_table(split, captioner.vocabulary, longest)
    rows = rows_with_pictures(table, source)
    forced = _TeacherForcing(captioner)
    phrases = {}
    for image, example in enumerate(split.examples):
        for phrase in example.phrases:
            phrases.setdefault((image, phrase.caption), []).append(phrase)
    maps, boxes, seen, groups = [], [], [], []
    for part in batches(len(rows), 64):
        chosen = rows[part]
        inputs = source.read(table.image_index[chosen])
        alphas = forced.alphas({source.key: inputs}, [table.tokens[row] for row in chosen])
        for row, alpha in zip(chosen, alphas, strict=True):
            place = int(table.image_index[row]), int(table.caption_index[row])
            for phrase in phrases.get(place, ()):
                maps.append(alpha[phrase.word].reshape(captioner.grid))
                boxes.append(phrase.box)
                seen.append(phrase.seen)
                groups.append(place[0])
    scores = grounding_scores(maps, boxes, groups=groups)
    held_out = [index for index, known in enumerate(seen) if not known]
    if held_out:
        part = grounding_scores([maps[i] for i in held_out], [boxes[i] for i in held_out])
        scores |= {f"{name}_held_out": part[name] for name in _GROUNDING}
    ids = [split.examples[group].image_id for group in groups]
    return scores, grounding_by_group(maps, boxes, ids)


def generated_grounding(captions: dict[str, Caption], split: Split) -> dict[str, float]:
    """The same on generated captions: noun phrases of the reference that the caption repeats.

    `generated_match_rate` is the share of a picture's distinct reference phrases found, word for
    word, in its caption; only these have a map.
    """
    maps, boxes, wanted = [], [], 0
    for example in split.examples:
        caption = captions.get(example.image_id)
        if caption is None:
            continue
        distinct = {phrase.text: phrase.box for phrase in example.phrases}
        wanted += len(distinct)
        for text, box in distinct.items():
            end = _last_word(caption.words, text.split())
            if end is not None:
                maps.append(caption.alpha[end])
                boxes.append(box)
    scores = {"generated_match_rate": 100.0 * len(maps) / max(wanted, 1)}
    if maps:
        found = grounding_scores(maps, boxes)
        scores |= {f"generated_{name}": found[name] for name in _GROUNDING}
    return scores


def _last_word(words: tuple[str, ...], phrase: list[str]) -> int | None:
    """Where the phrase ends in the caption, if it is there."""
    for start in range(len(words) - len(phrase) + 1):
        if list(words[start : start + len(phrase)]) == phrase:
            return start + len(phrase) - 1
    return None


def word_scores(texts: dict[str, str], split: Split) -> dict[str, float]:
    """Accuracy of colour, shape and relation words, of drawn scenes."""
    # Its words are those of one data set.
    from training.metrics.scene_words import word_accuracy

    accuracy = word_accuracy(texts, split)
    return {f"words_{re.sub(r'[^a-z_]', '_', name)}": value for name, value in accuracy.items()}


class _TeacherForcing:
    """The model read with the true previous words, compiled."""

    def __init__(self, captioner: TrainedCaptioner) -> None:
        self._model = captioner.model
        self.log_likelihood = tf.function(
            self._log_likelihood, autograph=False, reduce_retracing=True
        )
        self._alpha = tf.function(self._alphas, autograph=False, reduce_retracing=True)

    def _log_likelihood(self, batch):
        targets = batch["tokens"][:, 1:]
        mask = word_mask(targets)
        taught = self._model(batch, selection=self._selection)
        log_lik = word_log_likelihood(taught.logits, targets, mask)
        return tf.reduce_sum(log_lik), tf.reduce_sum(mask)

    def _alphas(self, batch):
        return tf.nn.softmax(self._model(batch, selection=self._selection).alignment_scores)

    @property
    def _selection(self):
        # A sample would make the figures of two evaluations differ.
        return "expectation" if self._model.selection == "sample" else self._model.selection

    def alphas(self, inputs: dict[str, np.ndarray], tokens: list[np.ndarray]) -> list[np.ndarray]:
        """Alpha `[T, L]` of each caption."""
        from training.datasets.batches import pad_tokens

        alpha = self._alpha(inputs | {"tokens": pad_tokens(tokens)}).numpy()
        return [alpha[row, : len(ids) - 1] for row, ids in enumerate(tokens)]
