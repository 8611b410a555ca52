"""Boxes in the part of an image that the encoder sees."""

from __future__ import annotations

import dataclasses
import io
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from sat_tf.images.pillow import EXIF_ORIENTATION, centred_square
from training.data.boxes import Box, PlacedPhrase
from training.data.examples import Example, StoredImage

Visible = Callable[[Sequence[Box]], list[Box]]
Placed = Mapping[tuple[int, int], Sequence[PlacedPhrase]]
NOT_SHOWN = "phrases whose boxes are outside the part of the image that the encoder sees"
UNREADABLE = "phrases of images that cannot be read"


def visible_boxes(image: Path | StoredImage | bytes | np.ndarray, resize: str) -> Visible:
    """Returns a function from boxes of an image to boxes of the encoder's view of it.

    A box outside the view is left out, one on its edge is cut.

    Args:
        image: As in `Example.image`; only its size is read.
        resize: The encoder's policy: `squash` shows everything, `crop` the centred square.
    """
    if resize == "squash":
        return list
    height, width = image_size(image)
    top, left, side = centred_square(height, width)
    top, left = top / side, left / side

    def visible(boxes: Sequence[Box]) -> list[Box]:
        scaled = np.array(boxes) * (height, width, height, width) / side - (top, left, top, left)
        return [
            tuple(map(float, box))
            for box in np.clip(scaled, 0.0, 1.0)
            if box[0] < box[2] and box[1] < box[3]
        ]

    return visible


def visible_phrases(
    examples: Sequence[Example], placed: Placed, resize: str
) -> tuple[Placed, Counter[str]]:
    """Moves the boxes of phrases into the encoder's view.

    Args:
        examples: The split's.
        placed: (example, caption) -> its phrases.
        resize: The encoder's policy.

    Returns:
        The phrases that the view shows; and reason -> how many were left out for it.
    """
    shown: dict[tuple[int, int], list[PlacedPhrase]] = {}
    dropped: Counter[str] = Counter()
    views: dict[int, Visible | None] = {}
    for (number, caption), phrases in placed.items():
        if number not in views:
            views[number] = _view(examples[number], resize)
        view = views[number]
        if view is None:
            dropped[UNREADABLE] += len(phrases)
            continue
        for one in phrases:
            if boxes := view(one.phrase.boxes):
                phrase = dataclasses.replace(one.phrase, boxes=tuple(boxes))
                found = PlacedPhrase(phrase, one.first, one.last)
                shown.setdefault((number, caption), []).append(found)
            else:
                dropped[NOT_SHOWN] += 1
    return shown, dropped


def _view(example: Example, resize: str) -> Visible | None:
    """The view of an image, None if it cannot be read; other parts skip and count such images."""
    try:
        return visible_boxes(example.image, resize)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        return None


def image_size(image: Path | StoredImage | bytes | np.ndarray) -> tuple[int, int]:
    """Reads `(height, width)` of an image as it is shown, from its header alone.

    Raises:
        OSError: The image cannot be read.
    """
    if isinstance(image, np.ndarray):
        return image.shape[0], image.shape[1]
    content = image if isinstance(image, bytes) else image.read_bytes()
    with Image.open(io.BytesIO(content)) as opened:
        turned = opened.getexif().get(EXIF_ORIENTATION, 1) in _ON_ITS_SIDE
        width, height = opened.size
    return (width, height) if turned else (height, width)


_ON_ITS_SIDE = (5, 6, 7, 8)
