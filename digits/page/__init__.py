"""The view of the page on which one draws: its files, its models, their answers as data."""

from __future__ import annotations

import base64
import functools
import importlib.util
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import digits
from digits.models.config import ReaderConfig, read_reader_config
from serving.web.captioning import UploadError
from serving.web.model_process import ModelProcess
from serving.web.sources import named

if TYPE_CHECKING:
    from digits.reader import DigitReader
    from serving.web.app import View

NAME, TITLE = "digits", "Digits"
FILES = resources.files(__package__)


def open_reader(folder: Path) -> Callable[[bytes], dict[str, Any]]:
    """Loads a published model; returns a function of a drawing, see `reading_data`."""
    return functools.partial(reading_data, digits.load(folder))


def view(runs: Sequence[Path], at_end: Callable[[Callable[[], None]], object]) -> View | None:
    """Returns the view of digit models.

    Args:
        runs: The models; without any, those that ship.
        at_end: Takes what is to be called when the page ends.

    Returns:
        The view, whose models are loaded once it is opened; None if no models are given and
        TensorFlow, which runs them, is not installed.

    Raises:
        RunError: One is damaged, or a run that was not published.
    """
    if not runs and importlib.util.find_spec("tensorflow") is None:
        return None
    folders = named([digits.published_folder(name) for name in runs or digits.names()])
    sources = {name: functools.partial(open_reader, folder) for name, folder in folders.items()}
    process = ModelProcess([*sources.values()])
    at_end(process.stop)
    return make_view(
        {name: read_reader_config(folder) for name, folder in folders.items()},
        {name: functools.partial(process.ask, source) for name, source in sources.items()},
        process.start,
    )


def make_view(
    configs: dict[str, ReaderConfig], models: dict[str, Callable], opened: Callable[[], None]
) -> View:
    """Returns the view of models by name, that `opened` begins to load."""
    from serving.web.app import View  # a page without a server needs none of it

    facts = [
        {"name": name, "system": config.system, "digits": config.digits}
        for name, config in configs.items()
    ]
    return View(NAME, TITLE, FILES, models, facts, opened)


def reading_data(reader: DigitReader, content: bytes) -> dict[str, Any]:
    """Reads a drawing.

    Returns:
        `image` (base64 of `size` x `size` bytes, what the model was given), `size`, `frame` (its
        place in the drawing), `answers`, and `steps`: of each look `corners` (of the finest patch,
        as shares of the image), `patches` (base64 each, the finest first), `side` (of a patch,
        pixels) and `probabilities` of the answers.

    Raises:
        UploadError: The drawing cannot be read.
    """
    try:
        reading = reader.read(content)
    except ValueError as error:
        raise UploadError(str(error), 400) from error
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
