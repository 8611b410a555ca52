"""Evaluation of a captioner: captions a split, scores captions and maps, writes report and page."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from sat_tf.config import SearchConfig
from sat_tf.inference.captioning import TrainedCaptioner
from sat_tf.inference.captions import Caption
from sat_tf.inference.published import read_card
from sat_tf.inference.run_folder import RunFolder, read_average
from sat_tf.inference.viewer import common_facts, image_entry, report_page
from sat_tf.util.commands import counted
from sat_tf.util.fields import to_dict
from sat_tf.util.files import default_cache_dir, write_atomically
from training.data.boxes import PlacedBoxes, place_boxes
from training.data.config import DataConfig
from training.data.dataset import read_split, recorded_data
from training.data.image_loader import read_image
from training.data.inputs import open_input_source
from training.evaluation.bootstrap import Interval
from training.evaluation.bounds import BOUND_IMAGES, SAMPLES, Bounds
from training.evaluation.confidence import calibration_error, reliability, weigh
from training.evaluation.deletion import SHARES, delete
from training.evaluation.grounding import BoxGrounding, ground
from training.evaluation.reading import Reading
from training.evaluation.report import (
    HEADLINE,
    SIGNATURE,
    caption_rows,
    number,
    package_versions,
    score_rows,
    write_evaluation,
)
from training.evaluation.scores import score_captions
from training.run.checkpoints import unfinished_note
from training.run.config import RunConfig

if TYPE_CHECKING:
    from training.evaluate import Arguments

PAGE_FILE = "index.html"
MAIN = {"cider": "CIDEr", "bleu_4": "BLEU-4", "pointing_game": "Pointing game", "meteor": "METEOR"}
"""Scores under the first picture, those of the first three that there are."""
_LEAST_WORDS, _LEAST_BINS = 200, 3  # of the diagram of confidence
_DIAGRAM = (
    "Share of predicted next {0} that are right, by the probability given to them (teacher-forced "
    "over the references). On the diagonal, a probability can be taken at its word; below it, the "
    "model is too sure. Wider bars hold more {0}."
)
_RISK = (
    "The least sure captions are left out first. A caption is right if every content word matches "
    "a reference."
)
MANY_UNKNOWN = 0.1
"""Share of unknown words above which likelihoods say little about captions."""


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
    captioner: TrainedCaptioner, config: RunConfig, request: Arguments, learn: bool = False
) -> None:
    """Evaluates a run on a split; prints the main scores, writes report, captions and page.

    Args:
        captioner: The captioner.
        config: The run's configuration, with the search of the evaluation.
        request: What is scored and measured; `out` is the folder of the report.
        learn: Learn the captioner's confidence from these captions, and write it to the run.
    """
    encoder, cache_dir = config.encoder, request.cache_dir or default_cache_dir()
    record = recorded_data(captioner.path, request.data_dir)
    split = read_split(config.data, request.split, request.data_dir, cache_dir, record)
    boxes = None
    if request.boxes is not None or (split.has_phrases and config.attention.kind != "none"):
        # Before annotations and captions are computed, which take minutes: the file may be wrong.
        boxes = place_boxes(request.boxes, split, encoder.resize, captioner.vocabulary)
    source = open_input_source(captioner.model.encoder, encoder.resize, split, cache_dir)
    start = time.monotonic()
    reading = Reading(captioner, split, source)
    found = evaluate(reading, config.data, config.search, request, boxes, learn)
    report = found.report
    # The configuration does not tell of the runs that weights are an average of.
    shares = read_average(captioner.path).items()
    average = ", ".join(f"{share:g} of {Path(run).name}" for run, share in shares)
    report["notes"] += [f"The weights are an average: {average}."] if average else []
    report["notes"] += unfinished_note(captioner.path)
    card = read_card(RunFolder(captioner.path).graphs)
    report["notes"] += [card.strip().splitlines()[-1]] if card else []
    report |= {
        "weights_sha256": captioner.weights_sha256,
        "recipe": config.recipe,
        "seed": config.seed,
        "data": config.data.name,
        "search": {**to_dict(config.search), "attention": captioner.model.selection},
        "configuration": to_dict(config),
    }
    report["seconds"]["evaluation"] = time.monotonic() - start
    title = f"{config.recipe} on {counted(len(found.captions), f'{split.name} image')}"
    rows = caption_rows(found.captions, found.grounding.by_image)
    write_evaluation(request.out, f"{title}, beam {config.search.beam}", report, rows)
    print(f"Page: {write_report_page(request.out, title, reading, found, request.figures)}")


def evaluate(
    reading: Reading,
    data: DataConfig,
    search: SearchConfig,
    request: Arguments,
    boxes: PlacedBoxes | None = None,
    learn: bool = False,
) -> Evaluation:
    """Captions every image of a split and scores the captions against the raw references.

    Args:
        reading: The captioner on the split.
        data: Its data set: how captions are split.
        search: How captions are searched for.
        request: The scores and measurements.
        boxes: Phrases of the split with their boxes, its own or those of a file, if any.
        learn: See `evaluate_run`.
    """
    captioner, split = reading.captioner, reading.split
    seconds: dict[str, float] = {}
    readable = len(split) - len(reading.source.skipped)
    with timed(seconds, "search", f"Captioning {readable:,} images, beam {search.beam} ..."):
        captions = reading.captions(search)
    texts = {image_id: caption.text for image_id, caption in captions.items()}
    references = split.references(of=texts)
    with timed(seconds, "caption metrics", f"Scoring {len(captions):,} captions ..."):
        scored = score_captions(texts, references, tokens=request.score_tokens, **data.splitting)
    report = scored.details() | split.details(reading.source.skipped)
    report |= {"versions": package_versions(), "seconds": seconds}
    report["notes"] += scored.verdict
    if scored.right is not None:
        given = captioner, search, split.name, [*captions.values()], scored.right, learn
        weighed, judged, details, notes = weigh(*given)
        captions = dict(zip(captions, weighed, strict=True))
        _add(report, judged)
        report |= {"confidence": details} if details else {}
        report["notes"] += notes
    said = f"Reading {sum(map(len, references.values())):,} reference captions ..."
    with timed(seconds, "teacher forcing", said):
        _read(reading, report)
    grounding = BoxGrounding({})
    if boxes is not None:
        said = f"Comparing maps with boxes of {boxes.path or 'the drawings'} ..."
        with timed(seconds, "grounding", said):
            grounding = ground(reading, boxes, captions)
        report["scores"] |= grounding.scores
        report["intervals"] |= grounding.intervals
        report["grounding"] = grounding.details
    bounded = BOUND_IMAGES if request.bound_images is None else request.bound_images
    if captioner.config.attention.kind == "hard" and bounded:
        measured = Bounds(reading, bounded)
        with timed(seconds, "bounds", f"Measuring the bounds of {len(measured):,} captions ..."):
            bounds = {"images": len(measured), "samples": SAMPLES}
            report["bounds"] = bounds | measured.measure()
    if request.deletion:
        said = f"Reading {len(captions):,} captions with places deleted ..."
        with timed(seconds, "deletion", said):
            deletion = delete(reading, captions, captioner.limits.familiarity.mean)
        if len(deletion.words):
            report["deletion"] = deletion.details()
            first = report["deletion"][f"{SHARES[0]}"]
            _add(report, {"deletion_fall": first["attended"], "deletion_ratio": first["ratio"]})
        else:
            report["notes"].append("No caption has two content words to test by deletion.")
    cider = dict(zip(scored.image_ids, scored.per_image["cider"].tolist(), strict=True))
    return Evaluation(report, captions, cider, grounding)


def _add(report: dict[str, Any], intervals: Mapping[str, Interval]) -> None:
    report["intervals"] |= intervals
    report["scores"] |= {name: interval.difference for name, interval in intervals.items()}


def _read(reading: Reading, report: dict[str, Any]) -> None:
    """Scores the predictions of the references' words."""
    likelihood, words = reading.likelihood()
    if reading.unknown_share > MANY_UNKNOWN:
        report["notes"].append(
            f"{reading.unknown_share:.0%} of the references' {reading.captioner.vocabulary.unit} "
            "are unknown to the captioner: perplexity and calibration count them all as one."
        )
    report["scores"] |= likelihood
    _add(report, {"calibration_error": calibration_error(words)})
    report["scores"] |= {
        "next_word_accuracy": 100.0 * float(words.right.mean()),
        "next_word_confidence": 100.0 * float(words.confidence.mean()),
    }
    report["calibration"] = {name: np.round(each, 2) for name, each in reliability(words).items()}


@contextlib.contextmanager
def timed(seconds: dict[str, float], name: str, said: str) -> Iterator[None]:
    """Says that a stage begins, and records its seconds under its name when it ends."""
    print(said, flush=True)
    start = time.monotonic()
    yield
    seconds[name] = time.monotonic() - start


def write_report_page(
    out: Path, title: str, reading: Reading, found: Evaluation, count: int
) -> Path:
    """Writes the page of an evaluation, with the first `count` images; returns its path."""
    captioner, report = reading.captioner, found.report
    scores = {name: report["scores"][name] for name in HEADLINE if name in report["scores"]}
    main = [name for name in MAIN if name in scores][:3]
    scores = {name: scores[name] for name in (*main, *scores)}  # these come first
    rows = [
        dict(zip(("name", "value", "interval"), row, strict=False))
        | {"text": HEADLINE[row[0]]}
        | ({"label": MAIN[row[0]]} if row[0] in main else {})
        for row in score_rows(scores, report["intervals"])
    ]
    charts = reliability_chart(report["calibration"], captioner.vocabulary.unit)
    if "confidence" in report:
        lines = [{"name": "wrong captions", "points": report["confidence"]["risk"]}]
        axes = {"x": "answered, %", "y": "wrong, %", "name": "Wrong captions among those answered"}
        charts.append(axes | {"lines": lines, "text": _RISK})
    notes = [*report["notes"], SIGNATURE.format(report["signature"])]
    images = page_images(reading, found, count)
    common = common_facts(captioner, report["recipe"])
    page = report_page(title, images, rows, notes, common, "CIDEr", charts)
    write_atomically(out / PAGE_FILE, page)
    return out / PAGE_FILE


def page_images(reading: Reading, found: Evaluation, count: int) -> Iterator[dict[str, Any]]:
    """Yields the first images of a split as the viewer reads them."""
    shown = [example for example in reading.split.examples if example.image_id in found.captions]
    for example in shown[:count]:
        caption = found.captions[example.image_id]
        pixels, _ = read_image(example.image, tf.identity)
        entry = image_entry(reading.captioner, pixels, caption, example.image_id)
        for word in (word for one in entry["hypotheses"] for word in one["words"]):
            # Head nouns of the image's references have boxes.
            if boxes := found.grounding.nouns.get((example.image_id, word["text"])):
                unique = sorted({tuple(round(float(edge), 4) for edge in box) for box in boxes})
                word["boxes"] = [list(box) for box in unique]
        score = found.cider[example.image_id]
        scores = {"CIDEr": number("cider", score), "log-probability": f"{caption.log_prob:.2f}"}
        grounding = found.grounding.by_image.get(example.image_id, {})
        if "pointing_game" in grounding:
            scores["pointing game"] = f"{grounding['pointing_game']:.0f} %"
        references = list(example.captions)
        yield entry | {"references": references, "scores": scores, "rank": round(score, 2)}


def reliability_chart(bins: Mapping[str, np.ndarray], unit: str = "words") -> list[dict[str, Any]]:
    """Returns the chart of accuracy against confidence; none if there are too few words.

    Args:
        bins: `words`, `confidence` and `accuracy` by bin, see `reliability`.
        unit: Name of the tokens.
    """
    words, confidence, accuracy = (bins[name] for name in ("words", "confidence", "accuracy"))
    if words.sum() < _LEAST_WORDS or np.count_nonzero(words) < _LEAST_BINS:
        return []
    side = 100 / len(words)
    share = np.sqrt(words / words.max())
    bars = []
    for index in np.flatnonzero(words):
        centre, half = side * (index + 0.5), side * max(share[index], 0.08) / 2
        text = (
            f"{words[index]:,} {unit}, confidence {confidence[index]:.0f} %, "
            f"right {accuracy[index]:.0f} %"
        )
        bars.append([centre - half, centre + half, float(accuracy[index]), text])
    axes = {"x": "confidence, %", "y": "right, %", "diagonal": True}
    axes["name"] = f"Confidence in next {unit}"
    return [axes | {"bars": bars, "text": _DIAGRAM.format(unit)}]
