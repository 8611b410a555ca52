"""Joins tokens to a text: the part of the text rules that captioning needs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

Unit = Literal["words", "characters"]

RULES = 4
"""Version of the rules that split captions, recorded in vocabularies: other rules, other tokens."""
UNSPACED = (
    "\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff\u1950-\u19df\u1a20-\u1aaf\ua9e0-\ua9ff\uaa60-\uaadf"
    "\u2e80-\u2fdf\u3005-\u3007\u3041-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003fffd"
)
"""Letters of scripts without spaces between words, Thai to Khmer, kana and Han: a class of `re`."""

# Spaces next to `UNSPACED`, but not next to its digits, so that two numbers stay two; written out,
# as the graph's RE2 has no lookahead.
_CLOSE = (
    " ?([\u0e01-\u0e4f\u0e5a-\u0ecf\u0eda-\u0eff\u1000-\u103f\u104a-\u108f\u109a-\u109f"
    "\u1780-\u17df\u17ea-\u17ff\u1950-\u19cf\u19db-\u19df\u1a20-\u1a7f\u1a8a-\u1a8f\u1a9a-\u1aaf\ua9e0-\ua9ef\ua9fa-\ua9ff"
    "\uaa60-\uaadf\u2e80-\u2fdf\u3005-\u3007\u3041-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003fffd]) ?"
)
_CLOSED_LETTER = re.compile(f"[{UNSPACED}]")


def primary(language: str) -> str:
    """Returns the primary subtag of a language code: zh of zh-Hans."""
    return language.lower().partition("-")[0]


def joining(unit: Unit, language: str = "") -> tuple[str, str, str]:
    """Returns how tokens make a text: the text between them, a pattern, its replacement.

    Spaces next to a letter of a script that has none between words vanish, except in Korean, where
    Han letters are among spaces.
    """
    if unit == "characters":
        return "", "", ""
    return (" ", "", "") if primary(language) == "ko" else (" ", _CLOSE, r"\1")


def join(tokens: Sequence[str], separator: str, pattern: str, replacement: str) -> str:
    """Joins tokens to a text by a rule of `joining`, without spaces at its ends."""
    text = separator.join(tokens)
    return (re.sub(pattern, replacement, text) if pattern else text).strip(" ")


def has_closed(text: str) -> bool:
    """Returns whether a text has a letter of a script without spaces between words."""
    return _CLOSED_LETTER.search(text) is not None
