"""The figure of a captioned photograph: attention under each word. Needs NumPy and Pillow alone."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageOps

from sat_tf.figures.attention import save_attention_figure
from sat_tf.images.pillow import to_rgb

if TYPE_CHECKING:
    from sat_tf.captions import Caption
    from serving.client import ServedCaption

_SIZE = (448, 448)  # pixels of the photograph under the attention


def save_attention(
    content: bytes,
    caption: Caption | ServedCaption,
    resize: str,
    path: Path,
    font: Path | None = None,
) -> bool:
    """Draws attention over the part of the photograph that the encoder saw, into a file.

    Returns:
        False, after a line on standard error, if letters cannot be drawn.
    """
    with Image.open(io.BytesIO(content)) as image:
        pixels = to_rgb(image)
    if resize == "crop":
        pixels = ImageOps.fit(pixels, _SIZE, Image.Resampling.BILINEAR)
    else:
        pixels = pixels.resize(_SIZE, Image.Resampling.BILINEAR)
    maps = caption.alpha, caption.beta
    drawn = {"title": caption.text, "language": caption.language, "font": font}
    return save_attention_figure(path, np.asarray(pixels), caption.words, *maps, **drawn)
