"""Page of an evaluation: scores and the viewer of captions, in one file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from sat_tf.files import write_atomically
from sat_tf.runs import Caption, TrainedCaptioner
from sat_tf.viewer import data_url, report_page
from training.data.examples import Box, Example, Split
from training.data.image_loader import read_image
from training.evaluate.image_entry import common_facts, image_entry
from training.evaluate.reports import HEADLINE, score_rows
from training.evaluate.scoring import Evaluation
from training.evaluate.word_confidence import DIAGRAM_TEXT, reliability_diagram

PAGE_FILE = "index.html"


def write_report_page(
    out: Path,
    title: str,
    report: Mapping[str, Any],
    captioner: TrainedCaptioner,
    split: Split,
    found: Evaluation,
    count: int,
) -> Path:
    """Writes the page of an evaluation.

    Args:
        out: Folder of the evaluation.
        title: Heading.
        report: Its scores, intervals and notes are shown.
        captioner: The captioner of the captions.
        split: Images and references.
        found: Captions and scores.
        count: Images on the page, the first of the split.

    Returns:
        Path of the page.
    """
    scores = {name: report["scores"][name] for name in HEADLINE if name in report["scores"]}
    rows = [
        dict(zip(("name", "value", "interval"), row, strict=False))
        for row in score_rows(scores, report["intervals"])
    ]
    common = common_facts(captioner, report["recipe"])
    common["lang"] = report["configuration"]["data"]["language"]
    images = page_images(captioner, split, found, count)
    diagram = reliability_diagram(found.calibration.bins)
    figures = [{"image": data_url(diagram.encode(), "image/svg+xml"), "text": DIAGRAM_TEXT}]
    page = report_page(title, images, rows, report["notes"], common, "CIDEr", figures=figures)
    path = out / PAGE_FILE
    write_atomically(path, page)
    return path


def page_images(
    captioner: TrainedCaptioner, split: Split, found: Evaluation, count: int
) -> Iterator[dict[str, Any]]:
    """Yields the first images of a split as the viewer reads them."""
    cider = dict(
        zip(found.caption_scores.image_ids, found.caption_scores.per_image["cider"], strict=True)
    )
    shown = [example for example in split.examples if example.image_id in found.captions]
    for example in shown[:count]:
        caption = found.captions[example.image_id]
        pixels, _ = read_image(example.image, tf.identity)
        entry = image_entry(captioner, pixels, caption, example.image_id)
        if found.boxes is not None:
            _add_boxes(entry, found.boxes.nouns)
        yield entry | {
            "references": list(example.captions),
            "scores": _image_scores(example, caption, found, cider),
            "rank": round(float(cider[example.image_id]), 2),
        }


def _add_boxes(entry: dict[str, Any], nouns: Mapping[tuple[str, str], Sequence[Box]]) -> None:
    """Gives words that are head nouns of the image's references their boxes."""
    for word in (word for one in entry["hypotheses"] for word in one["words"]):
        if boxes := nouns.get((entry["name"], word["text"])):
            unique = sorted({tuple(round(float(edge), 4) for edge in box) for box in boxes})
            word["boxes"] = [list(box) for box in unique]


def _image_scores(
    example: Example, caption: Caption, found: Evaluation, cider: Mapping[str, float]
) -> dict[str, str]:
    scores = {"CIDEr": f"{cider[example.image_id]:.1f}"}
    scores["log-probability"] = f"{caption.log_prob:.2f}"
    grounding = found.grounding.get(example.image_id, {})
    if "pointing_game" in grounding:
        scores["pointing game"] = f"{grounding['pointing_game']:.0f} %"
    return scores
