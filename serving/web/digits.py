"""The page's second view: readings of drawings, look by look."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sat_tf.digits.config import ReaderConfig
from serving.web.captioning import UploadError

if TYPE_CHECKING:
    from sat_tf.digits.reader import DigitReader


@dataclass(frozen=True)
class DigitModel:
    """A digit model of the page.

    Attributes:
        config: The look of its images.
        read: Reads a drawing, see `reading_data`; raises an `UploadError`.
    """

    config: ReaderConfig
    read: Callable[[bytes], Awaitable[dict[str, Any]]]


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
