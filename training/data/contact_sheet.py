"""A sheet of a few images with their captions, in which a wrong pairing is seen at a glance."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from sat_tf.images import pillow
from sat_tf.inference.lettering import (
    PAPER,
    Lettering,
    MissingFontError,
    clusters,
    font_runs,
    lettering_of,
    require_fonts,
    text_width,
    wrap,
    write_text,
)
from sat_tf.util.files import write_atomically
from training.data.examples import Split, StoredImage

IMAGES = 12
_COLUMNS = 4
_CELL, _GAP, _TEXT = 220, 12, 13  # pixels
_LINES = 6
_TRIES = 3  # images to try instead of one that cannot be read


def write_contact_sheet(path: Path, split: Split, language: str = "") -> bool:
    """Draws images of a split, evenly spread over it, each above its name and first captions.

    Args:
        path: A JPEG.
        split: The split.
        language: Code of the captions' language.

    Returns:
        False if nothing can be drawn: no image can be read, or no font has the letters.
    """
    try:
        tiles = [_tile(*shown, language) for shown in _chosen(split)]
    except MissingFontError:
        return False
    if not tiles:
        return False
    columns = min(_COLUMNS, len(tiles))
    rows = [tiles[start : start + columns] for start in range(0, len(tiles), columns)]
    heights = [max(tile.height for tile in row) for row in rows]
    width = columns * (_CELL + _GAP) + _GAP
    sheet = Image.new("RGB", (width, sum(heights) + (len(rows) + 1) * _GAP), PAPER)
    top = _GAP
    for row, height in zip(rows, heights, strict=True):
        for column, tile in enumerate(row):
            sheet.paste(tile, (_GAP + column * (_CELL + _GAP), top))
        top += height + _GAP
    file = io.BytesIO()
    sheet.save(file, "JPEG", quality=88)
    write_atomically(path, file.getvalue())
    return True


def _chosen(split: Split) -> Iterator[tuple[Image.Image, str, tuple[str, ...]]]:
    """Yields image, name and captions of examples; the next one stands in for an unreadable one."""
    places = np.linspace(0, len(split), min(IMAGES, len(split)), endpoint=False).astype(int)
    ends = [*places[1:], len(split)]
    for place, end in zip(places, ends, strict=True):
        for example in split.examples[place : min(end, place + _TRIES)]:
            image = example.image
            try:
                if isinstance(image, np.ndarray):
                    decoded = Image.fromarray(image)
                else:
                    content = image.read_bytes() if isinstance(image, StoredImage) else image
                    decoded = pillow.decode(pillow.read_content(content))
            except (OSError, ValueError):
                continue
            yield decoded, example.image_id, example.captions
            break


def _tile(image: Image.Image, name: str, captions: tuple[str, ...], language: str) -> Image.Image:
    scale = _CELL / max(image.size)
    size = tuple(max(1, round(side * scale)) for side in image.size)
    image = image.resize(size, Image.Resampling.LANCZOS)
    texts = [(f"{name}:", ""), *((caption, language) for caption in captions)]
    lines = [
        (line, style)
        for text, code in texts
        for style in [lettering_of(text, code)]
        for line in wrap(_drawable(text, style, text in captions), _TEXT, _CELL, style)
    ]
    if len(lines) > _LINES:
        lines = [*lines[:_LINES], ("...", lettering_of(""))]
    tile = Image.new("RGB", (_CELL, image.height + round(1.4 * _TEXT * len(lines)) + 6), PAPER)
    tile.paste(image, ((_CELL - image.width) // 2, 0))
    draw = ImageDraw.Draw(tile)
    for number, (line, style) in enumerate(lines):
        left = _CELL - text_width(line, _TEXT, style) if style.right_to_left else 0
        top = image.height + 4 + round(1.4 * _TEXT * number)
        write_text(draw, (left, top), line, _TEXT, style)
    return tile


def _drawable(text: str, style: Lettering, caption: bool) -> str:
    """Returns a text with a question mark for each letter, such as an emoji, that no font has.

    Raises:
        MissingFontError: Most letters of a caption are such.
    """
    runs = [(face, clusters(piece)) for face, piece in font_runs(text, style)]
    lost = sum(len(letters) for face, letters in runs if not face)
    if caption and 2 * lost > len(clusters(text)):
        require_fonts(text, style)
    return "".join("".join(letters) if face else "?" * len(letters) for face, letters in runs)
