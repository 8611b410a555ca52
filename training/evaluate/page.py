"""A captioned image for people: figures of attention, and the page of an evaluation."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from sat_tf.files import write_atomically
from sat_tf.run_folder import RunFolder
from sat_tf.trained.captioning import TrainedCaptioner
from sat_tf.trained.captions import Caption
from sat_tf.trained.limits import remarks
from sat_tf.trained.viewer import crop_of, data_url, hypothesis_data, report_page
from sat_tf.vocabulary import END, START
from training.evaluate.reports import HEADLINE, SIGNATURE, number, score_rows
from training.metrics.calibration import Reliability

if TYPE_CHECKING:
    from training.evaluate.grounding import BoxGrounding
    from training.evaluate.reading import Reading
    from training.metrics.calibration import Calibration

PAGE_FILE = "index.html"
DIAGRAM_TEXT = (
    "Share of predicted next {0} that are right, by the probability given to them (teacher-forced "
    "over the references). On the diagonal, a probability can be taken at its word; below it, the "
    "model is too sure. Wider bars hold more {0}."
)
_LONGER_SIDE = 480  # pixels of a photograph on a page


def chosen_locations(
    captioner: TrainedCaptioner, pixels: np.ndarray, caption: Caption
) -> np.ndarray | None:
    """Returns the location that hard attention chose for each word of a caption, int `[T]`.

    A drawn location is recovered by its log-probability: teacher forcing draws those of a search
    with a beam of 1 again.

    Args:
        captioner: The captioner that wrote the caption.
        pixels: Of the image, as the encoder sees it, `[S, S, 3]`.
        caption: Its caption.

    Returns:
        Indices of locations, row by row; None if none was chosen, or several for a word.
    """
    selection = captioner.config.attention.selection
    if caption.alpha is None or selection == "expectation" or not caption.words:
        return None
    if captioner.vocabulary.unit == "subwords":
        return None  # a word has several
    if selection == "argmax":
        return caption.alpha.reshape(len(caption.words), -1).argmax(-1)
    import tensorflow as tf

    words = [captioner.vocabulary.id(word) for word in caption.words]
    annotations = captioner.annotate(pixels[np.newaxis])
    batch = {"annotations": annotations, "tokens": tf.constant([[START, *words, END]])}
    output = captioner.model(batch, seed=tf.zeros([2], tf.int32))
    log_alpha = tf.nn.log_softmax(output.alignment_scores)[0, : len(words)].numpy()
    drawn = output.log_prob[0, : len(words), tf.newaxis].numpy()
    return np.abs(log_alpha - drawn).argmin(-1)


def image_entry(
    captioner: TrainedCaptioner, pixels: np.ndarray, caption: Caption, name: str
) -> dict[str, Any]:
    """Describes an image and its hypotheses for `sat_tf.trained.viewer.report_page`.

    Args:
        captioner: The captioner.
        pixels: `[H, W, 3]`, 0..255, the whole image upright.
        caption: Its caption.
        name: Name on the page.
    """
    image = Image.fromarray(np.asarray(pixels, np.uint8))
    scale = _LONGER_SIDE / max(image.size)  # small drawn images are enlarged
    size = [max(1, round(side * scale)) for side in image.size]
    file = io.BytesIO()
    image.resize(size, Image.Resampling.LANCZOS).save(file, "JPEG", quality=82)
    shown = {"image": data_url(file.getvalue()), "name": name}
    return shown | caption_data(captioner, pixels.shape[:2], caption)


def caption_data(
    captioner: TrainedCaptioner, size: tuple[int, int], caption: Caption
) -> dict[str, Any]:
    """Returns the viewer's `crop`, `hypotheses` and `remarks` of a caption.

    Args:
        captioner: The captioner.
        size: Height and width of the whole image upright.
        caption: Its caption.
    """
    hypotheses = [
        hypothesis_data(
            caption.words,
            caption.text,
            caption.score,
            caption.alpha,
            caption.beta,
            caption.log_probs,
        ),
        *(hypothesis_data(text.split(), text, score) for text, score in caption.alternatives),
    ]
    crop = crop_of(*size, captioner.config.encoder.resize)
    said = remarks(caption.familiarity, caption.confidence)
    return {"crop": crop, "hypotheses": hypotheses} | ({"remarks": said} if said else {})


def common_facts(captioner: TrainedCaptioner, model: str) -> dict[str, Any]:
    """Returns the facts that all images of one captioner share.

    Args:
        captioner: The captioner.
        model: Its name on the page.
    """
    kind = captioner.config.attention.kind
    facts = {"grid": list(captioner.grid), "kind": kind, "model": model}
    return facts | ({"lang": language} if (language := captioner.vocabulary.language) else {})


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Captions of a split and their scores.

    Attributes:
        report: Scores, intervals and notes, see `write_report`.
        captions: Image id -> caption.
        cider: Image id -> CIDEr of its caption.
        calibration: Calibration of the words' probabilities.
        grounding: Grounding of maps in boxes, those of `--boxes` if there are any.
    """

    report: dict[str, Any]
    captions: dict[str, Caption]
    cider: dict[str, float]
    calibration: Calibration
    grounding: BoxGrounding


def write_report_page(
    out: Path, title: str, reading: Reading, found: Evaluation, count: int
) -> Path:
    """Writes the page of an evaluation.

    Args:
        out: Folder of the evaluation.
        title: Heading.
        reading: The captioner on a split.
        found: Captions and scores.
        count: Images on the page, the first of the split.

    Returns:
        Path of the page.
    """
    captioner, report = reading.captioner, found.report
    scores = {name: report["scores"][name] for name in HEADLINE if name in report["scores"]}
    rows = [
        dict(zip(("name", "value", "interval"), row, strict=False)) | {"text": HEADLINE[row[0]]}
        for row in score_rows(scores, report["intervals"])
    ]
    common = common_facts(captioner, report["recipe"])
    unit = captioner.vocabulary.unit
    charts = [reliability_chart(found.calibration.bins, unit)]
    charts += risk_chart(report)
    charts += learning_curve(RunFolder(captioner.path).logs)
    images = page_images(reading, found, count)
    notes = [*report["notes"], SIGNATURE.format(report["signature"])]
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


def reliability_chart(bins: Reliability, unit: str = "words") -> dict[str, Any]:
    """Returns the chart of accuracy against confidence; see `sat_tf.trained.viewer.report_page`.

    Args:
        bins: Tokens, confidence and accuracy by bin.
        unit: Name of the tokens.
    """
    side = 100 / len(bins.words)
    share = np.sqrt(bins.words / max(bins.words.max(), 1))
    bars = []
    for index in np.flatnonzero(bins.words):
        centre, half = side * (index + 0.5), side * max(share[index], 0.08) / 2
        text = (
            f"{bins.words[index]:,} {unit}, confidence {bins.confidence[index]:.0f} %, "
            f"right {bins.accuracy[index]:.0f} %"
        )
        bars.append([centre - half, centre + half, float(bins.accuracy[index]), text])
    axes = {"x": "confidence, %", "y": "right, %", "diagonal": True}
    return axes | {"bars": bars, "text": DIAGRAM_TEXT.format(unit)}


def risk_chart(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the chart of risk against coverage; none of a report without confidence."""
    if "confidence" not in report:
        return []
    lines = [{"name": "wrong captions", "points": report["confidence"]["risk"]}]
    text = (
        "Wrong captions among those that are answered, by the share that is: the least sure are "
        "left out first. A caption is right if every content word matches a reference."
    )
    return [{"x": "answered, %", "y": "wrong, %", "lines": lines, "text": text}]


def learning_curve(log_dir: Path) -> list[dict[str, Any]]:
    """Returns the chart of a run's loss over its epochs; none if its logs have no two of them.

    Args:
        log_dir: TensorBoard's files of the run.
    """
    from training.run_state.logs import read_scalar

    parts = {"train": "training", "validation": "dev split"}
    lines = [
        {"name": name, "points": [[epoch + 1, value] for epoch, value in points]}
        for part, name in parts.items()
        if len(points := read_scalar(log_dir / part, "objective/nll")) > 1
    ]
    text = "Negative log-likelihood of the references, nats per word, by epoch."
    return [{"x": "epoch", "y": "nats", "lines": lines, "text": text}] if lines else []
