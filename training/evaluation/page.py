"""The page of an evaluation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sat_tf.inference.run_folder import RunFolder
from sat_tf.inference.viewer import common_facts, image_entry, report_page
from sat_tf.util.files import write_atomically
from training.evaluation.report import HEADLINE, SIGNATURE, number, score_rows

if TYPE_CHECKING:
    from training.evaluation.evaluation import Evaluation
    from training.evaluation.reading import Reading

PAGE_FILE = "index.html"
MAIN = {"cider": "CIDEr", "bleu_4": "BLEU-4", "pointing_game": "Pointing game", "meteor": "METEOR"}
"""Scores under the first picture, those of the first three that there are."""
_LEAST_WORDS, _LEAST_BINS = 200, 3  # of the diagram of confidence, and epochs of the curve
_DIAGRAM = (
    "Share of predicted next {0} that are right, by the probability given to them (teacher-forced "
    "over the references). On the diagonal, a probability can be taken at its word; below it, the "
    "model is too sure. Wider bars hold more {0}."
)
_RISK = (
    "Wrong captions among those that are answered, by the share that is: the least sure are "
    "left out first. A caption is right if every content word matches a reference."
)


def write_report_page(
    out: Path, title: str, reading: Reading, found: Evaluation, count: int
) -> Path:
    """Writes the page of an evaluation, with the first `count` images; returns its path."""
    captioner, report = reading.captioner, found.report
    scores = {name: report["scores"][name] for name in HEADLINE if name in report["scores"]}
    main = [name for name in MAIN if name in scores][:3]
    rows = [
        dict(zip(("name", "value", "interval"), row, strict=False))
        | {"text": HEADLINE[row[0]]}
        | ({"label": MAIN[row[0]]} if row[0] in main else {})
        for row in score_rows(scores, report["intervals"])
    ]
    rows.sort(key=lambda row: main.index(row["name"]) if row["name"] in main else len(main))
    charts = reliability_chart(report["calibration"], captioner.vocabulary.unit)
    if "confidence" in report:
        lines = [{"name": "wrong captions", "points": report["confidence"]["risk"]}]
        charts.append({"x": "answered, %", "y": "wrong, %", "lines": lines, "text": _RISK})
    charts += learning_curve(RunFolder(captioner.path).logs)
    notes = [*report["notes"], SIGNATURE.format(report["signature"])]
    common = common_facts(captioner, report["recipe"])
    images = page_images(reading, found, count)
    page = report_page(title, images, rows, notes, common, "CIDEr", charts)
    write_atomically(out / PAGE_FILE, page)
    return out / PAGE_FILE


def page_images(reading: Reading, found: Evaluation, count: int) -> Iterator[dict[str, Any]]:
    """Yields the first images of a split as the viewer reads them."""
    import tensorflow as tf

    from training.data.image_loader import read_image

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
        bins: `words`, `confidence` and `accuracy` by bin, see `Reliability`.
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
    return [axes | {"bars": bars, "text": _DIAGRAM.format(unit)}]


def learning_curve(log_dir: Path) -> list[dict[str, Any]]:
    """Returns the chart of a run's loss over its epochs; none of fewer than three."""
    from training.run.logs import read_scalar

    parts = {"train": "training", "validation": "dev split"}
    lines = [
        {"name": name, "points": [[epoch + 1, value] for epoch, value in points]}
        for part, name in parts.items()
        if len(points := read_scalar(log_dir / part, "objective/nll")) >= _LEAST_BINS
    ]
    text = "Negative log-likelihood of the references, nats per word, by epoch."
    return [{"x": "epoch", "y": "nats", "lines": lines, "text": text}] if lines else []
