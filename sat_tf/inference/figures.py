"""The attention figure: an image, and under each word a copy lit up where the word looked.

`attention_figure` draws it on a sheet, `attention_frames` as an animation.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw
from PIL.PngImagePlugin import PngInfo

from sat_tf.inference.lettering import (
    FAINT,
    GLOW,
    PAPER,
    Lettering,
    MissingFontError,
    clusters,
    lettering_of,
    require_fonts,
    text_width,
    wrap,
    write_text,
)
from sat_tf.util.errors import invalid_value
from sat_tf.util.files import write_atomically

PHOTOGRAPH = 448
"""Side of a photograph under the attention, pixels, where it is not the encoder's input."""
FIGURE_SUFFIXES = (".png", ".jpg", ".webp")
"""Forms of a figure's file."""
_MARK = "sat_tf attention figure"
"""Text near the start or end of a figure's file; a file without it is not overwritten by one."""

_COLUMNS = 6
_FRAME = 900  # ms per word
_HEAD = 1024  # bytes
_GAP = 10  # pixels between tiles


def attention_figure(
    image: np.ndarray,
    words: Sequence[str],
    alpha: np.ndarray | None,
    beta: np.ndarray | None = None,
    title: str | None = None,
    cell: int = 160,
    chosen: Sequence[int] | None = None,
    language: str = "",
) -> np.ndarray:
    """Draws the image, then one tile per word with the attention that predicted it.

    A tile is a dark grey copy of the image, lit up in its own colours, with a warm tint, where the
    word's map is high. Maps are enlarged bicubically and scaled by their own maxima, so brightness
    cannot be compared between words. Captions written from right to left begin at the right.

    Args:
        image: uint8 `[H, W, 3]` or grey `[H, W]`, as the encoder saw it: maps cover all of it.
        words: `T` words. One too long for its tile is drawn smaller, then cut.
        alpha: `[T, h, w]`, non-negative; None, for a model without attention, draws the image
            alone.
        beta: `[T]`, gating scalars in [0, 1]: a bar and a number under each word.
        title: A line above the tiles, wrapped.
        cell: Longer side of a tile, pixels.
        chosen: `[T]`, the location that hard attention chose for each word, outlined; row by row.
        language: Code of the words' language; their letters decide without it.

    Returns:
        uint8 `[., ., 3]`, tiles in rows of up to six.

    Raises:
        MissingFontError: Letters that no font of the machine has, or that Pillow cannot join.
        ValueError: Shapes that do not fit each other.
    """
    caption = " ".join([title or "", *(words if alpha is not None else ())])
    style = lettering_of(caption, language)
    require_fonts(caption, style)
    tiles = _attention_tiles(image, words, alpha, beta, cell, chosen)
    words, beta = (words, beta) if alpha is not None else ((), None)
    height, width = tiles[0].shape[:2]
    text = max(10, cell // 10)
    label = text * (3 if beta is not None else 2)
    rows, columns = _tile_grid(len(tiles), style)
    total = len(columns) * (width + _GAP) + _GAP
    lines = wrap(title, text, total - 2 * _GAP, style) if title else []
    head = len(lines) * round(text * 1.5) + (_GAP // 2 if lines else 0)
    sheet = Image.new("RGB", (total, head + rows * (height + label) + 2 * _GAP), PAPER)
    draw = ImageDraw.Draw(sheet)
    for n, line in enumerate(lines):
        left = total - _GAP - text_width(line, text, style) if style.right_to_left else _GAP
        write_text(draw, (left, _GAP + n * round(text * 1.5)), line, text, style)
    for n, tile in enumerate(tiles):
        left = _GAP + columns[n % len(columns)] * (width + _GAP)
        top = _GAP + head + n // len(columns) * (height + label)
        sheet.paste(Image.fromarray(tile), (left, top))
        below = (left, top + height + text // 3, width)
        if n > 0:
            _write_word(draw, below, words[n - 1], text, style)
        if beta is not None:
            _draw_gate(draw, below, None if n == 0 else float(beta[n - 1]), text)
    return np.array(sheet)


def attention_frames(
    image: np.ndarray,
    words: Sequence[str],
    alpha: np.ndarray | None,
    title: str | None = None,
    language: str = "",
    cell: int = 160,
    **options: Any,
) -> list[np.ndarray]:
    """Draws `attention_figure`, whose arguments it takes, as an animation without gates.

    Args:
        **options: `beta` and `chosen`.

    Returns:
        `T + 1` frames, uint8 `[., ., 3]`: the image, then lit up for each word; below it the words,
        the present one marked. One frame without attention.
    """
    text, gap = max(12, cell // 16), max(4, cell // 80)
    apart = "" if title == "".join(words) else " "
    style = lettering_of(apart.join(words), language)
    require_fonts(apart.join(words), style)
    tiles = _attention_tiles(image, words, alpha, cell=cell, **options)
    height, width = tiles[0].shape[:2]
    places, x, line = [], gap, 0
    for word in words:
        wide = text_width(word, text, style)
        if x > gap and x + wide > width - gap:
            x, line = gap, line + 1
        left = width - x - wide if style.right_to_left else x
        places.append((left, height + gap + 1.5 * line * text, left + wide))
        x += wide + text_width(apart, text, style)
    size = (width, round(height + 2 * gap + 1.5 * (line + 1) * text))
    frames = []
    for current, tile in enumerate(tiles, start=-1):
        frame = Image.new("RGB", size, PAPER)
        frame.paste(Image.fromarray(tile), (0, 0))
        draw = ImageDraw.Draw(frame)
        for n, (word, (left, top, right)) in enumerate(zip(words, places, strict=True)):
            if n == current:
                mark = (left - gap, top, right + gap, top + 1.4 * text)
                draw.rounded_rectangle(mark, gap, fill=GLOW)
            write_text(draw, (left, top), word, text, style)
        frames.append(np.array(frame))
    return frames


def _tile_grid(count: int, style: Lettering) -> tuple[int, list[int]]:
    """Returns the rows of so many tiles, of about one length, and a row's columns in order."""
    rows = -(-count // _COLUMNS)
    columns = list(range(-(-count // rows)))
    return rows, columns[::-1] if style.right_to_left else columns


def _attention_tiles(
    image: np.ndarray,
    words: Sequence[str],
    alpha: np.ndarray | None,
    beta: np.ndarray | None = None,
    cell: int = 160,
    chosen: Sequence[int] | None = None,
) -> list[np.ndarray]:
    """Returns the tiles of `attention_figure`: the image, then one per word, uint8 `[h, w, 3]`."""
    if alpha is None:
        words, alpha, beta = (), np.zeros([0, 1, 1]), None
    image, alpha = _checked(image, words, alpha, beta, cell)
    tile = _thumbnail(image, cell)
    lit = [_lit(tile, one) for one in alpha]
    if chosen is not None:
        grid = alpha.shape[1:]
        lit = [_outlined(one, grid, int(place)) for one, place in zip(lit, chosen, strict=True)]
    return [tile, *lit]


def figure_paths(
    folder: Path | None, images: Sequence[Path], kind: str = "png"
) -> list[Path] | list[None]:
    """Returns `FOLDER/NAME.KIND` for each image, numbered if a figure or image has that name.

    Names that differ only in case count as the same, as they are on macOS and Windows.

    Args:
        folder: Folder of the figures, which is made if need be; None if none are drawn.
        images: Files of the images, which no figure may overwrite.
        kind: Suffix of the figures.

    Returns:
        A path for each image, in order; None for each without a folder.

    Raises:
        ValueError: A figure would replace a file that is not a figure, such as a photograph.
    """
    if folder is None:
        return [None] * len(images)
    folder.mkdir(parents=True, exist_ok=True)
    taken = {_same_name(image) for image in images}
    paths = []
    for image in images:
        figure, number = folder / f"{image.stem}.{kind}", 2
        while _same_name(figure) in taken:
            figure, number = folder / f"{image.stem}-{number}.{kind}", number + 1
        taken.add(_same_name(figure))
        if figure.exists() and not is_figure(figure):
            expected = "a folder without other files of the figures' names"
            got = f"{figure}, not a figure of this version: move it, or choose another folder"
            raise invalid_value("folder", expected, got, flag="--out")
        paths.append(figure)
    return paths


def _same_name(path: Path) -> str:
    """Returns a key that is equal for paths of one file, whatever their case."""
    return os.path.realpath(path).casefold()


def save_attention_figure(path: Path, image: np.ndarray, caption: Any, **options: Any) -> bool:
    """Draws the attention of a caption into a file, in the form that its suffix says.

    `.png` and `.jpg` have `attention_figure`, `.webp` has `attention_frames`.

    Args:
        path: The file.
        image: `[H, W, 3]`, 0 to 255, all of which the maps cover.
        caption: A `Caption`, or that of a server: `text`, `words`, `alpha`, `beta`, `language`.
        **options: The other arguments of `attention_figure`.

    Returns:
        False, after a line on standard error, if letters cannot be drawn.
    """
    options |= {name: getattr(caption, name) for name in ("words", "alpha", "beta", "language")}
    options |= {"image": image.round().astype(np.uint8), "title": caption.text}
    try:
        save_figure(path, **options)
    except MissingFontError as error:
        print(f"{path}: not drawn. {error}", file=sys.stderr)
        return False
    return True


def save_figure(path: Path, **options: Any) -> None:
    """Writes a figure that `figure_paths` lets later ones replace.

    Args:
        path: `*.png`, `*.jpg` or `*.webp` (an animation).
        **options: Arguments of `attention_figure`.

    Raises:
        MissingFontError: Letters that no font of the machine has.
        ValueError: The name ends otherwise, or shapes do not fit.
    """
    suffix = path.suffix.lower()
    if suffix not in FIGURE_SUFFIXES:
        expected = f"a file named {', '.join('*' + one for one in FIGURE_SUFFIXES)}"
        raise invalid_value("path", expected, str(path))
    drawn = attention_frames(**options) if suffix == ".webp" else [attention_figure(**options)]
    first, *others = map(Image.fromarray, drawn)
    mark = PngInfo()
    mark.add_text("Comment", _MARK)
    form = {
        ".png": {"pnginfo": mark, "compress_level": 3},
        ".jpg": {"comment": _MARK, "quality": 90},
        ".webp": {"save_all": True, "append_images": others, "duration": _FRAME, "loop": 0}
        | {"quality": 80, "xmp": _MARK.encode()},
    }
    content = io.BytesIO()
    first.save(content, Image.registered_extensions()[suffix], **form[suffix])
    write_atomically(path, content.getvalue())


def is_figure(path: Path) -> bool:
    """Returns whether a file is a figure of this version."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        head = file.read(_HEAD)
        file.seek(max(0, path.stat().st_size - _HEAD))  # WebP has the mark there
        return _MARK.encode() in head + file.read()


def _checked(image, words, alpha, beta, cell):
    image, alpha = np.asarray(image), np.asarray(alpha, np.float32)
    if image.ndim == 2:
        image = np.repeat(image[..., None], 3, axis=-1)
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[-1] != 3 or image.size == 0:
        got = f"{image.dtype} {image.shape}"
        raise invalid_value("image", "a uint8 array [H, W, 3]", got)
    each = f"for each of the {len(words)} words"
    if alpha.ndim != 3 or len(alpha) != len(words) or 0 in alpha.shape[1:]:
        raise invalid_value("alpha", f"a map [h, w] {each}", f"shape {alpha.shape}")
    if beta is not None and np.shape(beta) != (len(words),):
        raise invalid_value("beta", f"a number {each}", f"shape {np.shape(beta)}")
    if cell < 16:
        raise invalid_value("cell", "16 pixels or more", cell)
    return image, np.nan_to_num(alpha)


def _thumbnail(image: np.ndarray, side: int) -> np.ndarray:
    """Resizes an image to `side` pixels on its longer side."""
    scale = side / max(image.shape[:2])
    size = tuple(max(1, round(pixels * scale)) for pixels in image.shape[1::-1])
    # Drawings of few pixels keep their hard edges; photographs are smoothed.
    policy = Image.Resampling.BICUBIC if scale < 2 else Image.Resampling.NEAREST
    return np.asarray(Image.fromarray(image).resize(size, policy))


def _lit(image: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    """Dims and greys an image `[H, W, 3]` except where the map `[h, w]` is high."""
    height, width = image.shape[:2]
    peak = max(float(alpha.max()), 1e-12)
    mask = Image.fromarray(alpha / peak).resize((width, height), Image.Resampling.BICUBIC)
    mask = np.clip(np.asarray(mask), 0.0, None)
    mask = (mask / max(float(mask.max()), 1e-12))[..., None] ** 0.8
    colour = image.astype(np.float32)
    grey = (colour @ np.array([0.299, 0.587, 0.114], np.float32))[..., None]
    # Blended as "screen", so that dark corners of a photograph show the map too.
    glow = 255.0 - (255.0 - colour) * (1.0 - 0.28 * np.array(GLOW, np.float32) / 255.0)
    lit = (1.0 - mask) * (0.30 * grey + 30.0) + mask * glow
    return np.clip(np.rint(lit), 0, 255).astype(np.uint8)


def _outlined(tile: np.ndarray, grid: tuple[int, int], place: int) -> np.ndarray:
    """Draws a frame around one location of the grid."""
    row, column = divmod(place, grid[1])
    height, width = tile.shape[0] / grid[0], tile.shape[1] / grid[1]
    left, top = column * width, row * height
    image = Image.fromarray(tile)
    frame = (round(left), round(top), round(left + width) - 1, round(top + height) - 1)
    ImageDraw.Draw(image).rectangle(frame, outline=GLOW, width=2)
    return np.array(image)


def _draw_gate(
    draw: ImageDraw.ImageDraw, below: tuple[int, int, int], beta: float | None, size: int
) -> None:
    """Draws beta as a bar and a number; for None, under the image itself, their name."""
    left, top, width = below
    small = max(8, round(size * 0.75))
    top += round(size * 1.4)
    if beta is None:
        write_text(draw, (left + width - text_width("gate beta", small), top), "gate beta", small)
        return
    number = f"{beta:.2f}"
    bar = width - round(text_width("0.00", small)) - small // 2
    if bar < small:  # no room for both
        number, bar = "", width - 1
    middle = top + small // 2 + 1
    draw.rectangle((left, middle - 1, left + bar, middle + 1), fill=FAINT)
    filled = round(bar * min(max(beta, 0.0), 1.0)) if beta == beta else 0
    if filled:
        draw.rectangle((left, middle - 1, left + filled, middle + 1), fill=GLOW)
    write_text(draw, (left + width - text_width(number, small), top), number, small)


def _write_word(
    draw: ImageDraw.ImageDraw, below: tuple[int, int, int], word: str, size: int, style: Lettering
) -> None:
    """Centres a word in the width given, smaller or cut if it is too long."""
    left, top, width = below
    word = " ".join(word.split()) or "_"  # the token may be a space itself
    smallest = max(8, round(size * 0.7))
    fitted = size
    while fitted > smallest and text_width(word, fitted, style) > width:
        fitted -= 1
    if text_width(word, fitted, style) > width:
        parts = clusters(word)
        while parts and text_width("".join(parts) + "...", fitted, style) > width:
            parts.pop()
        word = "".join(parts) + "..."
    position = (left + (width - text_width(word, fitted, style)) / 2, top + (size - fitted) / 2)
    write_text(draw, position, word, fitted, style)
