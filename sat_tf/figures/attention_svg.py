"""The attention figure as SVG, for papers: words stay text, tiles are embedded images."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from xml.sax.saxutils import escape

import numpy as np
from PIL import Image

from sat_tf.figures.attention import GAP, MARK, attention_tiles, tile_grid
from sat_tf.figures.drawing import FAINT, GLOW, INK, wrap


def attention_svg(
    image: np.ndarray,
    words: Sequence[str],
    alpha: np.ndarray | None,
    beta: np.ndarray | None = None,
    title: str | None = None,
    cell: int = 160,
    chosen: Sequence[int] | None = None,
) -> str:
    """Draws `attention_figure` as an SVG document; see there.

    Args:
        image: uint8 `[H, W, 3]`.
        words: `T` words.
        alpha: `[T, h, w]`, or None for the image alone.
        beta: `[T]`: a bar and a number under each word.
        title: A line above the tiles, wrapped.
        cell: Longer side of a tile, units of the document.
        chosen: `[T]`, the location that hard attention chose for each word.
    """
    tiles = attention_tiles(image, words, alpha, beta, 2 * cell, chosen)  # twice as fine as drawn
    labels = ["", *(words if alpha is not None else ())]
    gates = [None, *(beta if alpha is not None and beta is not None else [None] * len(labels))]
    scale = cell / max(tiles[0].shape[:2])
    height, width = (side * scale for side in tiles[0].shape[:2])
    size = max(10, cell // 10)
    pitch = height + (3 if beta is not None else 2) * size
    rows, columns = tile_grid(len(tiles))
    wide = columns * (width + GAP) + GAP
    lines = wrap(title, size, int(wide) - 2 * GAP) if title else []
    head = 1.5 * size * len(lines) + (GAP // 2 if lines else 0)
    total = (wide, head + rows * pitch + 2 * GAP)
    parts = [
        _text(line, GAP, GAP + size * (1 + 1.5 * n), size, "start") for n, line in enumerate(lines)
    ]
    for n, (tile, label, gate) in enumerate(zip(tiles, labels, gates, strict=False)):
        left, top = GAP + n % columns * (width + GAP), GAP + head + n // columns * pitch
        parts.append(_tile(tile, left, top, width, height))
        parts.append(_text(label, left + width / 2, top + height + 1.2 * size, size, "middle"))
        if gate is not None:
            parts.append(_gate(float(gate), left, top + height + 2 * size, width, size))
    box = f'viewBox="0 0 {total[0]:.1f} {total[1]:.1f}" font-family="sans-serif"'
    parts = [f"<!-- {MARK} -->", *parts]
    return f'<svg xmlns="http://www.w3.org/2000/svg" {box}>\n{chr(10).join(parts)}\n</svg>\n'


def _tile(tile: np.ndarray, left: float, top: float, width: float, height: float) -> str:
    file = io.BytesIO()
    Image.fromarray(tile).save(file, "PNG")
    content = base64.b64encode(file.getvalue()).decode("ascii")
    place = f'x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f'<image {place} href="data:image/png;base64,{content}"/>'


def _text(text: str, x: float, y: float, size: int, anchor: str) -> str:
    style = f'font-size="{size}" text-anchor="{anchor}" fill="rgb{INK}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(text)}</text>'


def _gate(beta: float, left: float, middle: float, width: float, size: int) -> str:
    bar = width - 2.5 * size
    bars = [(bar, FAINT), (bar * min(max(beta, 0.0), 1.0), GLOW)]
    drawn = [
        f'<rect x="{left:.1f}" y="{middle - 1:.1f}" width="{length:.1f}" height="3" '
        f'fill="rgb{colour}"/>'
        for length, colour in bars
    ]
    number = _text(f"{beta:.2f}", left + width, middle + size / 3, round(0.75 * size), "end")
    return "".join([*drawn, number])
