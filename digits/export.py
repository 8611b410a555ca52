"""Export published digit models: `python -m serving.export --run-dir MODEL`, `--format web`."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

import digits
from digits.page import FILES, NAME, TITLE
from digits.reader import DigitReader
from sat_tf.inference import published
from sat_tf.inference.graphs import convert
from sat_tf.inference.packing import pack_graph
from sat_tf.util.errors import invalid_value
from serving.saved_model import Signature, save_signatures
from serving.signatures import SERVING_DEFAULT
from serving.versions import CARD_FILE, write_version
from serving.web.captions import named

_CALLING = """
## Signature

`serving_default`: `images` float32 `[B, {image_size}, {image_size}, 1]`, white on black in [0, 1],
digits {ink_from:g} to {ink_to:g} pixels long. Outputs, T looks, K classes: `probabilities` float32
`[B, T, K]` after each look; `corners` float32 `[B, T, 4, 2]` of the finest patch, (x, y) as shares
of the image's sides, y down; `patches` float32 `[B, T, h, w, scales]`, the finest first, each twice
as wide as the one before; `answers` string `[B, K]`, the classes' names.
"""


def run(run_dir: Path, out: Path | None = None, **others: Any) -> None:
    """Exports a model and says where to.

    Args:
        run_dir: The model, by folder or name.
        out: Folder of the versions; `export` in the model's folder by default.
        others: Options of an exported captioner that were given.

    Raises:
        ValueError: There are such options.
    """
    for name, value in others.items():
        raise invalid_value(name, "no value for a digit model", value)
    out = out or published.output_dir(run_dir) / "export"
    print(f"Exported {run_dir} to {export(published.locate(run_dir), out)}")


def export(folder: Path, out: Path) -> Path:
    """Writes a published model as the next version below a folder; see `write_version`."""
    reader = digits.load(folder)
    config, answers = reader.config, tf.constant([reader.config.answers])

    def serving_default(images: tf.Tensor) -> dict[str, tf.Tensor]:
        corners, patches, logits = reader.model.read(images)
        return {
            "probabilities": tf.nn.softmax(logits),
            "corners": corners,
            "patches": patches,
            "answers": tf.repeat(answers, tf.shape(images)[0], axis=0),
        }

    def write(draft: Path) -> None:
        shape = [None, config.image_size, config.image_size, 1]
        images = tf.TensorSpec(shape, tf.float32, name="images")
        save_signatures([Signature(SERVING_DEFAULT, serving_default, images)], draft)
        (draft / CARD_FILE).parent.mkdir(exist_ok=True)
        card = published.read_card(folder) or "# Digit model\n"
        (draft / CARD_FILE).write_text(card + _CALLING.format(**vars(config)), "utf-8")

    return write_version(out, write)


def add_to_site(runs: Sequence[Path], site: Path) -> dict[str, str]:
    """Adds the view of digit models to a site.

    Args:
        runs: The models.
        site: The site's folder, in which the runtime is.

    Returns:
        `path` and `title` of the view.

    Raises:
        RunError: A model is damaged, or a run that was not published.
        ValueError: LiteRT cannot hold a model.
    """
    models, assets = site / "models", site / "assets"
    for folder in (models, assets):
        folder.mkdir(exist_ok=True)
    runtime = max(path.stat().st_size for path in (site / "litert").glob("*.packed"))
    shown = []
    for name, folder in named([digits.published_folder(run) for run in runs]).items():
        reader = digits.load(folder)
        graph, facts = read_graph(reader)
        path = models / f"{name}-{hashlib.sha256(graph).hexdigest()[:16]}.npz"
        path.write_bytes(graph)
        path.with_suffix(".md").write_text(published.read_card(folder), "utf-8")
        place = {"graph": f"{models.name}/{path.name}", "download": len(graph) + runtime}
        shown.append({"name": name, "module": "./reading.js"} | facts | place)
    (site / f"{NAME}.json").write_text(json.dumps(shown), "utf-8")
    for asset in FILES.iterdir():
        if asset.name.endswith((".css", ".js")):
            (assets / asset.name).write_bytes(asset.read_bytes())
    page = (FILES / f"{NAME}.html").read_text("utf-8")
    page = page.replace("assets/ask.js", "assets/local.js")
    (site / f"{NAME}.html").write_text(page, "utf-8")
    return {"path": f"{NAME}.html", "title": TITLE}


def read_graph(reader: DigitReader) -> tuple[bytes, dict[str, Any]]:
    """Returns a model as one LiteRT graph, packed, and what its page knows of it.

    The graph takes `images` `[1, S, S, 1]` to `corners` `[1, T, 4, 2]`, `patches`
    `[1, T, h, w, scales]` and `probabilities` `[1, T, K]`: T looks one after another at the
    policy's mean locations, as `digits.reader.DigitReader.read` takes them.
    """
    config = reader.config

    def read(images: tf.Tensor) -> dict[str, tf.Tensor]:
        corners, patches, logits = reader.model.read(images)
        return {"corners": corners, "patches": patches, "probabilities": tf.nn.softmax(logits)}

    image = tf.TensorSpec([1, config.image_size, config.image_size, 1], tf.float32, name="images")
    with tempfile.TemporaryDirectory() as home:
        made = save_signatures([Signature(SERVING_DEFAULT, read, image)], Path(home))
        path = Path(home) / "graph.tflite"
        path.write_bytes(convert(home, SERVING_DEFAULT))
        graph = pack_graph(path)
    _, looks, side, _, _ = made[SERVING_DEFAULT].structured_outputs["patches"].shape
    return graph, {
        "system": config.system,
        "digits": config.digits,
        "answers": list(config.answers),
        "size": config.image_size,
        "ink_from": config.ink_from,
        "ink_to": config.ink_to,
        "looks": looks,
        "side": side,
    }
