"""The view of the page on which one draws: its files, its models, their answers as data."""

from __future__ import annotations

import base64
import functools
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import digits
from digits.models.config import read_reader_config
from sat_tf.util.commands import loading

if TYPE_CHECKING:
    from digits.reader import DigitReader

NAME, TITLE = "digits", "Digits"
FILES = resources.files(__package__)


class Model:
    """A published digit model on the page, loaded by its first drawing.

    Attributes:
        facts: What the view asks for first: `name`, `system` and `digits` of a drawing.
    """

    def __init__(self, folder: Path) -> None:
        known = read_reader_config(folder)
        self.facts = {"name": folder.name, "system": known.system, "digits": known.digits}
        self._load = functools.lru_cache(1)(lambda: digits.load(folder))

    def __call__(self, content: bytes) -> dict[str, Any]:
        """Reads an image file of a drawing, see `reading_data`."""
        with loading():
            reader = self._load()
        return reading_data(reader, content)


def models(folders: Sequence[str | Path] = ()) -> dict[str, Model]:
    """Returns published models by name, the pretrained ones by default."""
    found = [Model(digits.published_folder(name)) for name in folders or digits.names()]
    return {model.facts["name"]: model for model in found}


def add_to_site(folders: Mapping[str, Path], site: Path) -> dict[str, str]:
    """Adds the view to a page without a server."""
    from digits.export import add_to_site

    return add_to_site(list(folders.values()), site)


def reading_data(reader: DigitReader, content: bytes) -> dict[str, Any]:
    """Reads a drawing.

    Returns:
        `image` (base64 of `size` x `size` bytes, what the model was given), `size`, `frame` (its
        place in the drawing), `answers`, and `steps`: of each look `corners` (of the finest patch,
        as shares of the image), `patches` (base64 each, the finest first), `side` (of a patch,
        pixels) and `probabilities` of the answers.

    Raises:
        ValueError: The drawing cannot be read.
    """
    reading = reader.read(content)
    looks = zip(reading.corners, reading.patches, reading.probabilities, strict=True)
    return {
        "image": _bytes(reading.image),
        "size": reader.config.image_size,
        "frame": [round(edge, 4) for edge in reading.frame],
        "answers": list(reader.config.answers),
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
