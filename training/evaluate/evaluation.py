"""Evaluation of a captioner: caption a split, score captions and maps, write report and page."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sat_tf.captions import Caption
from sat_tf.config import SearchConfig
from sat_tf.fields import to_dict
from sat_tf.runs import TrainedCaptioner, read_average
from training.config import RunConfig
from training.data.examples import Split
from training.data.input_source import InputSource, open_input_source, readable_images
from training.data.seen_images import find_overlap, read_seen, seen_notes
from training.data.sources import load_split
from training.evaluate.grounding import (
    BoxGrounding,
    PlacedBoxes,
    generated_grounding,
    ground,
    phrase_maps,
    place_boxes,
    reference_grounding,
)
from training.evaluate.likelihood import (
    SAMPLES,
    Bounds,
    References,
    TeacherForcing,
    annotations_of,
    read_references,
)
from training.evaluate.page import write_report_page
from training.evaluate.reports import (
    caption_report,
    console_summary,
    verdict,
    write_captions,
    write_report,
)
from training.metrics.bootstrap import intervals
from training.metrics.calibration import Calibration, calibrate
from training.metrics.captions import CaptionScores, quick_tokens, score_captions
from training.metrics.scene_words import scene_word_confidence, word_scores
from training.metrics.score_tokens import ScoreTokens
from training.run_state.checkpoints import unfinished_note

BOUND_IMAGES = 100
"""Images whose bounds are measured by default."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Captions of a split and their scores.

    Attributes:
        captions: Image id -> caption.
        caption_scores: Scores of the captions, with the statistics that intervals need.
        scores: Every score, by name.
        calibration: Calibration of the words' probabilities; its scores are among `scores`.
        notes: What was left out, and why.
        grounding: Image id -> what `training.metrics.grounding.image_means` gives; empty without
            boxes.
        boxes: Grounding in the boxes of `--boxes`, if any; its scores are among `scores`.
        bounds: Bounds of the likelihood under hard attention, if they were measured.
        seconds: Seconds of each stage.
    """

    captions: dict[str, Caption]
    caption_scores: CaptionScores
    scores: dict[str, float]
    calibration: Calibration
    notes: tuple[str, ...] = ()
    grounding: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    boxes: BoxGrounding | None = None
    bounds: Mapping[str, float] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def texts(self) -> dict[str, str]:
        """Image id -> the caption's text."""
        return {image_id: caption.text for image_id, caption in self.captions.items()}


def evaluate_run(
    captioner: TrainedCaptioner,
    config: RunConfig,
    out: Path,
    cache_dir: Path,
    data_dir: Path | None = None,
    split_name: str = "dev",
    figures: int = 48,
    bound_images: int = BOUND_IMAGES,
    boxes: Path | None = None,
    score_tokens: ScoreTokens | None = None,
) -> dict[str, Any]:
    """Evaluates a run on a split; prints the main scores, writes report, captions and page.

    Args:
        captioner: Best captioner of the run, loaded from its folder.
        config: Configuration of the run; `search` is the one that captions are generated with.
        out: Output folder, such as `RUN/evaluation/SPLIT`.
        cache_dir: Feature stores.
        data_dir: The user's copy of the data set; None for drawn ones.
        split_name: `train`, `dev` or `test`.
        figures: Images on the page.
        bound_images: Images, with one caption each, whose bounds and NWGM gap are measured if
            attention is hard.
        boxes: Boxes of phrases to compare attention with, if any.
        score_tokens: Tokeniser of the scores; that of the language by default.

    Returns:
        The report.
    """
    data, resize = config.data, config.encoder.resize
    split = load_split(data, split_name, data_dir)
    # Before annotations and captions are computed, which take minutes: the file may be wrong.
    placed = None if boxes is None else place_boxes(boxes, split, resize, captioner.vocabulary)
    overlap = find_overlap(read_seen(captioner.path), split.examples, data.name)
    boxed = placed and {split.examples[image].image_id for image, _ in placed.phrases}
    seen = seen_notes(overlap, boxed)
    for note in seen:
        print(f"Warning: {note}", flush=True)
    source = open_input_source(captioner.model.encoder, resize, split, cache_dir)
    start = time.monotonic()
    scored = score_tokens, data.splitting
    found = evaluate(captioner, split, source, config.search, placed, bound_images, *scored)
    report = make_report(captioner, config, split, source.skipped, found)
    report["seconds"] = found.seconds | {"evaluation": time.monotonic() - start}
    report["notes"] = [*seen, *report["notes"]]
    report |= {"seen_in_training": overlap.details()} if overlap else {}
    title = f"{config.recipe}: {data.name} {split.name}"
    write_report(out, report)
    heading = f"{title}, {len(found.captions):,} images, beam {config.search.beam}"
    print(console_summary(heading, report, found.texts, out))
    write_captions(out, found.captions, found.grounding)
    page = write_report_page(out, title, report, captioner, split, found, figures)
    print(f"Page: {page}")
    return report


def evaluate(
    captioner: TrainedCaptioner,
    split: Split,
    source: InputSource,
    search: SearchConfig,
    boxes: PlacedBoxes | None = None,
    bound_images: int = 0,
    score_tokens: ScoreTokens | None = None,
    splitting: Mapping[str, Any] | None = None,
) -> Evaluation:
    """Captions every image of a split and scores the captions against the raw references.

    Args:
        captioner: Trained captioner.
        split: References, and boxes of noun phrases if it has them.
        source: Images or annotations of the split.
        search: Beam and length normalisation.
        boxes: Phrases of the split with their boxes, if any.
        bound_images: Images whose bounds are measured if attention is hard.
        score_tokens: Tokeniser of the scores; that of the language by default.
        splitting: Language of the captions and how they were split, see `default_tokens`.
    """
    seconds: dict[str, float] = {}
    unit, kind = captioner.vocabulary.unit, captioner.config.attention.kind
    with timed(seconds, "search"):
        readable = len(split) - len(source.skipped)
        print(f"Captioning {readable:,} images, beam {search.beam} ...", flush=True)
        captions = caption_split(captioner, split, source, search)
    texts = {image_id: caption.text for image_id, caption in captions.items()}
    references = split.references(of=texts)
    with timed(seconds, "caption metrics"):
        print(f"Scoring {len(captions):,} captions ...", flush=True)
        how = splitting or {}
        caption_scores = score_captions(texts, references, tokens=score_tokens, **how)
        notes = verdict(texts, references, quick_tokens(**how), how.get("language", "en"))
    drawn = any(example.phrases for example in split.examples)
    with timed(seconds, "teacher forcing"):
        print(f"Reading {sum(map(len, references.values())):,} reference captions ...", flush=True)
        forced, read = TeacherForcing(captioner), References.of(captioner, split, source)
        likelihood, words = read_references(forced, read)
        judged = scene_word_confidence(captions, split) if drawn and unit == "words" else None
        about_scenes = word_scores(texts, split) if drawn else {}
        calibration = calibrate(words, judged)
        scores = caption_scores.scores | likelihood | about_scenes | calibration.scores
        grounded, by_image = None, {}
        if drawn and kind != "none":
            found, by_image = reference_grounding(list(phrase_maps(forced, read)))
            scores |= found | generated_grounding(captions, split, captioner.vocabulary)
    if boxes is not None:
        with timed(seconds, "grounding"):
            print(f"Comparing maps with the boxes of {boxes.path} ...", flush=True)
            grounded = ground(forced, read, boxes, captions)
        scores, by_image = scores | grounded.scores, grounded.by_image
    bounds = {}
    if kind == "hard" and bound_images:
        with timed(seconds, "bounds"):
            measured = Bounds(captioner, read, bound_images)
            print(f"Measuring the bounds of {len(measured):,} captions ...", flush=True)
            bounds = {"images": len(measured), "samples": SAMPLES} | measured.measure()
    return Evaluation(
        captions, caption_scores, scores, calibration, notes, by_image, grounded, bounds, seconds
    )


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


def make_report(
    captioner: TrainedCaptioner,
    config: RunConfig,
    split: Split,
    unreadable: Mapping[int, str],
    found: Evaluation,
) -> dict[str, Any]:
    """Assembles the report: scores, and everything needed to compare them with others."""
    scores = found.caption_scores
    report = caption_report(split, scores, found.scores, intervals(scores))
    report["notes"] += found.notes
    # The configuration does not tell of the runs that weights are an average of.
    shares = read_average(captioner.path).items()
    if average := ", ".join(f"{share:g} of {Path(run).name}" for run, share in shares):
        report["notes"] += (f"The weights are an average: {average}.",)
    report["notes"] += unfinished_note(captioner.path)
    report["intervals"] |= found.calibration.intervals
    report["calibration"] = found.calibration.details()
    if found.boxes is not None:
        report["intervals"] |= found.boxes.intervals
        report["grounding"] = found.boxes.details
    if found.bounds:
        report["bounds"] = found.bounds
    return report | {
        "skipped": split.unusable(unreadable),
        "weights_sha256": captioner.weights_sha256,
        "recipe": config.recipe,
        "seed": config.seed,
        "data": config.data.name,
        "search": {**to_dict(config.search), "attention": captioner.model.selection},
        "configuration": to_dict(config),
    }


@contextlib.contextmanager
def timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    """Enters the seconds of a stage by its name when it ends."""
    start = time.monotonic()
    yield
    seconds[name] = time.monotonic() - start
