"""Evaluation of a captioner: caption a split, score captions and maps, write report and page."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sat_tf.config import SearchConfig
from sat_tf.inference.captioning import TrainedCaptioner
from sat_tf.inference.captions import Caption
from sat_tf.inference.run_folder import RunFolder, read_average
from sat_tf.scores.tokens import ScoreTokens
from sat_tf.util.fields import to_dict
from sat_tf.util.files import default_cache_dir
from training.data.boxes import PlacedBoxes, place_boxes
from training.data.config import DataConfig
from training.data.dataset import read_split, recorded_data
from training.data.input_source import open_input_source
from training.evaluation.bounds import SAMPLES, Bounds
from training.evaluation.deletion import SHARES, delete
from training.evaluation.grounding import BoxGrounding, ground, ground_drawn
from training.evaluation.page import write_report_page
from training.evaluation.reading import Reading
from training.evaluation.report import caption_rows, package_versions, write_evaluation
from training.evaluation.scores import score_captions
from training.limits import judge_captions, learn_confidence, no_confidence
from training.metrics.calibration import calibration_error, reliability
from training.run.checkpoints import unfinished_note

BOUND_IMAGES, FIGURES = 100, 48
"""Images whose bounds are measured, and images on the page, by default."""

MANY_UNKNOWN = 0.1
"""Share of unknown words above which likelihoods say little about captions."""


@dataclass(frozen=True)
class Request:
    """An evaluation that is asked for.

    Attributes:
        out: Folder of its report.
        split: Name of the split.
        data_dir: The user's copy of the data set; None for drawn data.
        cache_dir: Feature stores; None for the default.
        boxes: Boxes of phrases, if there are any beside the data set's own.
        score_tokens: Tokeniser of the scores; None for that of the language.
        bound_images: Images whose bounds are measured, of hard attention.
        figures: Images on the page.
        learn_confidence: Learn the captioner's confidence from these captions, and write it.
        deletion: Test maps by deletion.
    """

    out: Path
    split: str = "dev"
    data_dir: Path | None = None
    cache_dir: Path | None = None
    boxes: Path | None = None
    score_tokens: ScoreTokens | None = None
    bound_images: int | None = None
    figures: int | None = None
    deletion: bool = False
    learn_confidence: bool = False


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Captions of a split and their scores.

    Attributes:
        report: Scores, intervals and notes, see `write_report`.
        captions: Image id -> caption.
        cider: Image id -> CIDEr of its caption.
        grounding: Grounding of maps in boxes, those of `--boxes` if there are any.
    """

    report: dict[str, Any]
    captions: dict[str, Caption]
    cider: dict[str, float]
    grounding: BoxGrounding


def evaluate_run(
    captioner: TrainedCaptioner,
    data: DataConfig,
    search: SearchConfig,
    settings: Mapping[str, Any],
    request: Request,
) -> None:
    """Evaluates a run on a split; prints the main scores, writes report, captions and page.

    The captioner is the best one, loaded from the run's folder; all `settings` go into the report.
    """
    config, resize = captioner.config, captioner.config.encoder.resize
    cache_dir = request.cache_dir or default_cache_dir()
    record = recorded_data(captioner.path, request.data_dir)
    split = read_split(data, request.split, request.data_dir, cache_dir, record)
    boxes = None
    if request.boxes is not None or (split.has_phrases and config.attention.kind != "none"):
        # Before annotations and captions are computed, which take minutes: the file may be wrong.
        boxes = place_boxes(request.boxes, split, resize, captioner.vocabulary)
    source = open_input_source(captioner.model.encoder, resize, split, cache_dir)
    start = time.monotonic()
    reading = Reading(captioner, split, source)
    file = RunFolder(captioner.path).confidence if request.learn_confidence else None
    asked = request.score_tokens, request.bound_images, file
    found = evaluate(reading, data, search, boxes, *asked)
    report = found.report
    # The configuration does not tell of the runs that weights are an average of.
    shares = read_average(captioner.path).items()
    average = ", ".join(f"{share:g} of {Path(run).name}" for run, share in shares)
    of_weights = (f"The weights are an average: {average}.",) if average else ()
    report |= {
        "notes": [*report["notes"], *of_weights, *unfinished_note(captioner.path)],
        "weights_sha256": captioner.weights_sha256,
        "recipe": settings["recipe"],
        "seed": settings["seed"],
        "data": data.name,
        "search": {**to_dict(search), "attention": captioner.model.selection},
        "configuration": dict(settings),
    }
    if request.deletion:
        _delete(reading, found)
    report["seconds"]["evaluation"] = time.monotonic() - start
    count = len(found.captions)
    title = f"{settings['recipe']} on {count:,} {split.name} image{'' if count == 1 else 's'}"
    heading = f"{title}, beam {search.beam}"
    rows = caption_rows(found.captions, found.grounding.by_image)
    write_evaluation(request.out, heading, report, rows)
    figures = FIGURES if request.figures is None else request.figures
    page = write_report_page(request.out, title, reading, found, figures)
    print(f"Page: {page}")


def _delete(reading: Reading, found: Evaluation) -> None:
    """Tests maps by deletion, and puts the result into the report."""
    report, mean = found.report, reading.captioner.limits.familiarity.mean
    with timed(report["seconds"], "deletion"):
        print(f"Reading {len(found.captions):,} captions with places deleted ...", flush=True)
        deletion = delete(reading, found.captions, mean)
    if not len(deletion.words):
        report["notes"].append("No caption has two content words to test by deletion.")
        return
    report["deletion"] = deletion.details()
    first = report["deletion"][f"{SHARES[0]}"]
    main = {"deletion_fall": first["attended"], "deletion_ratio": first["ratio"]}
    report["intervals"] |= main
    report["scores"] |= {name: interval.difference for name, interval in main.items()}


def evaluate(
    reading: Reading,
    data: DataConfig,
    search: SearchConfig,
    boxes: PlacedBoxes | None = None,
    score_tokens: str | None = None,
    bound_images: int | None = None,
    confidence: Path | None = None,
) -> Evaluation:
    """Captions every image of a split and scores the captions against the raw references.

    Args:
        reading: The captioner on the split.
        data: Its data set: how captions are split.
        search: How captions are searched for.
        boxes: Phrases of the split with their boxes, its own or those of a file, if any.
        score_tokens: See `Request`.
        bound_images: See `Request`; by default `BOUND_IMAGES`.
        confidence: File for the chance of a caption of being right, to be learned from these.
    """
    captioner, split = reading.captioner, reading.split
    kind = captioner.config.attention.kind
    seconds: dict[str, float] = {}
    with timed(seconds, "search"):
        readable = len(split) - len(reading.source.skipped)
        print(f"Captioning {readable:,} images, beam {search.beam} ...", flush=True)
        captions = reading.captions(search)
    texts = {image_id: caption.text for image_id, caption in captions.items()}
    references = split.references(of=texts)
    with timed(seconds, "caption metrics"):
        print(f"Scoring {len(captions):,} captions ...", flush=True)
        scored = score_captions(texts, references, tokens=score_tokens, **data.splitting)
    report = scored.details() | split.details(reading.source.skipped)
    report |= {"versions": package_versions(), "seconds": seconds}
    report["notes"] += scored.verdict
    scores, intervals, grounding = report["scores"], report["intervals"], BoxGrounding({})
    captions = _with_confidence(reading, search, captions, scored.right, report, confidence)
    with timed(seconds, "teacher forcing"):
        print(f"Reading {sum(map(len, references.values())):,} reference captions ...", flush=True)
        likelihood, words = reading.likelihood()
        if reading.unknown_share > MANY_UNKNOWN:
            report["notes"].append(
                f"{reading.unknown_share:.0%} of the references' {captioner.vocabulary.unit} are "
                "unknown to the captioner: perplexity and calibration count them all as one."
            )
        scores |= likelihood
        error, bins = calibration_error(words), reliability(words)
        scores |= {
            "calibration_error": error.difference,
            "next_word_accuracy": 100.0 * float(words.right.mean()),
            "next_word_confidence": 100.0 * float(words.confidence.mean()),
        }
        intervals["calibration_error"] = error
        report["calibration"] = {name: np.round(each, 2) for name, each in bins._asdict().items()}
    if boxes is not None:
        with timed(seconds, "grounding"):
            print(f"Comparing maps with boxes of {boxes.path or 'the drawings'} ...", flush=True)
            compared = ground_drawn if boxes.path is None else ground
            grounding = compared(reading, boxes, captions)
        scores |= grounding.scores
        intervals |= grounding.intervals
        report |= {"grounding": grounding.details} if grounding.details else {}
    images = BOUND_IMAGES if bound_images is None else bound_images
    if kind == "hard" and images:
        with timed(seconds, "bounds"):
            measured = Bounds(reading, images)
            print(f"Measuring the bounds of {len(measured):,} captions ...", flush=True)
            bounds = {"images": len(measured), "samples": SAMPLES}
            report["bounds"] = bounds | measured.measure()
    cider = dict(zip(scored.image_ids, scored.per_image["cider"].tolist(), strict=True))
    return Evaluation(report, captions, cider, grounding)


def _with_confidence(
    reading: Reading,
    search: SearchConfig,
    captions: dict[str, Caption],
    right: np.ndarray | None,
    report: dict[str, Any],
    file: Path | None,
) -> dict[str, Caption]:
    """Adds what the captions' confidence is worth to a report; returns them with their confidence.

    With a file, it is learned from them first.
    """
    if right is None:
        return captions
    captioner, found = reading.captioner, [*captions.values()]
    if file is not None:
        if reason := no_confidence(captioner.vocabulary.language, found, right):
            report["notes"].append(reason)
        else:
            learn_confidence(captioner, search, found, right, file)
        found = captioner.limits.weighed(found, search)
    judged, details = judge_captions(captioner.limits.confidence, reading.split.name, found, right)
    report["intervals"] |= judged
    report["scores"] |= {name: interval.difference for name, interval in judged.items()}
    report |= {"confidence": details} if details else {}
    return dict(zip(captions, found, strict=True))


@contextlib.contextmanager
def timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    """Records the seconds of a stage under its name when it ends."""
    start = time.monotonic()
    yield
    seconds[name] = time.monotonic() - start
