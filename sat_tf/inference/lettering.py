"""Colours and text of figures: every letter in a font that has it, or a sentence instead."""

from __future__ import annotations

import functools
import os
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from PIL import ImageDraw, ImageFont, features

from sat_tf.text.detokenize import primary

PAPER, INK, FAINT, GLOW = (255, 255, 255), (34, 34, 34), (222, 222, 222), (255, 166, 43)

_RIGHT_TO_LEFT = re.compile(
    "^(aii|apc|ar|arb|arc|ary|arz|azb|ckb|dv|"
    "fa|he|iw|ji|ks|lrc|mzn|nqo|pbt|pbu|pes|pnb|prs|ps|rhg|sd|skr|syc|syr|ug|ur|ydd|yi)(-|$)"
    "|-(adlm|arab|hebr|mand|nkoo|rohg|syrc|thaa)(-|$)",
    re.IGNORECASE,
)
_CJK_SCRIPTS = {"HIRAGANA": "ja", "KATAKANA": "ja", "HANGUL": "ko", "CJK": "zh"}
"""Languages that letters suggest, by the first word of their Unicode names; the first one found."""
_CJK_FAMILIES = {
    "zh-cn": ("SC", "CN", "YaHei", "SimSun", "WenQuanYi"),
    "zh-tw": ("TC", "TW", "JhengHei", "MingLiU"),
    "zh-hk": ("HK", "TC"),
    "ja": ("JP", "Hiragino", "Yu Gothic", "MS Gothic"),
    "ko": ("KR", "Malgun", "Gothic Neo", "Nanum"),
}
"""Parts of the names of font families that draw Chinese characters as a language writes them."""
FOLDERS = (
    *("/usr/share/fonts", "/usr/local/share/fonts", "~/.local/share/fonts", "~/.fonts"),
    *("/Library/Fonts", "/System/Library/Fonts", "~/Library/Fonts"),
    *("$WINDIR/Fonts", "$LOCALAPPDATA/Microsoft/Windows/Fonts"),
)
_SHAPED = re.compile(
    "[\u0590-\u109f\u1780-\u18af\u1a00-\u1c4f\ua840-\ua8ff\ua980-\uaaff\uabc0-\uabff\ufb1d-\ufdff\ufe70-\ufefc"
    "\U00010800-\U00011fff\U0001e800-\U0001eeff]"
)
"""Letters of scripts from right to left, or whose letters are joined and moved by rules."""
_SUFFIXES = (".ttf", ".otf", ".ttc", ".otc")
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
    """The choice of fonts and the direction of a text."""

    language: str = ""  # chooses among forms of Chinese characters
    right_to_left: bool = False


PLAIN = Lettering()


def lettering_of(text: str, language: str = "") -> Lettering:
    """Returns the lettering of a text in a language; letters may tell more than its code does."""
    names, by_code = {_script(char) for char in text}, _RIGHT_TO_LEFT.search(language)
    if primary(language) not in ("zh", "yue", "ja", "ko"):
        suggested = [code for script, code in _CJK_SCRIPTS.items() if script in names]
        language = suggested[0] if suggested else language
    kinds = [unicodedata.bidirectional(char) for char in text]
    right = kinds.count("R") + kinds.count("AL")
    return Lettering(language, right > (0 if by_code else kinds.count("L")))


def require_fonts(text: str, style: Lettering = PLAIN) -> None:
    """Checks that all letters of a text can be drawn.

    Raises:
        MissingFontError: They cannot; the message names the letters and a remedy.
    """
    lost = [part for face, piece in font_runs(text, style) if not face for part in clusters(piece)]
    if lost:
        raise MissingFontError(
            f"No font of this machine has {_listed(lost)} ({_script(lost[0][0]).title()}): install "
            "one (on Debian from fonts-noto-core, fonts-noto-cjk or fonts-symbola)."
        )
    joined = [part for part in clusters(text) if _SHAPED.match(part)]
    if joined and not features.check("raqm"):
        raise MissingFontError(
            f"Pillow cannot order and join {_listed(joined)} here, as it has no Raqm: install "
            "FriBidi (on Debian the package libfribidi0)."
        )


def write_text(
    draw: ImageDraw.ImageDraw, position: tuple, text: str, size: int, style: Lettering = PLAIN
) -> None:
    """Writes a text of `size` pixels from its upper left corner `(x, y)`; see `require_fonts`."""
    require_fonts(text, style)
    # Words of all fonts share the base line of Pillow's own.
    x, line = position[0], round(position[1]) + _loaded(OWN, size).getmetrics()[0]
    pieces = font_runs(text, style)
    for face, piece in reversed(pieces) if style.right_to_left else pieces:
        font, direction = _font(face, size, style)
        draw.text((round(x), line), piece, INK, font, anchor="ls", direction=direction)
        x += font.getlength(piece, direction=direction)


def text_width(text: str, size: int, style: Lettering = PLAIN) -> float:
    """Returns the width of a text of `size` pixels, pixels; see `require_fonts`."""
    width = 0.0
    for face, piece in font_runs(text, style):
        if face is None:
            require_fonts(text, style)
        font, direction = _font(face, size, style)
        width += font.getlength(piece, direction=direction)
    return width


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
    """Splits a text into letters with their marks, which neither a line nor a font divides."""
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


@functools.lru_cache(maxsize=4096)
def font_runs(text: str, style: Lettering) -> tuple[tuple[Face | None, str], ...]:
    """Splits a text where its font changes; letters that no font has come with None.

    Of letters without a font, compatible forms (a for a full-width a) are taken if they have one.
    """
    text = unicodedata.normalize("NFC", text)
    if _has(OWN, text):  # other fonts are not looked for
        return ((OWN, text),)
    known = ordered_faces(style.language)
    whole = next((face for face in known if _has(face, text)), None)
    if whole:
        return ((whole, text),)
    found: list[tuple[Face | None, str]] = []
    for letter in clusters(text):
        tried = (*(face for face, _ in found[-1:] if face), *known)
        forms = letter, unicodedata.normalize("NFKC", letter)
        having = ((face, form) for form in forms for face in tried if _has(face, form))
        face, form = next(having, (None, letter))
        if found and found[-1][0] == face:
            form = found.pop()[1] + form
        found.append((face, form))
    return tuple(found)


@functools.lru_cache(maxsize=16)
def ordered_faces(language: str) -> tuple[Face, ...]:
    """Orders the fonts: Pillow's own, then the system's for the language."""
    code, rest = primary(language), language.lower().split("-")[1:]
    if code in ("zh", "yue"):
        place = {"hk", "mo"} & {*rest} or code == "yue"
        code = "zh-hk" if place else "zh-tw" if {"tw", "hant"} & {*rest} else "zh-cn"

    def order(face: Face) -> tuple:
        return (
            not any(part in face.family for part in _CJK_FAMILIES.get(code, ())),
            face.family != "DejaVu Sans",
            face.style not in ("Regular", "Book", "Roman", "Normal"),
            "Sans" not in face.family or "Mono" in face.family,
            face,
        )

    return (OWN, *sorted(system_faces(), key=order))


@functools.cache
def system_faces() -> tuple[Face, ...]:
    """Lists the fonts in `FOLDERS`."""
    folders = [Path(os.path.expandvars(folder)).expanduser() for folder in FOLDERS]
    files = [path for folder in folders for path in folder.rglob("*")]
    faces = [face for path in files if path.suffix.lower() in _SUFFIXES for face in _faces_of(path)]
    return tuple(face for face in faces if "LastResort" not in face.family)  # boxes alone


def _faces_of(path: Path) -> Iterator[Face]:
    """Lists the fonts of a file; none if it cannot be read."""
    for index in range(16):
        try:
            family, style = ImageFont.truetype(path, _PROBE, index).getname()
        except OSError:
            return
        yield Face(family or "", style or "", str(path), index)


@functools.lru_cache(maxsize=128)
def _loaded(
    face: Face, size: int, engine: ImageFont.Layout | None = None
) -> ImageFont.FreeTypeFont:
    if not face.path:
        font = ImageFont.load_default(size)
        return font.font_variant(layout_engine=engine) if engine is not None else font
    return ImageFont.truetype(face.path, size, face.index, layout_engine=engine)


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


def _font(face: Face, size: int, style: Lettering) -> tuple[ImageFont.FreeTypeFont, str | None]:
    """Loads a font; returns it with the direction to write in, None for that of the letters."""
    if style.right_to_left and features.check("raqm"):
        return _loaded(face, size, ImageFont.Layout.RAQM), "rtl"
    return _loaded(face, size), None


def _script(char: str) -> str:
    """Returns the first word of a letter's name, which is its script."""
    return unicodedata.name(char, "UNKNOWN").replace("-", " ").split()[0]


def _listed(letters: list[str]) -> str:
    some = list(dict.fromkeys(letters))
    return "the letters " + " ".join(some[:10]) + (" ..." if len(some) > 10 else "")
