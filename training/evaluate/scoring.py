"""Captions of a split, generated and scored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sat_tf.config import SearchConfig
from sat_tf.runs import Caption, TrainedCaptioner
from training.data.examples import Split
from training.data.input_source import InputSource, annotations_of, readable_images
from training.evaluate.attention_scores import generated_grounding, reference_grounding
from training.evaluate.box_grounding import BoxGrounding, PlacedBoxes, ground
from training.evaluate.stages import timed
from training.evaluate.teacher_forcing import TeacherForcing, phrase_maps, read_references
from training.evaluate.word_confidence import Calibration, calibrate, scene_word_confidence
from training.metrics.captions import CaptionScores, score_captions
from training.metrics.scene_words import word_scores

_NO_WORDS = "Where attention looked is left out: boxes are of words, the tokens are characters."


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Captions of a split and their scores.

    Attributes:
        captions: Image id -> caption.
        caption_scores: Scores of the captions, with the statistics that intervals need.
        scores: Every score, by name.
        calibration: Calibration of the words' probabilities; its scores are among `scores`.
        notes: What was left out, and why.
        grounding: Image id -> the scores of `training.metrics.image_means` and what they are means
            over; empty without boxes.
        boxes: Grounding in the boxes of `--boxes`, if any; its scores are among `scores`.
    """

    captions: dict[str, Caption]
    caption_scores: CaptionScores
    scores: dict[str, float]
    calibration: Calibration
    notes: tuple[str, ...] = ()
    grounding: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    boxes: BoxGrounding | None = None


def evaluate(
    captioner: TrainedCaptioner,
    split: Split,
    source: InputSource,
    search: SearchConfig,
    batch_size: int = 50,
    language: str = "en",
    seconds: dict[str, float] | None = None,
    boxes: PlacedBoxes | None = None,
) -> Evaluation:
    """Captions every image of a split and scores the captions against the raw references.

    Args:
        captioner: Trained captioner.
        split: References, and boxes of noun phrases if it has them.
        source: Images or annotations of the split.
        search: Beam and length normalisation.
        batch_size: Images per search.
        language: Language code of the captions, such as "de".
        seconds: Takes the seconds of each stage.
        boxes: Phrases of the split with their boxes, if any.
    """
    seconds, unit = {} if seconds is None else seconds, captioner.vocabulary.unit
    readable = len(split) - len(source.skipped)
    with timed(seconds, "search", f"Captioning {readable:,} images, beam {search.beam}"):
        captions = caption_split(captioner, split, source, search, batch_size)
    with timed(seconds, "caption metrics", f"Scoring {len(captions):,} captions"):
        texts = {image_id: caption.text for image_id, caption in captions.items()}
        references = split.references(of=texts)
        caption_scores = score_captions(texts, references, language=language, unit=unit)
    count = sum(map(len, references.values()))
    with timed(seconds, "teacher forcing", f"Reading {count:,} reference captions"):
        forced = TeacherForcing(captioner)
        likelihood, words = read_references(forced, split, source)
        drawn = any(example.phrases for example in split.examples)
        judged = scene_word_confidence(captions, split) if drawn and unit == "words" else None
        calibration = calibrate(words, judged)
        by_scene, by_image = _scene_scores(forced, split, source, captions) if drawn else ({}, {})
    scores = caption_scores.scores | likelihood | calibration.scores | by_scene
    grounded = None
    if boxes is not None and unit == "words":
        with timed(seconds, "grounding", f"Comparing maps with the boxes of {boxes.path}"):
            grounded = ground(forced, split, source, boxes, captions)
        scores, by_image = scores | grounded.scores, grounded.by_image
    located = boxes is not None or (drawn and captioner.config.attention.kind != "none")
    notes = (_NO_WORDS,) if located and unit != "words" else ()
    return Evaluation(captions, caption_scores, scores, calibration, notes, by_image, grounded)


def _scene_scores(
    forced: TeacherForcing, split: Split, source: InputSource, captions: Mapping[str, Caption]
) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """Scores the words about drawn scenes, and where attention looked for them.

    Returns:
        The scores, and those of attention by image.
    """
    captioner = forced.captioner
    scores = word_scores({image_id: c.text for image_id, c in captions.items()}, split)
    if captioner.config.attention.kind == "none" or captioner.vocabulary.unit != "words":
        return scores, {}
    found, by_image = reference_grounding(list(phrase_maps(forced, split, source)))
    return scores | found | generated_grounding(captions, split), by_image


def caption_split(
    captioner: TrainedCaptioner,
    split: Split,
    source: InputSource,
    search: SearchConfig,
    batch_size: int = 50,
    count: int | None = None,
) -> dict[str, Caption]:
    """Captions the readable images of a split, or the first `count` of them, by image id."""
    readable = readable_images(split, source, count)
    captions = {}
    for start in range(0, len(readable), batch_size):
        indices = readable[start : start + batch_size]
        found = captioner.describe(annotations_of(captioner, source, indices), search)
        ids = [split.examples[index].image_id for index in indices]
        captions |= dict(zip(ids, found, strict=True))
    return captions
