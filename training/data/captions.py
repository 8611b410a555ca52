"""Captions as numbers: each is tokenised once, and is then rows of one array."""

from __future__ import annotations

import dataclasses
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from sat_tf.text.vocabulary import END, SPECIAL_TOKENS, START, Vocabulary
from training.data.config import DataConfig
from training.data.examples import DataError, Split


class Rows(Sequence[np.ndarray]):
    """Rows of numbers with different lengths, one after the other in one array.

    Args:
        flat: The rows; of small integers, if memory counts. A row is read as int32.
        lengths: int32 `[N]`, the length of each.
    """

    def __init__(self, flat: np.ndarray, lengths: np.ndarray) -> None:
        self.flat = flat
        places = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        self._places = places.astype(np.uint32 if len(flat) < 2**32 else np.int64)

    @classmethod
    def of(cls, rows: Iterable[Sequence[int]], kind: type[np.integer] = np.int32) -> Self:
        """Copies rows as numbers of a kind."""
        rows = [np.asarray(row, kind) for row in rows]
        lengths = np.fromiter(map(len, rows), np.int32, len(rows))
        return cls(np.concatenate([np.zeros(0, kind), *rows]), lengths)

    @property
    def lengths(self) -> np.ndarray:
        """int32 `[N]`, the length of each row."""
        return np.diff(self._places).astype(np.int32)

    def __len__(self) -> int:
        return len(self._places) - 1

    def __getitem__(self, row: int) -> np.ndarray:
        row = range(len(self))[row]
        start, end = self._places[row : row + 2]
        return self.flat[start:end].astype(np.int32, copy=False)

    def take(self, rows: np.ndarray) -> Self:
        """Returns some rows, by number or a mask."""
        return type(self).of(self[row] for row in np.arange(len(self))[rows])

    def framed(self, first: int, last: int) -> Self:
        """Returns the rows between two numbers."""
        flat = np.empty(len(self.flat) + 2 * len(self), self.flat.dtype)
        framed = type(self)(flat, self.lengths + 2)
        starts, ends = framed._places[:-1], framed._places[1:]
        inner = np.ones(len(flat), bool)
        inner[starts], inner[ends - 1] = False, False
        flat[inner], flat[starts], flat[ends - 1] = self.flat, first, last
        return framed

    def cut(self, most: int) -> Self:
        """Returns the rows with `most` numbers at most: the first ones, and the last."""
        kept, lengths = np.ones(len(self.flat), bool), self.lengths
        long = lengths > most
        for start, end in zip(self._places[:-1][long], self._places[1:][long], strict=True):
            kept[start + most - 1 : end - 1] = False
        return type(self)(self.flat[kept], np.minimum(lengths, most))


@dataclass(frozen=True, eq=False)
class CaptionWords:
    """The words of a split's captions, as rows of the numbers of different words."""

    split: Split  # the split
    words: tuple[str, ...]  # different words, in the order in which they occur
    rows: Rows  # the words of each caption; none of a caption without a word
    image_index: np.ndarray  # int32 `[N]`, the image of each caption
    caption_index: np.ndarray  # int32 `[N]`, its number among the image's

    @classmethod
    def of(cls, split: Split, tokenize: Callable[[str], Sequence[str]]) -> Self:
        """Tokenises the captions of a split, each once."""
        numbers: dict[str, int] = {}
        flat, lengths, image, place = (array("i") for _ in range(4))
        for index, example in enumerate(split.examples):
            image.extend([index] * len(example.captions))
            place.extend(range(len(example.captions)))
            for caption in example.captions:
                found = tokenize(caption)
                flat.extend([numbers.setdefault(word, len(numbers)) for word in found])
                lengths.append(len(found))
        flat, lengths, image, place = (
            np.asarray(one, np.int32) for one in (flat, lengths, image, place)
        )
        return cls(split, tuple(numbers), Rows(flat, lengths), image, place)

    def counts(self) -> Counter[str]:
        """Returns how often each word occurs."""
        found = np.bincount(self.rows.flat, minlength=len(self.words)).tolist()
        return Counter(dict(zip(self.words, found, strict=True)))

    def ids(self, vocabulary: Vocabulary) -> Rows:
        """Returns the captions as ids, without `<start>` and `<end>`."""
        kind = np.uint16 if len(vocabulary) <= 2**16 else np.int32
        ids = np.fromiter(map(vocabulary.id, self.words), kind, len(self.words))
        return Rows(ids[self.rows.flat], self.rows.lengths)

    def table(self, vocabulary: Vocabulary) -> CaptionTable:
        """Returns the captions that have a word as ids.

        Raises:
            DataError: There is none.
        """
        kept = self.rows.lengths > 0
        if not kept.any():
            raise DataError(f"No caption of the {self.split.name} split holds a word.")
        ids = self.ids(vocabulary)
        ids = Rows(ids.flat, ids.lengths[kept])  # a caption without a word has no part in `flat`
        image, caption = self.image_index[kept], self.caption_index[kept]
        caption = caption.astype(np.min_scalar_type(caption.max()))
        dropped = int(len(kept) - np.count_nonzero(kept))
        return CaptionTable(image, caption, ids.framed(START, END), dropped)


@dataclass(frozen=True, eq=False)
class CaptionTable:
    """The captions of a split as ids, one row each."""

    image_index: np.ndarray  # int32 `[N]`, index into the split's examples
    caption_index: np.ndarray  # `[N]`, index into that example's captions
    tokens: Rows  # N rows of ids, each `<start> ... <end>`.
    dropped: int = 0  # number of captions without a word
    truncated: int = 0  # number of captions cut to the maximum length

    def __len__(self) -> int:
        return len(self.tokens)

    def first_captions(self) -> CaptionTable:
        """Returns the table of only the first caption of each image."""
        _, rows = np.unique(self.image_index, return_index=True)
        return CaptionTable(
            self.image_index[rows], self.caption_index[rows], self.tokens.take(rows)
        )

    def cut(self, max_length: int) -> CaptionTable:
        """Returns the table of captions cut to this many words."""
        longest = max_length + 2
        truncated = int(np.count_nonzero(self.lengths > longest))
        return dataclasses.replace(self, tokens=self.tokens.cut(longest), truncated=truncated)

    @property
    def lengths(self) -> np.ndarray:
        """int32 `[N]`: tokens per caption, `<start>` and `<end>` included."""
        return self.tokens.lengths


def split_captions(config: DataConfig, split: Split) -> CaptionWords:
    """Tokenises the captions of a split as a data set's are."""
    return CaptionWords.of(split, Vocabulary(SPECIAL_TOKENS, **config.splitting).tokenize)


def learn_vocabulary(config: DataConfig, words: CaptionWords) -> Vocabulary:
    """Collects the vocabulary of captions, those of the training split alone."""
    empty = Vocabulary(SPECIAL_TOKENS, **config.splitting)
    return empty.of_counts(words.counts(), config.min_count, config.vocabulary_size)


def caption_table(split: Split, vocabulary: Vocabulary) -> CaptionTable:
    """Encodes the captions of a split, in its order.

    Raises:
        DataError: No caption of the split has a word.
    """
    return CaptionWords.of(split, vocabulary.tokenize).table(vocabulary)


def check_vocabulary(config: DataConfig, vocabulary: Vocabulary) -> None:
    """Checks that there is a word to learn.

    Raises:
        DataError: There is none; the message names the key.
    """
    if len(vocabulary) == len(SPECIAL_TOKENS):
        unit = config.unit.removesuffix("s")
        raise DataError(
            f"No {unit} occurs {config.min_count} times in the training captions: lower "
            "`--data.min_count`, or add captions."
        )
