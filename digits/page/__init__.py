"""The page's second view, for drawing digits: its files, and its models' answers as data.

No TensorFlow; a graph is loaded for its first drawing.
"""

from __future__ import annotations

import base64
import functools
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

import digits
from digits.reader import CARD, DigitReader, load_reader, packed_graph, read_manifest

NAME, TITLE = "digits", "Digits"
FILES = resources.files(__package__)


class Model:
    """A published digit model on the page, loaded from its folder for the first drawing.

    Attributes:
        facts: `name`, `system` and `digits` of a drawing, for the view's choice of models.

    Raises:
        RunError: The model's manifest is damaged.
    """

    def __init__(self, folder: Path) -> None:
        known, _ = read_manifest(folder)
        self.facts = {"name": folder.name, "system": known.system, "digits": known.digits}
        self._load = functools.lru_cache(1)(lambda: load_reader(folder))

    def __call__(self, content: bytes) -> dict[str, Any]:
        """Reads an image file of a drawing, see `reading_data`.

        Raises:
            ValueError: The drawing cannot be read.
        """
        return reading_data(self._load(), content)


def models(folders: Sequence[str | Path] = ()) -> dict[str, Model]:
    """Returns published models by name, the pretrained ones by default.

    Raises:
        RunError: One is damaged, or a run that was not published.
    """
    found = [Model(digits.published_folder(name)) for name in folders or digits.names()]
    return {model.facts["name"]: model for model in found}


def reading_data(reader: DigitReader, content: bytes) -> dict[str, Any]:
    """Reads a drawing.

    Returns:
        `image` (the model's, base64 of `size` x `size` bytes), `size`, `frame` (its place in the
        drawing), `answers`, and `steps`: of each look `corners` (of the finest patch, as shares of
        the image), `patches` (base64 each, the finest first), `side` (of a patch, pixels) and
        `probabilities` of the answers.

    Raises:
        ValueError: The drawing cannot be read.
    """
    reading = reader.read(content)
    looks = zip(reading.corners, reading.patches, reading.probabilities, strict=True)
    return {
        "image": _bytes(reading.image),
        "size": reader.facts.size,
        "frame": [round(edge, 4) for edge in reading.frame],
        "answers": reader.facts.answers,
        "steps": [
            {
                "corners": np.round(corners.astype(float), 4).tolist(),
                "patches": [_bytes(patch) for patch in np.moveaxis(patches, -1, 0)],
                "side": patches.shape[0],
                "probabilities": np.round(probabilities.astype(float), 4).tolist(),
            }
            for corners, patches, probabilities in looks
        ],
    }


def _bytes(values: np.ndarray) -> str:
    grey = np.rint(255 * np.clip(values, 0.0, 1.0)).astype(np.uint8)
    return base64.b64encode(grey.tobytes()).decode("ascii")


def add_to_site(folders: Mapping[str, Path], site: Path) -> dict[str, str]:
    """Adds the view of published models by name to a static page, and returns its path and title.

    Raises:
        RunError: A model is damaged.
    """
    models, assets = site / "models", site / "assets"
    for folder in (models, assets):
        folder.mkdir(exist_ok=True)
    runtime = max(path.stat().st_size for path in (site / "litert").glob("*.packed"))
    shown = []
    for name, folder in folders.items():
        facts, digest = read_manifest(folder)
        graph = packed_graph(folder, digest)
        path = models / f"{name}-{digest[:16]}.npz"
        path.write_bytes(graph)
        if (folder / CARD).is_file():
            path.with_suffix(".md").write_bytes((folder / CARD).read_bytes())
        place = {"graph": f"{models.name}/{path.name}", "download": len(graph) + runtime}
        shown.append({"name": name, "module": "./reading.js", **vars(facts), **place})
    (site / f"{NAME}.json").write_text(json.dumps(shown), "utf-8")
    for asset in FILES.iterdir():
        if asset.name.endswith((".css", ".js")):
            (assets / asset.name).write_bytes(asset.read_bytes())
    page = (FILES / f"{NAME}.html").read_text("utf-8")
    page = page.replace("assets/ask.js", "assets/local.js")
    (site / f"{NAME}.html").write_text(page, "utf-8")
    return {"path": f"{NAME}.html", "title": TITLE}
