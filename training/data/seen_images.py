"""Images that a captioner learned from, as a record that later evaluations read.

A run records its training images, and those of what it started from, as sorted numbers: some 20 KB
for Flickr8k's photo ids, 6 bytes for each further digest. An image counts as seen by

    photo id    Flickr's number, in `1000268201_693b08cb0e.jpg` (Flickr8k) as in `1000268201.jpg`
                of Flickr30k; COCO's number, in `COCO_val2014_000000391895.jpg` as in a record of
                COCO
    content     48 bits of the SHA-256 of the file's length and of three pieces of it, or of pixels

A number or a name alone, as in a folder of one's own, proves nothing: two data sets may both have
a `12.jpg`, and cameras name photographs by date and time, in twelve digits.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import re
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from sat_tf.run_folder import RunFolder
from training.data.examples import AnyImage, Example, StoredImage

FLICKR, COCO, CONTENT = "flickr", "coco", "content"
"""Kinds of keys."""

_FORMAT = 1
_FLICKR8K = re.compile(r"(\d+)_[0-9a-f]{10}(?:_[a-z])?")  # the second part is Flickr's secret
_ELSEWHERE = re.compile(r"(\d{7,11})_(?=\d*[a-f])[0-9a-f]{10}(?:_[a-z])?")  # no date_counter
_COCO = re.compile(r"COCO_\w+?20\d\d_(\d{12})")
_BARE = re.compile(r"\d{1,18}")
_OF_FLICKR = ("flickr8k", "flickr30k")
_PIECE = 4096  # bytes
_BITS = 48


def photo_id(image_id: str, data: str) -> tuple[str, int] | None:
    """Returns whose number of a photograph an image's name has in a data set, and the number."""
    stem, _ = os.path.splitext(image_id.rpartition("/")[2])
    if found := (_FLICKR8K if data in _OF_FLICKR else _ELSEWHERE).fullmatch(stem):
        return FLICKR, int(found[1])
    if data not in _OF_FLICKR and (found := _COCO.fullmatch(stem)):
        return COCO, int(found[1])
    if data in (*_OF_FLICKR, "coco_captions") and _BARE.fullmatch(stem):
        return COCO if data == "coco_captions" else FLICKR, int(stem)
    return None


def content_key(image: AnyImage | bytes) -> int | None:
    """Returns a digest of an image; None for a record of a data source, or if it cannot be read."""
    if isinstance(image, StoredImage):
        return None  # it is known by its name; reading all records would take minutes
    if isinstance(image, np.ndarray):
        return _short(repr(image.shape).encode() + np.ascontiguousarray(image).tobytes())
    if isinstance(image, bytes):
        return _short(_pieces(len(image), lambda size, start: image[start : start + size]))
    with contextlib.suppress(OSError):
        file = os.open(image, os.O_RDONLY)
        try:
            size = os.fstat(file).st_size
            return _short(_pieces(size, lambda count, start: os.pread(file, count, start)))
        finally:
            os.close(file)
    return None


def content_key_of(example: Example) -> int | None:
    """Returns that of an example's image, which is read if it was not before."""
    return content_key(example.image) if example.content_key is None else example.content_key


def keys_of(example: Example, data: str) -> dict[str, int]:
    """Returns the keys of an image of a data set by their kinds."""
    known, digest = photo_id(example.image_id, data), content_key_of(example)
    return dict([known] if known else []) | ({} if digest is None else {CONTENT: digest})


def _pieces(size: int, read: Callable[[int, int], bytes]) -> bytes:
    """Returns the length, and the first, middle and last bytes, or all of few."""
    if size <= 3 * _PIECE:
        return b"%d " % size + read(size, 0)
    starts = (0, size // 2, size - _PIECE)
    return b"%d " % size + b"".join(read(_PIECE, start) for start in starts)


def _short(content: bytes) -> int:
    return int.from_bytes(hashlib.sha256(content).digest()[: _BITS // 8], "big")


@dataclass(frozen=True, eq=False)
class Source:
    """Training images of one captioner or teacher.

    Attributes:
        name: What it is called; empty for the captioner itself.
        images: Number of images.
        keys: Kind -> sorted int64 values.
    """

    name: str
    images: int
    keys: Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class SeenImages:
    """Images that a captioner learned from.

    Attributes:
        sources: Its own training images first, then those of what it started from or learned from,
            without those that an earlier source has.
        unknown: Names of what it started or learned from without a record of images.
    """

    sources: tuple[Source, ...] = ()
    unknown: tuple[str, ...] = ()

    @classmethod
    def of(cls, examples: Iterable[Example], data: str) -> Self:
        """Takes the keys of training images of a data set."""
        keys: dict[str, list[int]] = {}
        count = 0
        for count, example in enumerate(examples, start=1):  # noqa: B007
            for kind, value in keys_of(example, data).items():
                keys.setdefault(kind, []).append(value)
        arrays = {kind: np.unique(np.array(values, np.int64)) for kind, values in keys.items()}
        return cls((Source("", count, arrays),))

    def after(self, name: str, earlier: SeenImages | None) -> SeenImages:
        """Adds the images of what this one started or learned from; None if it has no record."""
        if earlier is None:
            return replace(self, unknown=tuple(dict.fromkeys((*self.unknown, name))))
        sources = list(self.sources)
        for source in earlier.sources:
            keys = {}
            for kind, values in source.keys.items():
                known = [one.keys[kind] for one in sources if kind in one.keys]
                left = np.setdiff1d(values, np.concatenate(known)) if known else values
                keys |= {kind: left} if len(left) else {}
            if keys:
                sources.append(Source(source.name or name, source.images, keys))
        unknown = dict.fromkeys((*self.unknown, *earlier.unknown))
        return SeenImages(tuple(sources), tuple(unknown))

    def after_captioner(self, name: str, place: str | Path | None = None) -> SeenImages:
        """Adds the images of a run or published captioner, by the last part of its path.

        `place` is where it was found, if its name may lead elsewhere by now.
        """
        from sat_tf.trained import published

        earlier = None
        with contextlib.suppress(ValueError):  # it may be gone
            earlier = read_seen(published.locate(os.fspath(place or name)))
        name = published.bare_name(name)
        return self.after(name, earlier)

    def to_json(self) -> dict[str, Any]:
        """Returns the record as plain JSON, each array as compressed differences."""
        sources = [
            {
                "name": source.name,
                "images": source.images,
                "keys": {kind: _packed(values) for kind, values in source.keys.items()},
            }
            for source in self.sources
        ]
        return {"format": _FORMAT, "sources": sources, "unknown": list(self.unknown)}

    @classmethod
    def from_json(cls, values: Any) -> Self | None:
        """Reads a record; None if it is missing, damaged or of a later version."""
        try:
            if values["format"] != _FORMAT:
                return None
            sources = tuple(
                Source(
                    str(one["name"]),
                    int(one["images"]),
                    {str(kind): _unpacked(text) for kind, text in one["keys"].items()},
                )
                for one in values["sources"]
            )
            return cls(sources, tuple(map(str, values["unknown"])))
        except (ValueError, KeyError, TypeError, AttributeError, zlib.error):
            return None

    def content(self) -> bytes:
        """Returns the content of the record's file."""
        return (json.dumps(self.to_json()) + "\n").encode()


def _packed(values: np.ndarray) -> str:
    steps = np.diff(values, prepend=0).astype("<i8")
    planes = steps.view(np.uint8).reshape(-1, 8).T  # the high bytes, nearly all 0, side by side
    return base64.b64encode(zlib.compress(planes.tobytes(), 9)).decode()


def _unpacked(text: str) -> np.ndarray:
    planes = np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8).reshape(8, -1)
    return np.cumsum(np.ascontiguousarray(planes.T).view("<i8").ravel().astype(np.int64))


def read_seen(path: Path) -> SeenImages | None:
    """Reads the record of a run or published captioner; None if it has none that can be read.

    Raises:
        RunError: A manifest cannot be read.
    """
    from sat_tf.trained import published

    folder, content = RunFolder(path), None
    with contextlib.suppress(OSError):
        if published.is_published(folder.path):
            content = published.training_images(folder.path)
        elif folder.training_images.is_file():
            content = folder.training_images.read_bytes()
    with contextlib.suppress(ValueError):
        return SeenImages.from_json(json.loads(content or b""))
    return None
