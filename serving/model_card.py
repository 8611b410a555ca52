"""The model card of an export, SavedModel or LiteRT: contents, scores, how to call it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from sat_tf.config import SearchConfig, other_search
from sat_tf.inference import published
from sat_tf.inference.captioning import TrainedCaptioner
from sat_tf.inference.litert_captioner import LiteRTCaptioner
from sat_tf.inference.run_folder import RunFolder, outdated_note
from sat_tf.text.vocabulary import SPECIAL_TOKENS
from sat_tf.util.fields import to_dict
from serving.signatures import MODEL_NAME
from serving.versions import CARD_FILE

_INTRODUCTION = """# Image captioner

*Show, Attend and Tell* (Xu et al., 2015, arXiv:1502.03044): an image in, captions and the attention
of each word out. A SavedModel for TensorFlow Serving 2.20 or 2.21, Predict API, stock operations;
preprocessing, vocabulary and beam search are inside."""

_CALLING = """## How to call it

```
docker run -p 127.0.0.1:8500:8500 -p 127.0.0.1:8501:8501 -e MODEL_NAME={name} \\
    -v FOLDER_OF_THE_VERSIONS:/models/{name}:ro tensorflow/serving
python -m serving.client photo.jpg --model {name}
```

REST: `POST http://127.0.0.1:8501/v1/models/{name}:predict` with
`{{"instances": [{{"image_bytes": {{"b64": "..."}}}}]}}`.

The EXIF orientation is ignored: turn photographs upright before sending them. For a file that is
not a JPEG or PNG image, or has too many pixels, `valid` is false, the caption is
empty and `reasons` says why; the other images of the request are still answered. `scores` can be
compared among the captions of one image only.

## Before others can reach it

- Anyone who reaches the gRPC port can make TF Serving load any model it can read
  (`ModelService.HandleReloadConfigRequest`; there is no flag against it). Keep the port on this
  machine or behind a proxy that lets `Predict` alone through, or ask for client certificates.
- With server-side batching (`--enable_batching`), requests that are joined must agree in every
  dimension but the first: two callers of `pixels` with frames of different sizes, or an
  `image_bytes` of another rank than 1, fail the requests they are joined with. A request whose
  `output_filter` leaves out an output is never joined: callers among strangers, or with frames of
  several sizes, should name the outputs they need."""


def _facts(captioner: TrainedCaptioner, search: SearchConfig, version: Path) -> dict[str, str]:
    """Describes the settings of an export, and its size."""
    config, (height, width) = captioner.config, captioner.grid
    encoder = config.encoder
    attention, unit = config.attention.kind, captioner.vocabulary.unit
    repeated = f"none of {search.no_repeat_ngram}" if search.no_repeat_ngram else "allowed"
    if attention == "hard":
        attention += f", location by {config.attention.selection}"
    size = sum(path.stat().st_size for path in version.rglob("*") if path.is_file())
    return {
        "encoder": f"{encoder.name}, {height} x {width} locations",
        "image": f"{encoder.image_size} x {encoder.image_size} pixels, by {encoder.resize}",
        "attention": attention,
        "vocabulary": f"{len(captioner.vocabulary) - len(SPECIAL_TOKENS)} {unit}",
        "language": captioner.vocabulary.language or "not known",
        "beam": str(search.beam),
        "length of a caption": f"1 to {search.max_length} {unit}",
        "repeated n-grams": repeated,
        "scores": f"log p / length^{search.length_power:g}",
        "ranked by": f"consensus {search.consensus:g}" if search.consensus else "score",
        "unknown word": "never written" if search.suppress_unknown else "written as <unk>",
        "on disk": f"{size / 1e6:.1f} MB",
    }


def write_card(
    version: Path,
    captioner: TrainedCaptioner,
    search: SearchConfig,
    functions: Mapping[str, tf.types.experimental.ConcreteFunction],
) -> None:
    """Writes the card into a SavedModel with these signatures."""
    path = version / CARD_FILE
    path.parent.mkdir(exist_ok=True)
    parts = [
        _INTRODUCTION,
        *_inside(_facts(captioner, search, version)),
        "## Scores",
        *_scores(captioner, search),
        "## Signatures",
        *(_table_of_tensors(name, function) for name, function in functions.items()),
        _CALLING.format(name=MODEL_NAME),
        f"## Made with\n\nTensorFlow {tf.__version__}, Keras {keras.__version__}.",
    ]
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def write_site_card(path: Path, captioner: LiteRTCaptioner) -> None:
    """Writes the card of a captioner on a page without a server."""
    title = "# Image captioner\n\n*Show, Attend and Tell* (Xu et al., 2015, arXiv:1502.03044)"
    search = captioner.config.search
    inside = _inside(_facts(captioner, search, path.parent) | {"precision": captioner.precision})
    found = ["## Scores", *_scores(captioner, search)]
    path.write_text("\n\n".join([title + ", in a browser.", *inside, *found]) + "\n", "utf-8")


def _inside(rows: Mapping[str, str]) -> tuple[str, str]:
    lines = (f"| {name} | {value} |" for name, value in rows.items())
    return "## Contents", "\n".join(["| option | value |", "| --- | --- |", *lines])


def _table_of_tensors(name: str, function: tf.types.experimental.ConcreteFunction) -> str:
    inputs = function.structured_input_signature[0]
    specs = {f"in: `{spec.name}`": spec for spec in inputs}
    specs |= {f"`{output}`": spec for output, spec in function.structured_outputs.items()}
    lines = [f"### `{name}`", "", "| tensor | dtype | shape |", "| --- | --- | --- |"]
    for tensor, spec in specs.items():
        sides = ["any" if side is None else str(side) for side in spec.shape]
        sides[0] = sides[0].replace("any", "B")
        lines.append(f"| {tensor} | {spec.dtype.name} | [{', '.join(sides)}] |")
    return "\n".join(lines)


def _scores(captioner: TrainedCaptioner, search: SearchConfig) -> list[str]:
    """The tables of the run's reports, and a note if they were measured with another search."""
    folder = captioner.path and RunFolder(captioner.path)
    parts = []
    for report in filter(None, map(_read_report, folder.reports() if folder else ())):
        if outdated := outdated_note(report, captioner.weights_sha256):
            parts.append(outdated)
            continue
        parts += [f"### {report['data']} {report['split']}, {report['images']} images"]
        parts += [_table_of_scores(report), *(f"- {note}" for note in report["notes"])]
        baked = {**to_dict(search), "attention": captioner.config.attention.selection}
        parts += filter(None, [other_search(report["search"], baked)])
    if not parts and captioner.path and published.is_published(captioner.path):
        card = published.read_card(captioner.path)
        parts = [card.partition("## Scores")[2].partition("\n## ")[0].strip()] if card else []
    return parts or ["This run has no evaluation: `python -m training.evaluate --run-dir RUN`."]


def _table_of_scores(report: Mapping[str, Any]) -> str:
    lines = ["| metric | score | 95 % interval |", "| --- | --- | --- |"]
    for name, score in report["scores"].items():
        interval = report["intervals"].get(name, {})
        value, low, high = map(_decimals, (score, interval.get("low"), interval.get("high")))
        lines.append(f"| {name} | {value or 'undefined'} | {f'[{low}, {high}]' if low else ''} |")
    return "\n".join(lines)


def _decimals(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _read_report(path: Path) -> dict[str, Any] | None:
    """A report of captions by a model.

    None for one that is incomplete, and for one of captions from elsewhere, which has no search.
    """
    try:
        report = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    needed = {"data", "split", "images", "search", "scores", "intervals", "notes"}
    return report if isinstance(report, dict) and needed <= report.keys() else None
