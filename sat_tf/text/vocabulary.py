"""The vocabulary: how captions become tokens, their ids, and how tokens become a text."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sat_tf.text.detokenize import RULES, Unit, join, joining, primary
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
        unit: Tokens are "words" or "characters".
        language: Language code of the captions; empty if it is not known.
    """

    words: tuple[str, ...]
    unit: Unit = "words"
    language: str = ""
    _ids: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self):
        words = tuple(self.words)
        check_argument("unit", self.unit, Unit)
        check_argument("language", self.language, str)
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
        language: str = "",
    ) -> Vocabulary:
        """Collects the words of captions, the most frequent first, ties by code point.

        Args:
            captions: Captions as written, those of the training split alone.
            min_count: Rarer words become `<unk>`.
            max_size: The most words to keep, special tokens not counted. None keeps all.
            unit: "words" or "characters".
            language: Language code of the captions.

        Raises:
            ValueError: An argument is invalid.
        """
        if isinstance(captions, str):
            raise invalid_value("captions", "a list of captions, not one", repr(captions))
        empty = cls(SPECIAL_TOKENS, unit, language)
        counts: Counter[str] = Counter()
        for caption in captions:
            counts.update(empty.tokenize(caption))
        return empty.of_counts(counts, min_count, max_size)

    def of_counts(
        self, counts: Counter[str], min_count: int, max_size: int | None = None
    ) -> Vocabulary:
        """Returns a vocabulary that splits like this one, from the counts of its words."""
        kept = [item for item in counts.items() if item[1] >= min_count]
        kept.sort(key=lambda item: (-item[1], item[0]))
        words = SPECIAL_TOKENS + tuple(word for word, _ in kept[:max_size])
        return dataclasses.replace(self, words=words)

    def __len__(self) -> int:
        return len(self.words)

    def with_more(self, words: Iterable[str]) -> Vocabulary:
        """Returns it with further words after its own."""
        new = [word for word in dict.fromkeys(words) if word not in self._ids]
        return dataclasses.replace(self, words=(*self.words, *new))

    def id(self, word: str) -> int:
        """Returns the id of a word, `UNK` if it is not listed."""
        return self._ids.get(word, UNK)

    def tokenize(self, caption: str) -> list[str]:
        """Splits a caption into tokens as the training captions were."""
        from sat_tf.text.words import tokenize  # which captioning does without

        return tokenize(caption, self.unit, self.language)

    def encode(self, caption: str) -> list[int]:
        """Returns the ids of a caption's tokens, without `<start>` and `<end>`."""
        return [self._ids.get(token, UNK) for token in self.tokenize(caption)]

    def base_words(self, caption: str) -> list[str]:
        """Splits a caption into the words that boxes count, see `tokens.base_words`."""
        from sat_tf.text.words import base_words

        return base_words(caption, self.language)

    def places(
        self, caption: str, words: Sequence[str] | None = None
    ) -> list[tuple[str, int, int]]:
        """Returns words of a caption, its base words by default, with first and last token."""
        from sat_tf.text.words import spans

        if words is None:
            words = self.base_words(caption)
        found = spans(words, self.tokenize(caption))
        return [(word, *span) for word, span in zip(words, found, strict=True)]

    def joining(self) -> tuple[str, str, str]:
        """Returns how tokens make a text: the text between, a pattern and its replacement."""
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
                words.append(self.words[index])
        return self.join(words)

    def join(self, words: Sequence[str]) -> str:
        """Returns the text of tokens."""
        return join(words, *self.joining())

    def to_json(self) -> str:
        """Returns a JSON object with `words`, how captions are split, and how words are joined.

        `join` is the text between words, a pattern and its replacement.
        """
        value = {
            "unit": self.unit,
            "language": self.language,
            "rules": RULES,
            "join": self.joining(),
            "words": self.words,
        }
        return json.dumps(value, ensure_ascii=False, indent=0)

    def fingerprint(self) -> str:
        """SHA-256 (hexadecimal) of `to_json`."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    @classmethod
    def from_json(cls, text: str) -> Vocabulary:
        """Reads the result of `to_json`.

        Raises:
            ValueError: The text is not a vocabulary.
        """
        value = json_object(text)
        words = value.get("words")
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise invalid_value("text", "an object with a list `words`", repr(text[:80]))
        given = {name: value[name] for name in ("unit", "language") if name in value}
        # Version 3 split English captions into the same words, and could give them capitals.
        same = given.get("unit") == "words" and primary(str(given.get("language"))) == "en"
        if value.get("rules") != RULES and not (
            same and value.get("rules") == 3 and not value.get("written")
        ):
            raise ValueError(
                f"Its captions were split by other rules ({value.get('rules')}) than here "
                f"({RULES}): train and export the captioner again."
            )
        return cls(tuple(words), **given)

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
