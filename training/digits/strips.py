"""Strips of digits side by side."""

from __future__ import annotations

import numpy as np

from training.digits.config import StripsData
from training.digits.mnist import Digits


def draw(
    digits: Digits, rows: np.ndarray, rng: np.random.Generator, config: StripsData
) -> dict[str, np.ndarray]:
    """Strips of the digits chosen, left to right.

    Args:
        digits: Of the split.
        rows: int `[B, P]`, which digits each strip is made of.
        rng: Of how far each digit is moved.
        config: Of the data set.

    Returns:
        `images` uint8 `[B, 28, 28 P]` and `labels` int64 `[B, P]`.
    """
    apart = _moved(digits.images, rows, rng, config.shift)
    strips = np.concatenate([apart[:, portion] for portion in range(rows.shape[1])], axis=-1)
    return {"images": strips, "labels": digits.labels[rows]}


def _moved(
    images: np.ndarray, rows: np.ndarray, rng: np.random.Generator, shift: int
) -> np.ndarray:
    """The images of these rows, `[*rows.shape, H, W]`, each moved; zeros come in at the sides."""
    if not shift:
        return images[rows]
    height, width = images.shape[1:]
    by = rng.integers(-shift, shift + 1, [2, *rows.shape, 1])
    row, column = np.arange(height) - by[0], np.arange(width) - by[1]
    inside = ((row >= 0) & (row < height))[..., np.newaxis]
    inside = inside & ((column >= 0) & (column < width))[..., np.newaxis, :]
    place = (row % height)[..., np.newaxis], (column % width)[..., np.newaxis, :]
    return np.where(inside, images[rows[..., np.newaxis, np.newaxis], *place], np.uint8(0))
