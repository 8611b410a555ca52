"""Tokenisation, and the vocabulary that maps tokens to ids and back."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from sat_tf.errors import invalid_value
from sat_tf.fields import PositiveInt, checked
from sat_tf.files import write_atomically

PAD, START, END, UNK = 0, 1, 2, 3
SPECIAL_TOKENS = ("<pad>", "<start>", "<end>", "<unk>")

Unit = Literal["words", "characters"]

_APOSTROPHES = "'\u2019\u02bc\uff07"
_HYPHENS = "-\u2010\u2011"
# Persian and Indic scripts use these two inside words.
_JOINERS = "\u200c\u200d"


class _Clean(dict):
    """Table for `str.translate`, filled as characters turn up.

    Letters, marks and numbers stay; apostrophes and hyphens take their ASCII form; invisible
    format characters and variation selectors vanish; white space becomes a space and everything
    else becomes `other`.
    """

    def __init__(self, other: str):
        super().__init__()
        self._other = other

    def __missing__(self, code: int) -> str:
        char = chr(code)
        self[code] = result = self._replacement(char)
        return result

    def _replacement(self, char: str) -> str:
        category = unicodedata.category(char)
        if char in _APOSTROPHES:
            return "'"
        if char in _HYPHENS:
            return "-"
        if char in _JOINERS:
            return char
        if category == "Cf" or "\ufe00" <= char <= "\ufe0f":
            return ""
        if category[0] in "LMN":
            return char
        return " " if char.isspace() else self._other


_CLEAN = {"words": _Clean(other=" "), "characters": _Clean(other="")}
# A clitic that the data set has detached ("man 's"), or runs of letters, marks and numbers joined
# by single hyphens, apostrophes or joiners. No run starts with a mark.
_WORD = re.compile(
    r"(?<!\S)'[^\W\d_]{1,2}(?!\S)"
    r"|[^\W_][^\s'\-\u200c\u200d]*(?:['\-\u200c\u200d][^\s'\-\u200c\u200d]+)*"
)


def tokenize(caption: str, unit: Unit = "words") -> list[str]:
    """Splits a caption into lower-case tokens without punctuation, in Unicode's NFC form.

    Keeps letters, marks and numbers. A hyphen or an apostrophe stays inside a word ("t-shirt",
    "man's") and at the head of a detached clitic ("man 's"), so that captions match their
    references in the metrics. Any other character separates words.

    Characters are code points with the marks that follow them. One space, itself a token,
    separates words; punctuation vanishes, since languages without spaces want none in its place.

    Args:
        caption: Any text.
        unit: "words" or "characters".

    Returns:
        The tokens, none of them empty; an empty list if nothing is left.
    """
    if unit not in _CLEAN:
        raise invalid_value("unit", '"words" or "characters"', repr(unit))
    # Lower-casing can decompose (capital I with a dot), hence the order.
    text = unicodedata.normalize("NFC", caption.lower())
    words = _WORD.findall(unicodedata.normalize("NFC", text.translate(_CLEAN[unit])))
    return words if unit == "words" else split_characters(" ".join(words))


def split_characters(text: str) -> list[str]:
    """Splits a text into code points with the marks that follow them."""
    characters: list[str] = []
    for char in text:
        if characters and unicodedata.category(char)[0] == "M":
            characters[-1] += char
        else:
            characters.append(char)
    return characters


@dataclass(frozen=True)
class Vocabulary:
    """An immutable list of words; the index of a word is its id.

    Args:
        words: The words in the order of their ids; the first four are `SPECIAL_TOKENS`.
        unit: Tokens are "words" or "characters".
    """

    words: tuple[str, ...]
    unit: Unit = "words"
    _ids: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self):
        words = tuple(self.words)
        if self.unit not in get_args(Unit):
            raise invalid_value("unit", '"words" or "characters"', repr(self.unit))
        if words[: len(SPECIAL_TOKENS)] != SPECIAL_TOKENS:
            first = words[: len(SPECIAL_TOKENS)]
            raise invalid_value("words", f"the first words to be {SPECIAL_TOKENS}", first)
        ids = {word: index for index, word in enumerate(words)}
        if len(ids) != len(words):
            twice = [word for word, count in Counter(words).items() if count > 1]
            raise invalid_value("words", "no word twice", twice[:5])
        object.__setattr__(self, "words", words)
        object.__setattr__(self, "_ids", ids)

    @classmethod
    @checked
    def from_captions(
        cls,
        captions: Iterable[str],
        min_count: PositiveInt = 5,
        max_size: PositiveInt | None = None,
        unit: Unit = "words",
    ) -> Vocabulary:
        """Collects the words of captions, the most frequent first, ties by code point.

        Args:
            captions: Captions as written, those of the training split alone.
            min_count: Rarer words become `<unk>`.
            max_size: The most words to keep, special tokens not counted. None keeps all.
            unit: "words" or "characters".
        """
        if isinstance(captions, str):
            raise invalid_value("captions", "a list of captions, not one", repr(captions))
        counts: Counter[str] = Counter()
        for caption in captions:
            counts.update(tokenize(caption, unit))
        kept = [item for item in counts.items() if item[1] >= min_count]
        kept.sort(key=lambda item: (-item[1], item[0]))
        return cls(SPECIAL_TOKENS + tuple(word for word, _ in kept[:max_size]), unit)

    def __len__(self) -> int:
        return len(self.words)

    def id(self, word: str) -> int:
        """Returns the id of a word, `UNK` if it is not listed."""
        return self._ids.get(word, UNK)

    def encode(self, caption: str) -> list[int]:
        """Returns the ids of a caption's tokens, without `<start>` and `<end>`."""
        return [self._ids.get(token, UNK) for token in tokenize(caption, self.unit)]

    def decode(self, ids: Iterable[int]) -> str:
        """Returns the caption of a row of ids, up to `<end>`, without `<pad>` and `<start>`."""
        words = []
        for index in ids:
            if index == END:
                break
            if not 0 <= index < len(self.words):
                raise invalid_value("ids", f"ids in [0, {len(self)})", int(index))
            if index not in (PAD, START):
                words.append(self.words[index])
        return (" " if self.unit == "words" else "").join(words)

    def to_json(self) -> str:
        """Returns a JSON object with `unit` and `words`."""
        return json.dumps({"unit": self.unit, "words": self.words}, ensure_ascii=False, indent=0)

    def fingerprint(self) -> str:
        """SHA-256 (hexadecimal) of the unit and the words, in their order."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    @classmethod
    def from_json(cls, text: str) -> Vocabulary:
        """Reads what `to_json` returned.

        Raises:
            ValueError: The text is no vocabulary.
        """
        value = json.loads(text)
        words = value.get("words") if isinstance(value, dict) else None
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise invalid_value("text", "an object with a list `words`", repr(text[:80]))
        return cls(tuple(words), value.get("unit", "words"))

    def save(self, path: str | Path) -> None:
        """Writes the vocabulary as UTF-8 JSON, atomically."""
        write_atomically(Path(path), self.to_json() + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Vocabulary:
        """Reads what `save` wrote.

        Raises:
            ValueError: The file is no vocabulary; the message names it.
        """
        try:
            return cls.from_json(Path(path).read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path} is no vocabulary: {error}") from error
