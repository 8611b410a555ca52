"""Digit models in serving: their export, their client, and the readings that the page shows.

Exporting alone loads TensorFlow.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sat_tf import digits, published
from sat_tf.digits.config import ReaderConfig, read_reader_config
from sat_tf.digits.drawing import decode_drawing, fit_drawing
from serving.client import Connection, protocol
from serving.client.channel import ModelClient
from serving.versions import CARD_FILE, write_version

if TYPE_CHECKING:
    from sat_tf.digits.reader import DigitReader
    from serving.saved_model import Signature

_TITLE = "# Digit model\n"
_CALLING = """
## Signature

`serving_default`: `images` float32 `[B, {size}, {size}, 1]`, white on black in [0, 1], digits
{ink_from:g} to {ink_to:g} pixels long. Outputs, T looks, K classes: `probabilities` float32
`[B, T, K]` after each look; `corners` float32 `[B, T, 4, 2]` of the finest patch, (x, y) as shares
of the image's sides, y down; `patches` float32 `[B, T, h, w, scales]`, the finest first, each twice
as wide as the one before; `answers` string `[B, K]`, the classes' names.
"""


def export(run_dir: Path, out: Path) -> Path:
    """Writes a published digit model as the next version below a folder; see `write_version`."""
    from serving.saved_model import save_signatures

    reader = digits.load(run_dir)

    def write(draft: Path) -> None:
        save_signatures([_signature(reader)], draft)
        config = reader.config
        calling = _CALLING.format(
            size=config.image_size, ink_from=config.ink_from, ink_to=config.ink_to
        )
        path = draft / CARD_FILE
        path.parent.mkdir(exist_ok=True)
        path.write_text((published.read_card(run_dir) or _TITLE) + calling, "utf-8")

    return write_version(out, write)


def _signature(reader: DigitReader) -> Signature:
    """Returns the signature that a digit model is served by; see its card."""
    import tensorflow as tf

    from serving.saved_model import Signature
    from serving.signatures import SERVING_DEFAULT

    size, answers = reader.config.image_size, tf.constant([reader.config.answers])

    def serving_default(images: tf.Tensor) -> dict[str, tf.Tensor]:
        corners, patches, logits = reader.model.read(images)
        return {
            "probabilities": tf.nn.softmax(logits),
            "corners": corners,
            "patches": patches,
            "answers": tf.repeat(answers, tf.shape(images)[0], axis=0),
        }

    images = tf.TensorSpec([None, size, size, 1], tf.float32, name="images")
    return Signature(SERVING_DEFAULT, serving_default, images)


@dataclass(frozen=True, eq=False)
class ServedReading:
    """The reading of one image, look by look: T looks, K classes.

    Attributes:
        answers: Names of the classes.
        probabilities: `[T, K]`, after each look.
        corners: `[T, 4, 2]`, of the finest patch, (x, y) as shares of the image's sides.
        patches: `[T, h, w, scales]`, the finest first.
    """

    answers: tuple[str, ...]
    probabilities: np.ndarray
    corners: np.ndarray
    patches: np.ndarray


class DigitClient(ModelClient):
    """Readings of a served digit model; see `ModelClient`."""

    def read(self, image: np.ndarray) -> ServedReading:
        """Reads one image, float32 `[S, S]`, white on black in [0, 1].

        Raises:
            ServingError: The server gave no answer, or an error for one.
        """
        request = protocol.PredictRequest()
        request.model_spec.name = self.model
        protocol.write_floats(request.inputs["images"], image[np.newaxis, ..., np.newaxis])
        outputs = self.predict(request).outputs
        values = {name: protocol.to_array(tensor)[0] for name, tensor in outputs.items()}
        answers = tuple(name.decode("utf-8") for name in values.pop("answers"))
        return ServedReading(answers, **values)


@dataclass(frozen=True)
class ServedDigits:
    """A digit model on the page's second view.

    Attributes:
        client: Asks it; open.
        config: The look of its images.
    """

    client: DigitClient
    config: ReaderConfig

    def describe(self) -> dict[str, Any]:
        """Returns what the page has to know before a drawing is there."""
        config = self.config
        return {"name": self.client.model, "system": config.system, "digits": config.digits}

    def read(self, content: bytes) -> dict[str, Any]:
        """Reads a drawing.

        Returns:
            `image` (base64 of `size` x `size` bytes, what the model was given), `size`, `frame`
            (its place in the drawing), `answers`, and `steps`: of each look `corners` (of the
            finest patch, as shares of the image), `patches` (base64 each, the finest first),
            `side` (of a patch, pixels) and `probabilities` of the answers.

        Raises:
            ValueError: The drawing cannot be read.
            ServingError: The server gave no answer, or an error for one.
        """
        config = self.config
        ink = (config.ink_from, config.ink_to)
        image, frame = fit_drawing(decode_drawing(content), config.image_size, ink, config.digits)
        reading = self.client.read(image)
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


def view(connection: Connection, name: str, run_dir: Path) -> ServedDigits:
    """Returns the view of a published digit model that a server has under a name."""
    return ServedDigits(DigitClient(connection, name), read_reader_config(run_dir))


def _bytes(values: np.ndarray) -> str:
    grey = np.rint(255 * np.clip(values, 0.0, 1.0)).astype(np.uint8)
    return base64.b64encode(grey.tobytes()).decode("ascii")
