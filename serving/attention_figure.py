"""The figure of a captioned photograph: attention under each word. Needs NumPy and Pillow alone."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Protocol

import numpy as np
from PIL import Image, ImageOps

from sat_tf.figures.attention import attention_figure, save_figure
from sat_tf.images.pillow import to_rgb

_SIDE = 448  # pixels of the photograph under the attention


class Captioned(Protocol):
    """The parts of a caption that are drawn."""

    text: str
    words: tuple[str, ...]
    alpha: np.ndarray | None
    beta: np.ndarray | None


def draw_attention(content: bytes, caption: Captioned, resize: str) -> np.ndarray:
    """Draws attention over the part of the photograph that the encoder saw, uint8 `[H, W, 3]`."""
    size = (_SIDE, _SIDE)
    with Image.open(io.BytesIO(content)) as image:
        pixels = to_rgb(image)
    if resize == "crop":
        pixels = ImageOps.fit(pixels, size, Image.Resampling.BILINEAR)
    else:
        pixels = pixels.resize(size, Image.Resampling.BILINEAR)
    return attention_figure(
        np.asarray(pixels), caption.words, caption.alpha, caption.beta, caption.text
    )


def save_attention(content: bytes, caption: Captioned, resize: str, path: Path) -> None:
    """Writes the figure of `draw_attention` to a file."""
    save_figure(draw_attention(content, caption, resize), path)
