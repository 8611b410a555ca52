"""Publish a digit run as a LiteRT graph with a card: `python -m digits.publish RUN OUT`."""

from __future__ import annotations

import dataclasses
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import keras
import tensorflow as tf
import tyro

from digits.config import (
    CanvasData,
    DigitRunConfig,
    DRAMConfig,
    RAMConfig,
    STNConfig,
    read_digit_config,
)
from digits.evaluate import load, training_command
from digits.models import DigitModel
from digits.reader import CARD, GRAPH, MANIFEST, Facts, write_reader
from digits.train import single_dir
from sat_tf.inference.packing import pack, pack_graph
from sat_tf.inference.run_folder import RunFolder, outdated_note
from sat_tf.inference.unpacking import GROUP, unpack
from sat_tf.util.commands import exit_status, parse_flags
from sat_tf.util.errors import invalid_value
from sat_tf.util.files import write_atomically

_INK = 20.0  # longer side of an MNIST digit, pixels

_CARD = """---
library_name: sat_tf
pipeline_tag: image-classification
license: cc-by-sa-3.0
---

# {recipe}

{summary} Made by sat_tf, and small: it shows on the page (`make demo`) where such a model looks.

```python
import digits

reading = digits.load("{name}").read("drawing.png")
reading.answer, reading.corners  # the answer; where it looked
```

The files are JSON and arrays of NumPy, a LiteRT graph; nothing in them is executed. `{manifest}`
has the SHA-256 of `{graph}`, which loading checks. Weights are rounded to 8 bits with a scale per
{group} of them.

## Data and licence

- Trained on the training digits of MNIST (LeCun et al., 1998) without the last {dev}, which are the
  dev digits.
- Use of these weights: CC BY-SA 3.0, as MNIST.

## Scores

Examples that are read wrongly, made of the digits of a split; weights before rounding:

{scores}

```sh
{command} --data-dir DIR
```

## Not for

Reading digits that matter, such as amounts or addresses. Images unlike those of its training get an
answer too, often a confident one. A glimpse shows what entered the answer, which does not prove
that the answer depends on it.
"""

_SUMMARIES = {
    "ram": "A recurrent attention model (Mnih et al., 2014, arXiv:1406.6247), which reads a digit "
    "through a few small glimpses.",
    "dram": "A deep recurrent attention model (Ba et al., 2014, arXiv:1412.7755), which reads two "
    "digits through a few small glimpses.",
    "stn": "A Spatial Transformer (Jaderberg et al., 2015, arXiv:1506.02025), which rectifies a "
    "digit before a convolutional network reads it.",
}
_SYSTEMS = {RAMConfig: "ram", DRAMConfig: "dram", STNConfig: "stn"}


@dataclass(frozen=True)
class Arguments:
    """Write a digit run as a folder that `digits.load` reads: a small graph and a card."""

    run: tyro.conf.Positional[Path]
    """The run, finished and evaluated."""
    out: tyro.conf.Positional[Path]
    """The model's folder: new, empty, or a published model to replace; its name is the model's."""


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    arguments = parse_flags(Arguments, argv, "digits.publish")
    return exit_status(lambda: run(arguments))


def run(arguments: Arguments) -> None:
    """Publishes the run and writes its card."""
    folder, out = arguments.run, arguments.out
    if out.exists() and not (out / MANIFEST).is_file() and (out.is_file() or any(out.iterdir())):
        expected = "a folder that is new, empty or a published digit model"
        raise invalid_value("out", expected, str(out))
    config = read_digit_config(folder)
    model = load(config, folder)
    write_reader(out, *small(model, config))
    write_atomically(out / CARD, make_card(folder, config, out.name, model.weights_sha256))
    size = (out / GRAPH).stat().st_size
    print(f"Published {folder} as {out}, {size / 1e6:.2f} MB; read its card: {CARD}")


def small(model: DigitModel, config: DigitRunConfig) -> tuple[Facts, bytes]:
    """Returns a model's facts and its packed graph, see `digits.reader`; rounds its weights.

    Raises:
        ValueError: It reads no single drawing.
    """
    data = config.data
    if type(config.model) not in _SYSTEMS:
        expected = "a run of RAM, DRAM or a Spatial Transformer"
        raise invalid_value("run", expected, f"one of {config.system}")
    for layer in model.saved_layers().values():
        for weight in layer.weights:
            weight.assign(unpack(pack({"weight": weight.numpy()}))["weight"])

    def read(images: tf.Tensor) -> dict[str, tf.Tensor]:
        corners, patches, logits = model.read(images)
        return {"corners": corners, "patches": patches, "probabilities": tf.nn.softmax(logits)}

    image = tf.TensorSpec([1, data.size, data.size, 1], tf.float32, name="images")
    with tempfile.TemporaryDirectory() as home:
        archive = keras.export.ExportArchive()
        traced = archive.add_endpoint("serving_default", read, [image]).get_concrete_function()
        archive.write_out(home, verbose=False)
        path = Path(home) / "graph.tflite"
        path.write_bytes(tf.lite.TFLiteConverter.from_saved_model(home).convert())
        graph = pack_graph(path)
    _, looks, side, _, _ = traced.structured_outputs["patches"].shape
    scales = (data.scale_from, data.scale_to) if isinstance(data, CanvasData) else (1.0, 1.0)
    ink = (_INK * scale for scale in scales)
    kind, count = _SYSTEMS[type(config.model)], data.digits_per_example
    return Facts(
        kind, config.recipe, list(data.answers), count, data.size, *ink, looks, side
    ), graph


def make_card(run_dir: Path, config: DigitRunConfig, name: str, weights_sha256: str | None) -> str:
    """Returns the card as Markdown."""
    # The command itself trains the run on single digits, so its folder is not a flag; any other
    # origin is named without its folders.
    origin = config.init_from and Path(config.init_from).name
    first = single_dir(run_dir).name
    config = dataclasses.replace(config, init_from=None if origin == first else origin)
    return _CARD.format(
        recipe=config.recipe,
        summary=_SUMMARIES[_SYSTEMS[type(config.model)]],
        name=name,
        manifest=MANIFEST,
        graph=GRAPH,
        group=GROUP,
        dev=f"{config.data.dev_digits:,}",
        scores=_scores(run_dir, weights_sha256),
        command=training_command(config),
    )


def _scores(run_dir: Path, weights_sha256: str | None) -> str:
    lines = []
    for path in RunFolder(run_dir).reports():
        report = json.loads(path.read_text("utf-8"))
        if outdated := outdated_note(report, weights_sha256):
            lines.append(f"- {outdated}")
            continue
        line = f"- {report['split']}: {report['error']:.2f} % of {report['examples']:,} examples"
        if trained := report.get("training"):
            line += f", by epoch {trained['best_epoch']} of the {trained['epochs']} trained"
        lines.append(line)
    return "\n".join(lines) or "None were measured."


if __name__ == "__main__":
    sys.exit(main())
