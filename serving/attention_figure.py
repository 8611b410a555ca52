"""The figure of a captioned photograph: attention under each word. Needs NumPy and Pillow alone."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Protocol

import numpy as np
from PIL import Image, ImageOps

from sat_tf.figures.attention import attention_figure
from sat_tf.images.orientation import to_rgb

_SIDE = 448  # pixels of the photograph under the attention


class Captioned(Protocol):
    """The parts of a caption that are drawn."""

    text: str
    words: tuple[str, ...]
    alpha: np.ndarray | None
    beta: np.ndarray | None


def save_attention(content: bytes, caption: Captioned, resize: str, path: Path) -> None:
    """Writes a figure: attention over the part of the photograph that the encoder saw."""
    size = (_SIDE, _SIDE)
    with Image.open(io.BytesIO(content)) as image:
        pixels = to_rgb(image)
    if resize == "crop":
        pixels = ImageOps.fit(pixels, size, Image.Resampling.BILINEAR)
    else:
        pixels = pixels.resize(size, Image.Resampling.BILINEAR)
    maps = caption.alpha, caption.beta
    figure = attention_figure(np.asarray(pixels), caption.words, *maps, caption.text)
    Image.fromarray(figure).save(path)
