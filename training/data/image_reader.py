"""Reads an example's image from wherever it is stored, or says why it cannot be read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf

from sat_tf import images
from sat_tf.images.pillow import to_decodable
from training.data.examples import StoredImage

READERS = 2  # threads that decode while the model computes
# Exceptions of `read_image` for an image that is to be skipped.
UNREADABLE = (OSError, tf.errors.OpError, ValueError, TypeError)


def read_image(
    image: Path | StoredImage | bytes | np.ndarray, resize: Callable[[tf.Tensor], tf.Tensor]
) -> tuple[np.ndarray, bool]:
    """Reads, decodes, turns upright and resizes an image; returns also if EXIF asked for a turn.

    Raises:
        UNREADABLE: It cannot be read; `unreadable_reason` says why.
    """
    with tf.device("/cpu:0"):
        if isinstance(image, np.ndarray):
            return resize(image).numpy(), False
        content = image if isinstance(image, bytes) else image.read_bytes()
        if not content:
            raise ValueError("the file is empty")
        content = to_decodable(content)
        upright = images.upright(content)
        return resize(images.decode(upright)).numpy(), upright is not content


def unreadable_reason(error: Exception) -> str:
    """Describes in one line why an image is skipped, from an exception of `read_image`."""
    if isinstance(error, OSError):
        return f"cannot be read: {error.strerror or error}"
    return images.read_error(error)
