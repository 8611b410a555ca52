"""The vocabulary: how captions become tokens, their ids, and how tokens become a text."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sat_tf.joining import RULES, Segmenter, Unit, join, joining
from sat_tf.util.errors import invalid_value
from sat_tf.util.fields import PositiveInt, check_argument, checked
from sat_tf.util.files import json_object, read_content, write_atomically

PAD, START, END, UNK = 0, 1, 2, 3
SPECIAL_TOKENS = ("<pad>", "<start>", "<end>", "<unk>")


@dataclass(frozen=True)
class Vocabulary:
    """An immutable list of words; the index of a word is its id.

    Args:
        words: The words in the order of their ids; the first four are `SPECIAL_TOKENS`.
        unit: Tokens are "words", "characters" or "subwords".
        language: Language code of the captions; empty if it is not known.
        segmenter: Finds words in scripts without spaces between them, see `tokenize`.
        written: Word -> its form in captions that are written, where that has capitals.

    Attributes:
        forms: The words as captions have them, in the order of their ids.
    """

    words: tuple[str, ...]
    unit: Unit = "words"
    language: str = ""
    segmenter: Segmenter = "spaces"
    written: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    forms: tuple[str, ...] = field(init=False, repr=False, compare=False)
    _ids: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self):
        words = tuple(self.words)
        kinds = {"unit": Unit, "language": str, "segmenter": Segmenter, "written": Mapping}
        for name, kind in kinds.items():
            check_argument(name, getattr(self, name), kind)
        for name, written in self.written.items():
            check_argument(f"written[{name!r}]", written, str)
        if words[: len(SPECIAL_TOKENS)] != SPECIAL_TOKENS:
            first = words[: len(SPECIAL_TOKENS)]
            raise invalid_value("words", f"the first words to be {SPECIAL_TOKENS}", first)
        ids = {word: index for index, word in enumerate(words)}
        if len(ids) != len(words):
            twice = [word for word, count in Counter(words).items() if count > 1]
            raise invalid_value("words", "no word twice", twice[:5])
        object.__setattr__(self, "words", words)
        written = {} if self.unit == "subwords" else self.written  # subwords are of written words
        object.__setattr__(self, "forms", tuple(written.get(word, word) for word in words))
        object.__setattr__(self, "_ids", dict(zip(self.forms, ids.values(), strict=True)) | ids)

    @classmethod
    @checked
    def from_captions(
        cls,
        captions: Iterable[str],
        min_count: PositiveInt = 5,
        max_size: PositiveInt | None = None,
        unit: Unit = "words",
        language: str = "",
        segmenter: Segmenter = "spaces",
        capitals: bool = False,
    ) -> Vocabulary:
        """Collects the words of captions, the most frequent first, ties by code point.

        Args:
            captions: Captions as written, those of the training split alone.
            min_count: Rarer words become `<unk>`; rarer subwords are taken apart.
            max_size: The most words to keep, special tokens not counted. None keeps all.
            unit: "words", "characters" or "subwords".
            language: Language code of the captions.
            segmenter: See `tokenize`.
            capitals: Words regain their capitals in captions that are written.

        Raises:
            ValueError: An argument is invalid, or what it needs is not installed.
        """
        if isinstance(captions, str):
            raise invalid_value("captions", "a list of captions, not one", repr(captions))
        empty = cls(SPECIAL_TOKENS, unit, language, segmenter)
        counts: Counter[str] = Counter()
        captions = [*captions] if capitals else captions
        for caption in captions:
            counts.update(empty.split(caption))
        written = {}
        if capitals:
            from sat_tf.tokens import written_forms

            written = written_forms(captions, counts, language)
        return empty.of_counts(counts, min_count, max_size, written)

    def of_counts(
        self,
        counts: Counter[str],
        min_count: int,
        max_size: int | None,
        written: Mapping[str, str],
    ) -> Vocabulary:
        """Returns a vocabulary that splits like this one, of words that `split` gave.

        Args:
            counts: How often each word occurs.
            min_count: As in `from_captions`.
            max_size: The same.
            written: Word -> its form in captions that are written, of any of the words.
        """
        unit = self.unit
        if unit == "subwords":
            from sat_tf.subwords import learn_subwords

            forms: Counter[str] = Counter()
            for word, times in counts.items():
                forms[written.get(word, word)] += times
            counts = learn_subwords(forms, min_count, max_size)
            min_count, max_size = 1, None
        kept = [item for item in counts.items() if item[1] >= min_count]
        kept.sort(key=lambda item: (-item[1], item[0]))
        words = SPECIAL_TOKENS + tuple(word for word, _ in kept[:max_size])
        if unit != "subwords":
            written = {word: written[word] for word in words if word in written}
        return dataclasses.replace(self, words=words, written=written)

    def __len__(self) -> int:
        return len(self.words)

    def with_more(self, forms: Mapping[str, str]) -> Vocabulary:
        """Returns it with further words after its own, each with its form in written captions."""
        own = {*self.words}
        new = {word: form for word, form in forms.items() if word not in own}
        written = {word: form for word, form in new.items() if form != word}
        words = (*self.words, *new)
        return dataclasses.replace(self, words=words, written={**self.written, **written})

    def id(self, word: str) -> int:
        """Returns the id of a word or of its form, `UNK` if it is not listed."""
        return self._ids.get(word, UNK)

    def split(self, caption: str) -> list[str]:
        """Splits a caption as the training captions were, but no word into subwords."""
        from sat_tf.tokens import tokenize  # which captioning does without

        return tokenize(caption, self.unit, self.language, self.segmenter)

    def pieces(self, word: str) -> list[str]:
        """Returns the tokens of a word of `split`: itself, or subwords, maybe none of `words`."""
        if self.unit != "subwords":
            return [word]
        from sat_tf.subwords import split_subwords

        return split_subwords(self.written.get(word, word), self._ids)

    def tokenize(self, caption: str) -> list[str]:
        """Splits a caption into tokens as the training captions were."""
        return [piece for word in self.split(caption) for piece in self.pieces(word)]

    def ids_of(self, word: str) -> list[int]:
        """Returns the ids of the tokens of a word of `split`."""
        return [self._ids.get(piece, UNK) for piece in self.pieces(word)]

    def encode(self, caption: str) -> list[int]:
        """Returns the ids of a caption's tokens, without `<start>` and `<end>`."""
        return [self._ids.get(token, UNK) for token in self.tokenize(caption)]

    def base_words(self, caption: str) -> list[str]:
        """Splits a caption into the words whose places boxes name, see `tokens.base_words`."""
        from sat_tf.tokens import base_words

        return base_words(caption, self.language)

    def places(
        self, caption: str, words: Sequence[str] | None = None
    ) -> list[tuple[str, int, int]]:
        """Returns words of a caption, its base words by default, with first and last token."""
        from sat_tf.tokens import spans

        if words is None:
            words = self.base_words(caption)
        found = spans(words, self.tokenize(caption), self.language)
        return [(word, *span) for word, span in zip(words, found, strict=True)]

    def joining(self) -> tuple[str, str, str]:
        """Returns how tokens make a text: what stands between, a pattern and its replacement."""
        return joining(self.unit, self.language)

    def decode(self, ids: Iterable[int]) -> str:
        """Returns the caption of a row of ids, up to `<end>`, without `<pad>` and `<start>`."""
        words = []
        for index in ids:
            if index == END:
                break
            if not 0 <= index < len(self.words):
                raise invalid_value("ids", f"ids in [0, {len(self)})", int(index))
            if index not in (PAD, START):
                words.append(self.forms[index])
        return self.join(words)

    def join(self, words: Sequence[str]) -> str:
        """Returns the text of tokens."""
        return join(words, *self.joining())

    def to_json(self) -> str:
        """Returns a JSON object with `words`, how captions are split, and how words are joined.

        `join` is what stands between words, a pattern and what replaces it in the text; `written`
        is there if words have forms with capitals.
        """
        value = self._value() | ({"written": dict(self.written)} if self.written else {})
        return json.dumps(value, ensure_ascii=False, indent=0)

    def _value(self) -> dict[str, Any]:
        return {
            "unit": self.unit,
            "language": self.language,
            "rules": RULES,
            "segmenter": self.segmenter,
            "join": self.joining(),
            "words": self.words,
        }

    def fingerprint(self) -> str:
        """SHA-256 (hexadecimal) of `to_json` without `written`."""
        text = json.dumps(self._value(), ensure_ascii=False, indent=0)
        return hashlib.sha256(text.encode()).hexdigest()

    @classmethod
    def from_json(cls, text: str) -> Vocabulary:
        """Reads what `to_json` returned.

        Raises:
            ValueError: The text is not a vocabulary.
        """
        value = json_object(text)
        words = value.get("words")
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise invalid_value("text", "an object with a list `words`", repr(text[:80]))
        if value.get("rules") != RULES:
            raise ValueError(
                f"Its captions were split by other rules ({value.get('rules')}) than here "
                f"({RULES}): train and export the captioner again."
            )
        given = {name: value[name] for name in ("unit", "language", "segmenter") if name in value}
        return cls(tuple(words), **given, written=value.get("written", {}))

    def save(self, path: str | Path) -> None:
        """Writes the vocabulary as UTF-8 JSON, atomically."""
        write_atomically(Path(path), self.to_json() + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Vocabulary:
        """Reads what `save` wrote.

        Raises:
            ValueError: The file is not a vocabulary; the message names it.
        """
        try:
            return cls.from_json(read_content(Path(path)).decode("utf-8"))
        except ValueError as error:
            raise ValueError(f"{path} is not a vocabulary: {error}") from error


def __getattr__(name: str) -> Any:
    """Returns `tokenize`, by which captions become words; captioning does without its module."""
    if name != "tokenize":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from sat_tf.tokens import tokenize

    return tokenize
