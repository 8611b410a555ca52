"""Joining: how words, characters and subwords make a text; what captioning needs of tokens."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

Unit = Literal["words", "characters", "subwords"]
Segmenter = Literal["spaces", "icu", "jieba", "mecab"]

RULES = 3
"""Version of the rules, in vocabularies and signatures of scores: other rules, other tokens."""
MARK = "\u2581"
"""Begins the first subword of a word, as in SentencePiece."""

_BYTE = "<0x"
UNSPACED = (
    "\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff\u1950-\u19df\u1a20-\u1aaf\ua9e0-\ua9ff\uaa60-\uaadf"
    "\u2e80-\u2fdf\u3005-\u3007\u3041-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003fffd"
)
"""Letters of scripts without spaces between words, Thai to Khmer, kana and Han: a class of `re`."""

# Spaces beside `UNSPACED`, but not beside its digits, so that two numbers stay two; written out, as
# the graph's RE2 has no lookahead.
_CLOSE = (
    " ?([\u0e01-\u0e4f\u0e5a-\u0ecf\u0eda-\u0eff\u1000-\u103f\u104a-\u108f\u109a-\u109f"
    "\u1780-\u17df\u17ea-\u17ff\u1950-\u19cf\u19db-\u19df\u1a20-\u1a7f\u1a8a-\u1a8f\u1a9a-\u1aaf\ua9e0-\ua9ef\ua9fa-\ua9ff"
    "\uaa60-\uaadf\u2e80-\u2fdf\u3005-\u3007\u3041-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003fffd]) ?"
)
_CLOSED_LETTER = re.compile(f"[{UNSPACED}]")
_ALIASES = {
    **{"iw": "he", "ji": "yi", "in": "id", "mo": "ro", "cmn": "zh", "arb": "ar", "pes": "fa"},
    **{"prs": "fa", "azj": "az", "azb": "az", "ekk": "et", "lvs": "lv", "zsm": "ms", "ydd": "yi"},
    **{"kmr": "ku", "pbt": "ps", "pbu": "ps", "npi": "ne", "ory": "or", "swh": "sw", "khk": "mn"},
}


def primary(language: str) -> str:
    """Returns the primary subtag of a language code: zh of zh-Hans, he of iw."""
    first = language.lower().partition("-")[0]
    return _ALIASES.get(first, first)


def joining(unit: Unit, language: str = "") -> tuple[str, str, str]:
    """Returns how tokens make a text: what stands between them, a pattern, its replacement.

    Spaces beside a letter of a script that has none between words go (not in Korean, where Han
    letters stand among spaces); in Tibetan they become its tsheg; a subword's mark is a space.
    """
    if unit == "characters":
        return "", "", ""
    if unit == "subwords":
        return "", MARK, " "
    if primary(language) in ("bo", "dz"):
        return " ", "([\u0f40-\u0fbc]) ", "\\1\u0f0b"
    if primary(language) == "ko":
        return " ", "", ""
    return " ", _CLOSE, r"\1"


def join(tokens: Sequence[str], separator: str, pattern: str, replacement: str) -> str:
    """Joins tokens to a text by a rule of `joining`, without spaces at its ends."""
    text = separator.join(tokens)
    if pattern == MARK:
        text = read_bytes(text)
    return (re.sub(pattern, replacement, text) if pattern else text).strip(" ")


def byte_token(byte: int) -> str:
    """Returns the name of a byte, as in SentencePiece."""
    return f"{_BYTE}{byte:02X}>"


def read_bytes(text: str) -> str:
    """Replaces the names of bytes by the characters that they make up; others vanish."""
    if _BYTE not in text:
        return text
    pattern = f"(?:{_BYTE}[0-9A-F]{{2}}>)+"
    return re.sub(pattern, lambda m: token_bytes(m[0]).decode("utf-8", "ignore"), text)


def token_bytes(names: str) -> bytes:
    """Returns the bytes with these names, or those of any other text."""
    if names.startswith(_BYTE):
        return bytes.fromhex(names.replace(_BYTE, "").replace(">", ""))
    return names.encode()


def has_closed(text: str) -> bool:
    """Returns whether a text has a letter of a script without spaces between words."""
    return _CLOSED_LETTER.search(text) is not None


def stands_alone(piece: str, before: str) -> bool:
    """Returns whether a subword begins a word: by its mark, or where no spaces are.

    In Tibetan that is behind its tsheg, elsewhere beside any letter of a script without spaces.
    """
    closed = before != MARK and has_closed(piece[:1])
    return piece.startswith(MARK) or before.endswith("\u0f0b") or closed


def whole_words(words: Sequence[str], **parts: np.ndarray | None) -> dict[str, Any]:
    """Joins subwords to words, but not in scripts without spaces; other words stay as they are.

    Args:
        words: `T` words, or subwords with their `MARK`.
        parts: `alpha` `[T, h, w]` and `beta` `[T]`, of which a word has the mean over its subwords,
            and `log_probs` `[T]`, of which it has the sum; or None.

    Returns:
        `words` and the parts, by their names.
    """
    if any(MARK in word or word != read_bytes(word) for word in words):
        starts = [n for n, word in enumerate(words) if n == 0 or stands_alone(word, words[n - 1])]
        counts = np.diff([*starts, len(words)])
        for name, part in parts.items():
            if part is not None:
                sums = np.add.reduceat(part, starts, axis=0)
                shape = [-1] + [1] * (sums.ndim - 1)
                parts[name] = sums if name == "log_probs" else sums / counts.reshape(shape)
        ends = [*starts[1:], len(words)]
        pieces = ("".join(words[a:b]) for a, b in zip(starts, ends, strict=True))
        words = [read_bytes(text).replace(MARK, "") for text in pieces]
    return {"words": tuple(words), **parts}
