"""A drawing as the data of the page's second view; whatever goes wrong, as a sentence."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

import numpy as np

from sat_tf.digits.drawing import decode_drawing, fit_drawing
from sat_tf.digits.reader_config import ReaderConfig
from serving.client import DigitClient, ServingError
from serving.web.captioning import UploadError, in_words


@dataclass(frozen=True)
class ServedDigits:
    """A digit model to show.

    Attributes:
        client: Asks it.
        config: Tells what its images look like.
    """

    client: DigitClient
    config: ReaderConfig

    def describe(self) -> dict[str, Any]:
        """Returns what the page has to know before a drawing is there."""
        config = self.config
        return {"name": self.client.model, "system": config.system, "digits": config.digits}


def read_drawing(content: bytes, model: ServedDigits) -> dict[str, Any]:
    """Reads a drawing.

    Returns:
        `image` (base64 of `size` x `size` bytes, what the model was given), `size`, `frame` (its
        place in the drawing), `answers`, and `steps`: of each look `corners` (of the finest patch,
        as shares of the image), `patches` (base64 each, the finest first), `side` (of a patch,
        pixels) and `probabilities` of the answers.

    Raises:
        UploadError: It cannot be read.
    """
    config = model.config
    try:
        ink = (config.ink_from, config.ink_to)
        image, frame = fit_drawing(decode_drawing(content), config.image_size, ink, config.digits)
    except ValueError as error:
        raise UploadError(f"This drawing cannot be read: {error}.", 400) from error
    try:
        reading = model.client.read(image)
    except ServingError as error:
        raise in_words(error, model.client) from error
    looks = zip(reading.corners, reading.patches, reading.probabilities, strict=True)
    return {
        "image": _bytes(image),
        "size": config.image_size,
        "frame": [round(edge, 4) for edge in frame],
        "answers": reading.answers,
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
