"""Evaluation of a captioner's run: caption a split, score the captions, write report and page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sat_tf.fields import to_dict
from sat_tf.run_folder import RunFolder
from sat_tf.runs import TrainedCaptioner, read_average
from training.config import RunConfig
from training.data.input_source import InputSource, open_input_source
from training.data.sources import Split, load_split
from training.evaluate.bounds import SAMPLES, Bounds
from training.evaluate.box_grounding import place_boxes
from training.evaluate.caption_results import GROUNDING_KEY, caption_fields, write_captions
from training.evaluate.report_page import write_report_page
from training.evaluate.reports import (
    caption_report,
    console_summary,
    write_report,
)
from training.evaluate.scoring import Evaluation, evaluate
from training.evaluate.stages import timed
from training.evaluate.verdict import verdict
from training.metrics.bootstrap import intervals
from training.run_state.checkpoints import unfinished_note

BOUND_IMAGES = 100
"""Images whose bounds are measured by default."""


def evaluate_run(
    captioner: TrainedCaptioner,
    config: RunConfig,
    run_dir: Path,
    cache_dir: Path,
    data_dir: Path | None = None,
    split_name: str = "dev",
    out: Path | None = None,
    figures: int = 48,
    bound_images: int = BOUND_IMAGES,
    boxes: Path | None = None,
) -> dict[str, Any]:
    """Evaluates a run on a split; prints the main scores, writes report, captions and page.

    Args:
        captioner: Best captioner of the run.
        config: Configuration of the run; `search` is the one that captions are generated with.
        run_dir: Folder of the run.
        cache_dir: Feature stores, shared by runs.
        data_dir: The user's copy of the data set; None for drawn data.
        split_name: `train`, `dev` or `test`.
        out: Output folder; `RUN/evaluation/SPLIT` if None.
        figures: Images on the page.
        bound_images: Images, with one caption each, whose bounds and NWGM gap are measured if
            attention is hard.
        boxes: Boxes of phrases to compare attention with, if any.

    Returns:
        The report.
    """
    split = load_split(config.data.name, split_name, data_dir, **config.data.options())
    resize = config.encoder.resize
    # Before annotations and captions are computed, which take minutes: the file may be wrong.
    placed = None if boxes is None else place_boxes(boxes, split, resize)
    source = open_input_source(captioner.model.encoder, resize, split, cache_dir)
    seconds, bounds = {}, {}
    with timed(seconds, "evaluation"):
        language = config.data.language
        options = {"language": language, "seconds": seconds, "boxes": placed}
        found = evaluate(captioner, split, source, config.search, **options)
        if config.attention.kind == "hard" and bound_images:
            measured = Bounds(captioner, split, source, bound_images)
            with timed(seconds, "bounds", f"Measuring the bounds of {len(measured):,} captions"):
                bounds = {"images": len(measured), "samples": SAMPLES} | measured.measure()
    report = make_report(captioner, config, split, source, found) | {"seconds": seconds}
    report |= {"bounds": bounds} if bounds else {}
    out = out or RunFolder(run_dir).evaluation(split.name)
    title = f"{config.recipe}: {config.data.name} {split.name}"
    write_report(out, report)
    write_captions(out, caption_rows(found))
    page = write_report_page(out, title, report, captioner, split, found, figures)
    heading = f"{title}, {len(found.captions):,} images, beam {config.search.beam}"
    texts = {image_id: caption.text for image_id, caption in found.captions.items()}
    print(console_summary(heading, report, texts, out))
    print(f"Page: {page}")
    return report


def make_report(
    captioner: TrainedCaptioner,
    config: RunConfig,
    split: Split,
    source: InputSource,
    found: Evaluation,
) -> dict[str, Any]:
    """Assembles the report: scores, and everything needed to compare them with others."""
    scores = found.caption_scores
    report = caption_report(split, scores, found.scores, intervals(scores))
    texts = {image_id: caption.text for image_id, caption in found.captions.items()}
    report["notes"] += verdict(texts, split.references(), config.data.tokens)
    report["notes"] += found.notes + average_note(captioner)
    if captioner.path:
        report["weights_sha256"] = captioner.weights_sha256
        report["notes"] += unfinished_note(captioner.path)
    report["intervals"] |= found.calibration.intervals
    report["calibration"] = found.calibration.details()
    if found.boxes is not None:
        report["intervals"] |= found.boxes.intervals
        report["grounding"] = found.boxes.details
    return report | {
        "skipped": split.unusable(source.skipped),
        "recipe": config.recipe,
        "seed": config.seed,
        "data": config.data.name,
        "search": {**to_dict(config.search), "attention": captioner.model.selection},
        "configuration": to_dict(config),
    }


def average_note(captioner: TrainedCaptioner) -> tuple[str, ...]:
    """Names the runs that the weights are an average of, if any; the configuration does not."""
    shares = read_average(captioner.path) if captioner.path else {}
    if not shares:
        return ()
    parts = (f"{share:g} of {Path(run).name}" for run, share in shares.items())
    return (f"The weights are an average: {', '.join(parts)}.",)


def caption_rows(found: Evaluation) -> Iterator[dict[str, Any]]:
    """Yields the rows of `captions.json`."""
    for image_id, caption in found.captions.items():
        row = {"image_id": image_id} | caption_fields(caption)
        if image_id in found.grounding:
            row[GROUNDING_KEY] = found.grounding[image_id]
        yield row
