"""A captioner as a folder of LiteRT graphs, with a card that describes them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from sat_tf.config import SearchConfig
from sat_tf.fields import to_dict
from sat_tf.files import write_json
from sat_tf.lite import captioner as files
from sat_tf.lite.graphs import write_graphs
from sat_tf.run_folder import RunFolder, read_object
from sat_tf.runs import TrainedCaptioner
from serving.model_card import facts, scores, table

_INTRODUCTION = """# Image captioner

*Show, Attend and Tell* (Xu et al., 2015, arXiv:1502.03044) for LiteRT: three graphs with static
shapes and built-in operations. Preprocessing and beam search are the host's: `sat_tf/lite` is
the one in Python, and small enough to be ported."""

_CALLING = """## How to call it

```
pip install ai-edge-litert numpy pillow
python -m serving.litert FOLDER photo.jpg
```

Or `sat_tf.load(FOLDER).caption("photo.jpg")`, or `serving.litert.load`. Encode the pixels; give the
annotations to `start`, and to `step` unless `start` returned some itself; then step all hypotheses
word by word, beginning with `<start>` (1) and the first state in every row."""


def write_litert(
    folder: Path, captioner: TrainedCaptioner, search: SearchConfig, precision: str
) -> None:
    """Writes a LiteRT export: graphs, settings, vocabulary and card.

    Args:
        folder: An empty folder.
        captioner: The captioner.
        search: Beam, length and normalisation.
        precision: `float32`, `float16` or `int8`.
    """
    traced = write_graphs(folder, captioner, search, precision)
    write_json(folder / files.CONFIG, _config(captioner, search))
    inside = facts(captioner, search, folder) | {"precision": precision}
    inside |= {name: f"{(folder / name).stat().st_size / 1e6:.1f} MB" for name in traced}
    card = [
        _INTRODUCTION,
        "## What is inside",
        table(inside),
        "## Scores",
        "Of the run itself, before its conversion to LiteRT.",
        *scores(captioner, search),
        "## Graphs",
        *(_tensors(name, *tensors) for name, tensors in traced.items()),
        _CALLING,
        "## Made with",
        f"TensorFlow {tf.__version__}, Keras {keras.__version__}.",
    ]
    (folder / files.CARD).write_text("\n\n".join(card) + "\n", "utf-8")


def _config(captioner: TrainedCaptioner, search: SearchConfig) -> dict[str, Any]:
    """Returns what `sat_tf.load` reads of a captioner's configuration, without paths."""
    config = dataclasses.replace(captioner.config, search=search)
    values = to_dict(config)
    values["encoder"]["weights"] = None
    data = read_object(RunFolder(captioner.path).config).get("data", {}) if captioner.path else {}
    return values | {"data": {key: data[key] for key in ("name", "language") if key in data}}


def _tensors(name: str, inputs: list[tf.TensorSpec], outputs: dict[str, tf.TensorSpec]) -> str:
    """A table of a graph's inputs and outputs."""
    named = [(f"in: `{spec.name}`", spec) for spec in inputs]
    named += [(f"`{output}`", spec) for output, spec in outputs.items()]
    lines = [f"| {name} | {spec.dtype.name} | {spec.shape.as_list()} |" for name, spec in named]
    return "\n".join(
        [f"### `{name}`", "", "| tensor | dtype | shape |", "| --- | --- | --- |", *lines]
    )
