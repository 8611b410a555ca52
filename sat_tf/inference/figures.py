"""The attention figure: an image, and under each word a copy lit up where the word looked.

Text is in Pillow's font, or in one of the system's, which Pillow finds by name.
"""

from __future__ import annotations

import functools
import io
import os
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont, features
from PIL.PngImagePlugin import PngInfo

from sat_tf.util.errors import invalid_value
from sat_tf.util.files import write_atomically

PAPER, INK, FAINT, GLOW = (255, 255, 255), (34, 34, 34), (222, 222, 222), (255, 166, 43)
PHOTOGRAPH = 448
"""Side of a photograph under the attention, pixels, where it is not the encoder's input."""
_MARK = "sat_tf attention figure"
"""Comment near the start of a figure's file; a file without it is not overwritten by one."""

_COLUMNS = 6
_HEAD = 1024  # bytes
_GAP = 10  # pixels between tiles

FONTS = (
    *("DejaVuSans.ttf", "NotoSans-Regular.ttf", "Symbola_hint.ttf"),
    *("Arial Unicode.ttf", "arial.ttf", "seguisym.ttf", "Nirmala.ttf", "LeelawUI.ttf"),
    *("msyh.ttc", "YuGothM.ttc", "malgun.ttf", "mmrtext.ttf", "ebrima.ttf"),
)
"""Files of fonts that are tried after Noto's for the script of a text."""
_CJK = {"ja": 0, "ko": 1, "zh": 2, "hant": 3, "tw": 3, "yue": 4, "hk": 4}
"""Place in Noto's collection of the font that draws Chinese characters as a language does."""


class MissingFontError(ValueError):
    """Letters that cannot be drawn on this machine: no font has them, or none can join them."""


class Lettering(NamedTuple):
    """The choice of a font and the direction of a text."""

    language: str = ""  # chooses among forms of Chinese characters
    right_to_left: bool = False


PLAIN = Lettering()


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
    word's map is high. Maps are enlarged bicubically and scaled to their maxima, so brightness
    cannot be compared between words. Captions written from right to left begin at the right.

    Args:
        image: uint8 `[H, W, 3]` or grey `[H, W]`, as the encoder saw it: maps cover all of it.
        words: `T` words. One too long for its tile is cut.
        alpha: `[T, h, w]`, non-negative; None, for a model without attention, draws the image
            alone.
        beta: `[T]`, gating scalars in [0, 1]: a bar and a number under each word.
        title: A line above the tiles, wrapped.
        cell: Longer side of a tile, pixels.
        chosen: `[T]`, the location that hard attention chose for each word, outlined; row by row.
        language: Code of the words' language, for its forms of Chinese characters.

    Returns:
        uint8 `[., ., 3]`, tiles in rows of up to six.

    Raises:
        MissingFontError: Letters that no font of the machine has, or that Pillow cannot join.
        ValueError: Shapes that do not fit each other.
    """
    if alpha is None:
        words, alpha, beta = (), np.zeros([0, 1, 1]), None
    style = lettering_of(" ".join([title or "", *words]), language)
    tiles = _tiles(image, words, alpha, beta, cell, chosen)
    height, width = tiles[0].shape[:2]
    text = max(10, cell // 10)
    label, leading = text * (3 if beta is not None else 2), round(text * 1.5)
    rows = -(-len(tiles) // _COLUMNS)
    columns = -(-len(tiles) // rows)
    total = columns * (width + _GAP) + _GAP
    lines = wrap(title, text, total - 2 * _GAP, style) if title else []
    head = _GAP + len(lines) * leading + (_GAP // 2 if lines else 0)
    sheet = Image.new("RGB", (total, head + rows * (height + label) + _GAP), PAPER)
    draw = ImageDraw.Draw(sheet)
    for n, line in enumerate(lines):
        left = total - _GAP - text_width(line, text, style) if style.right_to_left else _GAP
        write_text(draw, (left, _GAP + n * leading), line, text, style)
    for n, tile in enumerate(tiles):
        row, column = divmod(n, columns)
        column = columns - 1 - column if style.right_to_left else column
        left, top = _GAP + column * (width + _GAP), head + row * (height + label)
        sheet.paste(Image.fromarray(tile), (left, top))
        below = (left, top + height + text // 3, width)
        if n > 0:
            _write_word(draw, below, words[n - 1], text, style)
        if beta is not None:
            _draw_gate(draw, below, None if n == 0 else float(beta[n - 1]), text)
    return np.array(sheet)


def _tiles(
    image: np.ndarray,
    words: Sequence[str],
    alpha: np.ndarray,
    beta: np.ndarray | None,
    cell: int,
    chosen: Sequence[int] | None,
) -> list[np.ndarray]:
    """Returns the tiles of `attention_figure`: the image, then one per word, uint8 `[h, w, 3]`."""
    image, alpha = np.asarray(image), np.nan_to_num(np.asarray(alpha, np.float32))
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
    scale = cell / max(image.shape[:2])
    size = tuple(max(1, round(pixels * scale)) for pixels in image.shape[1::-1])
    # Drawings of few pixels keep their hard edges; photographs are smoothed.
    policy = Image.Resampling.BICUBIC if scale < 2 else Image.Resampling.NEAREST
    tile = np.asarray(Image.fromarray(image).resize(size, policy))
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

    def key(path: Path) -> str:
        return os.path.realpath(path).casefold()

    folder.mkdir(parents=True, exist_ok=True)
    taken = {*map(key, images)}
    paths = []
    for image in images:
        figure, number = folder / f"{image.stem}.{kind}", 2
        while key(figure) in taken:
            figure, number = folder / f"{image.stem}-{number}.{kind}", number + 1
        taken.add(key(figure))
        if figure.exists() and not is_figure(figure):
            expected = "a folder without other files of the figures' names"
            got = f"{figure}, not a figure of this version: move it, or choose another folder"
            raise invalid_value("folder", expected, got, flag="--out")
        paths.append(figure)
    return paths


def save_attention_figure(path: Path, image: np.ndarray, caption: Any, **options: Any) -> bool:
    """Draws the attention of a caption into a file, as `save_figure` does.

    Args:
        path: The file.
        image: `[H, W, 3]`, 0 to 255, covered by the maps.
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
        path: `*.png` or `*.jpg`.
        **options: Arguments of `attention_figure`.

    Raises:
        MissingFontError: Letters that no font of the machine has.
        ValueError: The name ends otherwise, or shapes do not fit.
    """
    if (suffix := path.suffix.lower()) not in (".png", ".jpg"):
        raise invalid_value("path", "a file named *.png or *.jpg", str(path))
    content, mark = io.BytesIO(), PngInfo()
    mark.add_text("Comment", _MARK)
    png = {"format": "PNG", "pnginfo": mark, "compress_level": 3}
    jpeg = {"format": "JPEG", "comment": _MARK, "quality": 90}
    figure = Image.fromarray(attention_figure(**options))
    figure.save(content, **(png if suffix == ".png" else jpeg))
    write_atomically(path, content.getvalue())


def is_figure(path: Path) -> bool:
    """Returns whether a file is a figure of this version."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return _MARK.encode() in file.read(_HEAD)


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
    number = "gate beta" if beta is None else f"{beta:.2f}"
    bar = width - round(text_width("0.00", small)) - small // 2
    if beta is not None:
        if bar < small:  # no room for both
            number, bar = "", width - 1
        middle = top + small // 2 + 1
        draw.rectangle((left, middle - 1, left + bar, middle + 1), fill=FAINT)
        if filled := round(bar * min(max(np.nan_to_num(beta), 0.0), 1.0)):
            draw.rectangle((left, middle - 1, left + filled, middle + 1), fill=GLOW)
    write_text(draw, (left + width - text_width(number, small), top), number, small)


def _write_word(
    draw: ImageDraw.ImageDraw, below: tuple[int, int, int], word: str, size: int, style: Lettering
) -> None:
    """Centres a word in the width given; cut if it is too long."""
    left, top, width = below
    word = " ".join(word.split()) or "_"  # the token may be a space itself
    parts = clusters(word)
    while text_width(word, size, style) > width and parts:
        parts.pop()
        word = "".join(parts) + "..."
    write_text(draw, (left + (width - text_width(word, size, style)) / 2, top), word, size, style)


# --- text ---


def lettering_of(text: str, language: str = "") -> Lettering:
    """Returns the lettering of a text in a language; most of its letters give the direction."""
    kinds = [unicodedata.bidirectional(char) for char in text]
    return Lettering(language, kinds.count("R") + kinds.count("AL") > kinds.count("L"))


def write_text(
    draw: ImageDraw.ImageDraw, position: tuple, text: str, size: int, style: Lettering = PLAIN
) -> None:
    """Writes a text of `size` pixels from its upper left corner `(x, y)`.

    Raises:
        MissingFontError: It cannot be drawn; the message names the letters and a remedy.
    """
    # Words of all fonts share the base line of Pillow's own.
    place = round(position[0]), round(position[1]) + _loaded("", size).getmetrics()[0]
    font, direction = _font(text, size, style)
    draw.text(place, text, INK, font, anchor="ls", direction=direction)


def text_width(text: str, size: int, style: Lettering = PLAIN) -> float:
    """Returns the width of a text of `size` pixels, pixels; see `write_text`."""
    font, direction = _font(text, size, style)
    return font.getlength(text, direction=direction)


def wrap(text: str, size: int, width: int, style: Lettering = PLAIN) -> list[str]:
    """Breaks a text into lines of the width, at spaces and within words that are too long."""
    lines, line = [], ""
    for letter in clusters(" ".join(text.split())):
        if line and text_width(line + letter, size, style) > width:
            head, space, tail = line.rpartition(" ")
            head, line = (line, "") if letter == " " or not space else (head, tail)
            lines.append(head)
        line = (line + letter).lstrip()
    return [*lines, line] if line else lines


def clusters(text: str) -> list[str]:
    """Splits a text into letters with their marks, which no line divides."""
    found: list[str] = []
    for char in unicodedata.normalize("NFC", text):
        last = found[-1][-1] if found else " "
        marks = unicodedata.category(char) in ("Mn", "Mc", "Me", "Cf") or char in "\u0e33\u0eb3"
        # A virama (combining class 9) or a joiner binds the next letter.
        binds = not char.isspace() and (unicodedata.combining(last) == 9 or last == "\u200d")
        if found and (marks or binds):
            found[-1] += char
        else:
            found.append(char)
    return found


def _font(text: str, size: int, style: Lettering) -> tuple[ImageFont.FreeTypeFont, str | None]:
    """Loads the font of a text; returns it with the direction, None for that of the letters."""
    face, raqm = _face(text, style.language), features.check("raqm")
    right_to_left = lettering_of(text).right_to_left
    joined = [part for part in clusters(text) if len(part) > 1 or right_to_left]
    if joined and not raqm:
        raise MissingFontError(
            f"Pillow cannot order and join the letters {_some(joined)} here, as it has no Raqm: "
            "install FriBidi (on Debian the package libfribidi0)."
        )
    if style.right_to_left and raqm:
        return _loaded(face[0], size, face[1], ImageFont.Layout.RAQM), "rtl"
    return _loaded(face[0], size, face[1]), None


@functools.lru_cache(maxsize=1024)
def _face(text: str, language: str) -> tuple[str, int]:
    """Returns name and index of the first font that has all letters of a text."""
    for name, index in _faces(text, language):
        if _loaded(name, 32, index) and all(has_glyph((name, index), char) for char in text):
            return name, index
    lost = [one for one in clusters(text) if not all(has_glyph(("", 0), char) for char in one)]
    raise MissingFontError(
        f"No font of this machine has the letters {_some(lost)} together: install one "
        "(on Debian from fonts-noto-core, fonts-noto-cjk or fonts-symbola)."
    )


def _faces(text: str, language: str) -> Iterator[tuple[str, int]]:
    """Yields name and index of fonts to try; the empty name is Pillow's own."""
    yield "", 0
    letters = (unicodedata.name(char, "UNKNOWN") for char in text if not char.isspace())
    scripts = dict.fromkeys(name.replace("-", " ").split()[0] for name in letters)
    yield from ((f"NotoSans{script.title()}-Regular.ttf", 0) for script in scripts)
    parts = [part for part in language.lower().split("-") if part in _CJK]
    yield "NotoSansCJK-Regular.ttc", _CJK[parts[-1] if parts else "zh"]
    yield from ((name, 0) for name in FONTS)


@functools.lru_cache(maxsize=128)
def _loaded(
    name: str, size: int, index: int = 0, engine: ImageFont.Layout | None = None
) -> ImageFont.FreeTypeFont | None:
    """Loads a font; None if the machine has none of that name."""
    try:
        if name:
            return ImageFont.truetype(name, size, index, layout_engine=engine)
        return ImageFont.load_default(size).font_variant(layout_engine=engine)
    except OSError:
        return None


@functools.lru_cache(maxsize=65536)
def has_glyph(face: tuple[str, int], char: str) -> bool:
    """Returns True if the font draws more than its box for unknown characters."""
    if char.isspace() or unicodedata.category(char) == "Cf" or "\ufe00" <= char <= "\ufe0f":
        return True
    # Without shaping, which would set a lone mark on a dotted circle.
    font = _loaded(face[0], 32, face[1], ImageFont.Layout.BASIC)
    drawn, box = font.getmask(char), font.getmask("\uffff")
    return (drawn.size, bytes(drawn)) != (box.size, bytes(box))


def _some(letters: Sequence[str]) -> str:
    return " ".join(dict.fromkeys(letters))[:40]
