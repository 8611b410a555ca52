"""Digit models in a page without a server: what `serving.export --format web` hands over."""

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
from sat_tf.packing import pack_graph
from sat_tf.trained import published
from sat_tf.trained.lite.graphs import convert
from serving.saved_model import Signature, save_signatures
from serving.web.sources import named

_SIGNATURE = "read"


def add(runs: Sequence[Path], site: Path) -> dict[str, str]:
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
    runtime = max(path.stat().st_size for path in (site / "litert").glob("*.gz"))
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
        made = save_signatures([Signature(_SIGNATURE, read, image)], Path(home))
        path = Path(home) / "graph.tflite"
        path.write_bytes(convert(home, _SIGNATURE))
        graph = pack_graph(path)
    _, looks, side, _, _ = made[_SIGNATURE].structured_outputs["patches"].shape
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
