"""Figures of digits: attention over a strip, the path of glimpses, images side by side."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw

from sat_tf.inference.figures import GLOW, INK, PAPER, write_text

_TILE = 168  # pixels, side
_SCALE = 3  # of a strip's pixels
_ROW = 26  # pixels, of a query
_GAP = 10
_TEXT = 14
_FIRST = (64, 148, 255)  # frame of the first glimpse


def alpha_matrix_figure(
    strip: np.ndarray,
    labels: Sequence[int],
    alpha: np.ndarray,
    probability: np.ndarray,
    present: np.ndarray,
) -> np.ndarray:
    """Draws a strip, and below it the attention of each query over its portions.

    The warmer a cell, the higher its alpha, whose number is in percent. A row ends with the
    probability that its label is present, marked if it is wrong.

    Args:
        strip: uint8 `[H, W]`, its portions side by side.
        labels: Q labels asked for.
        alpha: float `[Q, L]`, each row sums to 1; L is the number of portions, or one more with
            the null slot in the last column.
        probability: float `[Q]`, that the label is present.
        present: bool `[Q]`, True if it is.

    Returns:
        uint8 `[., ., 3]`.
    """
    strip, alpha = np.asarray(strip), np.asarray(alpha)
    cell = strip.shape[0] * _SCALE
    enlarged = Image.fromarray(strip).resize(
        (strip.shape[1] * _SCALE, cell), Image.Resampling.NEAREST
    )
    left, top = 4 * _TEXT, _GAP + cell + 2 * _TEXT
    right = left + alpha.shape[1] * cell
    sheet = Image.new("RGB", (right + 10 * _TEXT, top + len(labels) * _ROW + _GAP), PAPER)
    sheet.paste(enlarged, (left, _GAP))
    draw = ImageDraw.Draw(sheet)
    portions = strip.shape[1] // strip.shape[0]
    for column in range(alpha.shape[1]):
        name = f"{column + 1}" if column < portions else "nowhere"
        write_text(draw, (left + column * cell + 4, top - round(1.4 * _TEXT)), name, _TEXT)
    for row, label in enumerate(labels):
        middle = top + row * _ROW + (_ROW - _TEXT) // 2
        write_text(draw, (_GAP, middle), f"{label} ?", _TEXT)
        for column, share in enumerate(map(float, alpha[row])):
            x, y = left + column * cell, top + row * _ROW
            colour = tuple(round(p + share * (g - p)) for p, g in zip(PAPER, GLOW, strict=True))
            draw.rectangle((x, y, x + cell - 3, y + _ROW - 3), fill=colour, outline=INK)
            if share >= 0.005:
                write_text(draw, (x + 6, middle - 1), f"{100 * share:.0f}", _TEXT)
        said = probability[row] > 0.5
        answer = f"{'yes' if said else 'no'} {100 * probability[row]:.1f} %"
        wrong = "" if said == present[row] else ", wrong"
        write_text(draw, (right + _GAP, middle), answer + wrong, _TEXT)
    return np.array(sheet)


def side_by_side(images: Sequence[np.ndarray], title: str) -> np.ndarray:
    """Draws images enlarged to one size in a row, below a line of text.

    Args:
        images: Float `[h, w]` each, 0 black to 1 white.
        title: Line above them.

    Returns:
        uint8 `[., ., 3]`.
    """
    return _sheet([_tile(image) for image in images], [""] * len(images), title)


def glimpse_figure(
    image: np.ndarray, locations: np.ndarray, patches: np.ndarray, title: str
) -> np.ndarray:
    """Draws the path of glimpses over an image, then one tile per glimpse with its patches.

    The path has a frame of the finest patch's size at each location, the first one blue. A tile
    nests the patches, each at its own size: fine in the middle, coarse around it.

    Args:
        image: Float `[H, W]`, 0 black to 1 white.
        locations: `[T, 2]`, (x, y) normalised to [-1, 1], y down.
        patches: `[T, size, size, scales]`, the finest first, each twice as wide as the last.
        title: Line above them.

    Returns:
        uint8 `[., ., 3]`.
    """
    tiles = [_path(image, locations, patches.shape[1]), *map(_retina, patches)]
    return _sheet(tiles, ["", *(f"{n}" for n in range(1, len(tiles)))], title)


def _tile(image: np.ndarray) -> Image.Image:
    grey = np.rint(255.0 * np.clip(image, 0.0, 1.0)).astype(np.uint8)
    return Image.fromarray(grey).convert("RGB").resize((_TILE, _TILE), Image.Resampling.NEAREST)


def _path(image: np.ndarray, locations: np.ndarray, size: int) -> Image.Image:
    """Draws frames of `size` pixels at the locations, and lines from one to the next."""
    tile = _tile(image)
    draw = ImageDraw.Draw(tile)
    sides = np.array(image.shape[::-1])
    scale = _TILE / sides
    # The centre of pixel 0 is half a pixel from the border.
    centres = ((locations + 1.0) / 2.0 * (sides - 1) + 0.5) * scale
    half = size / 2.0 * scale
    draw.line([tuple(centre) for centre in centres], fill=GLOW, width=2)
    for n in reversed(range(len(centres))):
        frame = (*(centres[n] - half), *(centres[n] + half))
        draw.rectangle(frame, outline=GLOW if n else _FIRST, width=2)
    return tile


def _retina(patches: np.ndarray) -> Image.Image:
    """Nests patches `[size, size, scales]`, the coarsest one filling the tile."""
    scales = patches.shape[-1]
    tile = _tile(patches[..., -1])
    for k in reversed(range(scales - 1)):
        side = _TILE // 2 ** (scales - 1 - k)
        corner = (_TILE - side) // 2
        tile.paste(_tile(patches[..., k]).resize((side, side)), (corner, corner))
        frame = (corner, corner, corner + side, corner + side)
        ImageDraw.Draw(tile).rectangle(frame, outline=GLOW)
    return tile


def _sheet(tiles: Sequence[Image.Image], captions: Sequence[str], title: str) -> np.ndarray:
    top, step = _GAP + 2 * _TEXT, _TILE + _GAP
    size = (len(tiles) * step + _GAP, top + _TILE + 2 * _TEXT)
    sheet = Image.new("RGB", size, PAPER)
    draw = ImageDraw.Draw(sheet)
    write_text(draw, (_GAP, _GAP), title, _TEXT)
    for n, (tile, caption) in enumerate(zip(tiles, captions, strict=True)):
        sheet.paste(tile, (_GAP + n * step, top))
        write_text(draw, (_GAP + n * step, top + _TILE + 4), caption, _TEXT)
    return np.array(sheet)
