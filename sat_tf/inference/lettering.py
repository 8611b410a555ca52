"""Colours and text of figures: in Pillow's font, or in the first of the system's that has it."""

from __future__ import annotations

import functools
import os
import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from PIL import ImageDraw, ImageFont, features

from sat_tf.text.detokenize import primary

PAPER, INK, FAINT, GLOW = (255, 255, 255), (34, 34, 34), (222, 222, 222), (255, 166, 43)

FOLDERS = (
    *("/usr/share/fonts", "/usr/local/share/fonts", "~/.local/share/fonts", "~/.fonts"),
    *("/Library/Fonts", "/System/Library/Fonts", "~/Library/Fonts"),
    *("$WINDIR/Fonts", "$LOCALAPPDATA/Microsoft/Windows/Fonts"),
)
_SUFFIXES = (".ttf", ".otf", ".ttc", ".otc")
_CJK = {"zh": "SC", "yue": "HK", "ja": "JP", "ko": "KR"}
"""Part of the names of font families that draw Chinese characters as a language writes them."""
_SCRIPTS = {"HIRAGANA": "ja", "KATAKANA": "ja", "HANGUL": "ko", "CJK": "zh"}
"""Languages that letters suggest, by the first word of their Unicode names."""
_RIGHT_TO_LEFT = re.compile(  # as viewer.js has it
    "^(aii|apc|ar|arb|arc|ary|arz|azb|ckb|dv|"
    "fa|he|iw|ji|ks|lrc|mzn|nqo|pbt|pbu|pes|pnb|prs|ps|rhg|sd|skr|syc|syr|ug|ur|ydd|yi)(-|$)"
    "|-(adlm|arab|hebr|mand|nkoo|rohg|syrc|thaa)(-|$)",
    re.IGNORECASE,
)
_PROBE = 32  # pixels, size at which glyphs are compared


class MissingFontError(ValueError):
    """Letters that cannot be drawn on this machine: no font has them, or none can join them."""


class Face(NamedTuple):
    """One font of a file; Pillow's own, which has little more than ASCII, has no path."""

    family: str
    style: str
    path: str
    index: int = 0


OWN = Face("", "", "")


@dataclass(frozen=True)
class Lettering:
    """The choice of a font and the direction of a text."""

    language: str = ""  # chooses among forms of Chinese characters
    right_to_left: bool = False


PLAIN = Lettering()


def lettering_of(text: str, language: str = "") -> Lettering:
    """Returns the lettering of a text in a language; most of its letters give the direction."""
    of_language = _RIGHT_TO_LEFT.search(language)
    if primary(language) not in _CJK:
        suggested = (_SCRIPTS.get(_script(char)) for char in text)
        language = next(filter(None, suggested), language)
    kinds = [unicodedata.bidirectional(char) for char in text]
    # In a language from right to left, a name in Latin letters does not turn the line.
    right = kinds.count("R") + kinds.count("AL")
    return Lettering(language, right > (0 if of_language else kinds.count("L")))


def require_fonts(text: str, style: Lettering = PLAIN) -> None:
    """Checks that a text can be drawn.

    Raises:
        MissingFontError: It cannot; the message names the letters and a remedy.
    """
    face = face_of(text, style.language)
    if face is None:
        faces = ordered_faces(style.language)
        lost = [part for part in clusters(text) if not any(_has(one, part) for one in faces)]
        named = " ".join(dict.fromkeys(lost or clusters(text)))[:40]
        raise MissingFontError(
            f"No font of this machine has the letters {named} together: install one (on Debian "
            "from fonts-noto-core, fonts-noto-cjk or fonts-symbola)."
        )
    joined = [part for part in clusters(text) if len(part) > 1 or _reversed(part)]
    if joined and not features.check("raqm"):
        named = " ".join(dict.fromkeys(joined))[:40]
        raise MissingFontError(
            f"Pillow cannot order and join the letters {named} here, as it has no Raqm: "
            "install FriBidi (on Debian the package libfribidi0)."
        )


def write_text(
    draw: ImageDraw.ImageDraw, position: tuple, text: str, size: int, style: Lettering = PLAIN
) -> None:
    """Writes a text of `size` pixels from its upper left corner `(x, y)`; see `require_fonts`."""
    require_fonts(text, style)
    # Words of all fonts share the base line of Pillow's own.
    place = round(position[0]), round(position[1]) + _loaded(OWN, size).getmetrics()[0]
    font, direction = _font(text, size, style)
    draw.text(place, text, INK, font, anchor="ls", direction=direction)


def text_width(text: str, size: int, style: Lettering = PLAIN) -> float:
    """Returns the width of a text of `size` pixels, pixels; see `require_fonts`."""
    font, direction = _font(text, size, style)
    return font.getlength(text, direction=direction)


def wrap(text: str, size: int, width: int, style: Lettering = PLAIN) -> list[str]:
    """Breaks a text into lines of the width, at spaces and within words that are too long."""
    lines, line = [], ""
    for word in text.split():
        longer = f"{line} {word}".strip()
        if line and text_width(longer, size, style) > width:
            lines.append(line)
            longer = word
        while text_width(longer, size, style) > width and len(parts := clusters(longer)) > 1:
            fits = 1
            while text_width("".join(parts[: fits + 1]), size, style) <= width:
                fits += 1
            lines.append("".join(parts[:fits]))
            longer = "".join(parts[fits:])
        line = longer
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


@functools.lru_cache(maxsize=1024)
def face_of(text: str, language: str) -> Face | None:
    """Returns the first font that has all letters of a text; None if there is none."""
    return next((face for face in ordered_faces(language) if _has(face, text)), None)


@functools.lru_cache(maxsize=16)
def ordered_faces(language: str) -> tuple[Face, ...]:
    """Orders the fonts: Pillow's own, then the system's for the language."""
    code, *rest = language.lower().split("-")
    form = "TC" if {"tw", "hant"} & {*rest} else "HK" if "hk" in rest else _CJK.get(code, "-")

    def order(face: Face) -> tuple:
        plain = face.style in ("Regular", "Book", "Roman", "Normal")
        sans = "Sans" in face.family and "Mono" not in face.family
        named = form in face.family.split()
        return not named, face.family != "DejaVu Sans", not plain, not sans, face

    return (OWN, *sorted(system_faces(), key=order))


@functools.cache
def system_faces() -> tuple[Face, ...]:
    """Lists the fonts in `FOLDERS`."""
    folders = [Path(os.path.expandvars(folder)).expanduser() for folder in FOLDERS]
    files = [path for folder in folders for path in folder.rglob("*")]
    found = []
    for path in files:
        for index in range(16 if path.suffix.lower() in _SUFFIXES else 0):
            try:
                family, style = ImageFont.truetype(path, _PROBE, index).getname()
            except OSError:  # no font, or no further one in the file
                break
            found.append(Face(family or "", style or "", str(path), index))
    return tuple(face for face in found if "LastResort" not in face.family)  # boxes alone


@functools.lru_cache(maxsize=128)
def _loaded(
    face: Face, size: int, engine: ImageFont.Layout | None = None
) -> ImageFont.FreeTypeFont:
    if not face.path:
        font = ImageFont.load_default(size)
        return font.font_variant(layout_engine=engine) if engine is not None else font
    return ImageFont.truetype(face.path, size, face.index, layout_engine=engine)


def _font(text: str, size: int, style: Lettering) -> tuple[ImageFont.FreeTypeFont, str | None]:
    """Loads the font of a text; returns it with the direction, None for that of the letters."""
    face = face_of(text, style.language)
    if face is None:
        require_fonts(text, style)
    if style.right_to_left and features.check("raqm"):
        return _loaded(face, size, ImageFont.Layout.RAQM), "rtl"
    return _loaded(face, size), None


def _has(face: Face, text: str) -> bool:
    return all(has_glyph(face, char) for char in text)


@functools.lru_cache(maxsize=65536)
def has_glyph(face: Face, char: str) -> bool:
    """Returns True if the font draws more than its box for unknown characters."""
    if char.isspace() or unicodedata.category(char) == "Cf" or "\ufe00" <= char <= "\ufe0f":
        return True
    try:
        # Without shaping, which would set a lone mark on a dotted circle.
        font = _loaded(face, _PROBE, ImageFont.Layout.BASIC)
        drawn, box = font.getmask(char), font.getmask("\uffff")
    except OSError:  # fonts of coloured bitmaps
        return False
    return (drawn.size, bytes(drawn)) != (box.size, bytes(box))


def _reversed(text: str) -> bool:
    return unicodedata.bidirectional(text[0]) in ("R", "AL")


def _script(char: str) -> str:
    """Returns the first word of a letter's name, which is its script."""
    return unicodedata.name(char, "UNKNOWN").replace("-", " ").split()[0]
