"""The common form of every data set: examples with captions, gathered in a named split."""

from __future__ import annotations

import hashlib
import json
import posixpath
import unicodedata
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from sat_tf.util.errors import invalid_value

Box = tuple[float, float, float, float]
"""`(top, left, bottom, right)` as shares of the image's sides, in [0, 1]."""

SPLITS = ("train", "dev", "test")
# Beginnings of the reasons for skipping an image before it is opened.
NO_FILE = "no image file"
NO_CAPTIONS = "no captions"
SPLIT_ALIASES = {"val": "dev", "valid": "dev", "validation": "dev"}


class DataError(ValueError):
    """The user's data cannot be used; the message says where and why."""


def canonical_split(name: str) -> str:
    """The name of a split in `SPLITS`; `val` is an alias of `dev`.

    Raises:
        ValueError: The split does not exist.
    """
    canonical = SPLIT_ALIASES.get(name, name)
    if canonical not in SPLITS:
        expected = f"one of {', '.join(SPLITS)} (or val, an alias of dev)"
        raise invalid_value("split", expected, repr(name))
    return canonical


@dataclass(frozen=True)
class Phrase:
    """A noun phrase of a caption, with the bounding box of its object."""

    caption: int  # index of the caption among the example's captions
    word: int  # index of the head noun in `tokenize(caption)`
    box: Box  # the place
    text: str  # the phrase as written, for example "small red circle"
    seen: bool = True  # false if the phrase's attributes never occur together in training


@dataclass(frozen=True, eq=False)
class StoredImage:
    """An encoded image among the records of a data source; read anew each time, never kept.

    Attributes:
        source: Records by number; the key `image` of a record is the encoded image.
        index: Number of the record.
        stamp: Its name in its container, or in a data set that knows its content itself.
    """

    source: Sequence[Mapping[str, Any]] = field(repr=False)
    index: int
    stamp: str

    @property
    def container(self) -> Path | None:
        """The file that holds the records; None for a data set that knows its content itself."""
        path = getattr(self.source, "path", None)
        return path if isinstance(path, Path) else None

    def read_bytes(self) -> bytes:
        """Reads the encoded image."""
        return self.source[self.index]["image"]


AnyImage = Path | StoredImage | np.ndarray
"""A file, a record of a data source, or uint8 pixels `[height, width, 3]`."""


@dataclass(frozen=True, eq=False, slots=True)
class Example:
    """One image with its captions."""

    image_id: str  # unique within the split
    image: AnyImage
    captions: tuple[str, ...]  # as written
    phrases: tuple[Phrase, ...] = ()  # noun phrases with boxes, if the data set has them
    group: str | None = None  # what it must share a split with, if the data set says
    sha256: str | None = None  # of the content of its image (hexadecimal), if that was read


@dataclass(frozen=True, eq=False)
class Split:
    """The examples of one split, in a fixed order.

    With a limit on the number of examples, `skipped` covers only those before the last of
    them.
    """

    name: str  # of `SPLITS`
    examples: Sequence[Example] = field(repr=False)  # the usable ones
    skipped: tuple[tuple[str, str], ...] = ()  # `(image_id, reason)` of the others
    uncaptioned: tuple[str, ...] = ()  # image files without a caption in any split
    notes: tuple[str, ...] = ()  # sentences on how the caption file was read, where not plain
    identifiers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Other ids that the caption file gives images, such as COCO's numbers -> `image_id`."""
    held_out: str | None = None
    """`DataConfig.held_out` of the same splits if images are added; None if splits are given."""

    def __len__(self) -> int:
        return len(self.examples)

    @property
    def captions(self) -> Iterator[str]:
        """The captions of all examples, one after the other."""
        return (caption for example in self.examples for caption in example.captions)

    @property
    def has_phrases(self) -> bool:
        """True if the data set itself has boxes of phrases, as drawn scenes have."""
        return any(example.phrases for example in self.examples)

    def references(self, of: Container[str] | None = None) -> dict[str, list[str]]:
        """Maps image ids, all or some, to the raw reference captions."""
        wanted = [e for e in self.examples if of is None or e.image_id in of]
        return {example.image_id: list(example.captions) for example in wanted}

    def unusable(self, unreadable: Mapping[int, str]) -> dict[str, str]:
        """Maps image ids to reasons: `skipped`, and the images that could not be read."""
        read = {self.examples[index].image_id: why for index, why in unreadable.items()}
        return dict(self.skipped) | read

    def details(self, unreadable: Mapping[int, str] | None = None) -> dict[str, Any]:
        """Returns the part of a report that is about the split, see `unusable`."""
        return {
            "split": self.name,
            "split_fingerprint": self.fingerprint(),
            "skipped": self.unusable(unreadable or {}),
        }

    def fingerprint(self) -> str:
        """SHA-256 (hexadecimal) of ids, captions, phrases and in-memory images, in order.

        Files and records count by id alone: reading all of them would take minutes, and the
        feature store notices changed files.
        """
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        digest = hashlib.sha256()
        _update(digest, self.name)
        for example in self.examples:
            phrases = [
                [p.caption, p.word, [float(x).hex() for x in p.box], p.text, p.seen]
                for p in example.phrases
            ]
            _update(digest, [example.image_id, example.captions, phrases])
            if isinstance(example.image, np.ndarray):
                image = np.ascontiguousarray(example.image)
                _update(digest, [image.shape, image.dtype.str])
                digest.update(image.data)
        return digest.hexdigest()


def line_of(note: str) -> str:
    """Writes a note on how data was read as a line of a command's output."""
    return note if note.startswith("Not read") else f"Read: {note}"


def canonical_name(name: str) -> str:
    """Writes an image's path in one form: NFC, forward slashes, without `.` and `..` inside."""
    return posixpath.normpath(unicodedata.normalize("NFC", name).replace("\\", "/"))


def usable_split(
    name: str, examples: list[Example], skipped: list[tuple[str, str]], listed: str, **details: Any
) -> Split:
    """Makes a split of the examples of a data set.

    Raises:
        DataError: No image is usable; the message counts the reasons.
    """
    if not examples:
        reasons = Counter(reason.partition(";")[0] for _, reason in skipped)
        counted = "; ".join(f"{count} with {reason}" for reason, count in reasons.items())
        raise DataError(
            f"No image of {listed} can be used: of the {len(skipped)} listed, {counted}. The first "
            f"one is {skipped[0][0]}: {skipped[0][1]}."
        )
    return Split(name, tuple(examples), tuple(skipped), **details)


def _update(digest: Any, value: Any) -> None:
    # JSON with a line end, which it never contains, keeps neighbouring fields apart.
    digest.update(json.dumps(value, ensure_ascii=True).encode("ascii") + b"\n")
