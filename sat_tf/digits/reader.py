"""A trained digit model: a drawing in, what it read and where it looked out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tensorflow as tf

from sat_tf import digits, published
from sat_tf.compat import default_policy
from sat_tf.digits.config import (
    DRAMConfig,
    RAMConfig,
    ReaderConfig,
    STNConfig,
    read_reader_config,
)
from sat_tf.digits.drawing import Frame, check_pixels, decode_drawing, fit_drawing
from sat_tf.digits.recurrent_attention import DRAM, RAM
from sat_tf.digits.stn import STN
from sat_tf.fields import check_argument
from sat_tf.weights import load_compact

Drawing = str | Path | bytes | np.ndarray
"""Path of an image file, its bytes, or uint8 pixels `[H, W]` with ink 255."""


@dataclass(frozen=True, eq=False)
class DigitReading:
    """A reading of one drawing, look by look.

    Attributes:
        answer: Name of the most probable class after the last look.
        probabilities: `[T, K]`, of each class after each of the T looks.
        corners: `[T, 4, 2]`, of the finest patch, (x, y) as shares of the image's sides.
        patches: `[T, h, w, scales]`, the finest first, in [0, 1].
        image: `[S, S]`, what the model was given.
        frame: Where that lies in the drawing.
    """

    answer: str
    probabilities: np.ndarray
    corners: np.ndarray
    patches: np.ndarray
    image: np.ndarray
    frame: Frame


class DigitReader:
    """A digit model with what its images look like.

    Args:
        model: The model.
        config: Of the published model.
        path: Folder it was loaded from, if any.
    """

    def __init__(
        self, model: RAM | DRAM | STN, config: ReaderConfig, path: Path | None = None
    ) -> None:
        self.model, self.config, self.path = model, config, path
        self._read = tf.function(model.read, autograph=False, reduce_retracing=True)

    def read(self, drawing: Drawing) -> DigitReading:
        """Reads a drawing.

        Args:
            drawing: Image file, its bytes, or uint8 pixels `[H, W]` with ink 255.

        Raises:
            ValueError: It is missing or cannot be read, or there is no ink.
        """
        image, frame = self._fit(drawing)
        corners, patches, logits = self._read(tf.constant(image[np.newaxis, ..., np.newaxis]))
        probabilities = tf.nn.softmax(logits[0]).numpy()
        return DigitReading(
            self.config.answers[int(probabilities[-1].argmax())],
            probabilities,
            corners[0].numpy(),
            patches[0].numpy(),
            image,
            frame,
        )

    def _fit(self, drawing: Drawing) -> tuple[np.ndarray, Frame]:
        """Returns a drawing as the model's image, and its frame; errors name the file."""
        check_argument("drawing", drawing, Drawing)
        if isinstance(drawing, np.ndarray):
            check_pixels(drawing)
        is_file = isinstance(drawing, str | Path)
        name = f"the drawing {str(drawing)!r}" if is_file else "the drawing"
        ink = (self.config.ink_from, self.config.ink_to)
        try:
            content = Path(drawing).read_bytes() if is_file else drawing
            pixels = decode_drawing(content) if isinstance(content, bytes) else content
            return fit_drawing(pixels, self.config.image_size, ink, self.config.digits)
        except OSError as error:
            raise ValueError(f"Cannot read {name}: {error.strerror or error}.") from error
        except ValueError as error:
            raise ValueError(f"Cannot read {name}: {error}.") from error


def build(
    config: RAMConfig | DRAMConfig | STNConfig,
    image_size: int,
    answers: Sequence[str],
    policy: str = "float32",
) -> RAM | DRAM | STN:
    """Builds a model of single images with new weights.

    Args:
        config: Of the model.
        image_size: Side of the square images, pixels.
        answers: Names of the classes.
        policy: Keras' dtype policy; RAM and DRAM are always float32.
    """
    # Only convolutions profit from another precision.
    kinds = {STNConfig: (STN, {"dtype": policy}), RAMConfig: (RAM, {}), DRAMConfig: (DRAM, {})}
    kind, options = kinds[type(config)]
    with default_policy("float32"):
        model = kind(config, image_size, len(answers), **options)
    model.answers = answers
    return model


def load_reader(folder: Path) -> DigitReader:
    """Loads a published model; see `sat_tf.load`."""
    files, config = published.checked_files(folder), read_reader_config(folder)
    model = build(config.model, config.image_size, config.answers)
    load_compact(model, [files[digits.WEIGHTS]])
    return DigitReader(model, config, folder)
