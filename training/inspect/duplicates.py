"""Finds images that are in two splits: by a difference hash, confirmed on a thumbnail.

An image leaves 200 bytes; its pixels are not kept. The hash is of the square that training sees,
and hardly changes if the image is scaled or compressed again.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from PIL import Image

from training.data.examples import AnyImage, Split

# On photographs, scaling and compression flip up to nine of the 64 bits and change the thumbnail
# by one or two grey levels; another photograph changes it by more than ten.
MOST_BITS = 10
MOST_DIFFERENCE = 6.0
_FLAT = 2  # grey levels; a smaller step is noise of the compression
_THUMBNAIL = 8
_BLOCK = 64  # rows compared at once, so that memory stays small


@dataclass(frozen=True, eq=False)
class Prints:
    """Fingerprints of the images of a split.

    Attributes:
        hashes: uint64 `[N]`; bit (i, j) is set if column j + 1 is brighter than column j in row i
            of the image scaled to 8 x 9.
        thumbnails: uint8 `[N, 192]`, the image scaled to 8 x 8, in colour.
        readable: bool `[N]`; the other images have no print.
    """

    hashes: np.ndarray
    thumbnails: np.ndarray
    readable: np.ndarray

    @classmethod
    def empty(cls, count: int) -> Prints:
        """Prints of `count` images, none taken yet."""
        return cls(
            np.zeros(count, np.uint64),
            np.zeros([count, _THUMBNAIL * _THUMBNAIL * 3], np.uint8),
            np.zeros(count, bool),
        )

    def take(self, index: int, pixels: np.ndarray) -> None:
        """Takes the print of one image."""
        image = Image.fromarray(np.round(pixels).astype(np.uint8))
        grey = image.convert("L").resize((_THUMBNAIL + 1, _THUMBNAIL), Image.Resampling.BOX)
        slopes = np.diff(np.asarray(grey, np.int16), axis=1) > _FLAT
        self.hashes[index] = np.packbits(slopes).view(np.uint64)[0]
        small = image.resize((_THUMBNAIL, _THUMBNAIL), Image.Resampling.BOX)
        self.thumbnails[index] = np.asarray(small).reshape(-1)
        self.readable[index] = True


@dataclass(frozen=True)
class Twin:
    """An image that another split has too."""

    split: str
    image: str
    other_split: str
    other_image: str
    identical: bool


def find_twins(split: Split, prints: Prints, other: Split, other_prints: Prints) -> list[Twin]:
    """Finds the images of a split that another split has too, each with its nearest twin."""
    # Cached, as images that are all alike, such as blank ones, are candidates repeatedly.
    digest_of = functools.cache(lambda example: _digest(example.image))
    twins = []
    for index, nearest in _candidates(prints, other_prints):
        example, found = split.examples[index], [other.examples[n] for n in nearest]
        digest = digest_of(example)
        same = next((match for match in found if digest_of(match) == digest), None)
        twin = same or found[0]
        twins.append(Twin(split.name, example.image_id, other.name, twin.image_id, bool(same)))
    return twins


def _candidates(prints: Prints, others: Prints) -> Iterator[tuple[int, list[int]]]:
    """Index of each image that has twins, with the indices of the nearest ones."""
    known = np.flatnonzero(others.readable)
    wanted = np.flatnonzero(prints.readable)
    for start in range(0, len(wanted), _BLOCK):
        rows = wanted[start : start + _BLOCK]
        bits = np.bitwise_count(prints.hashes[rows, None] ^ others.hashes[None, known])
        for row, near in zip(rows, bits <= MOST_BITS, strict=True):
            places = known[near]
            moved = others.thumbnails[places].astype(np.int16) - prints.thumbnails[row]
            moved = np.abs(moved).mean(axis=1)
            # Files that are equal byte for byte are always among the nearest.
            if moved.size and moved.min() <= MOST_DIFFERENCE:
                yield int(row), places[moved == moved.min()].tolist()


def _digest(image: AnyImage) -> bytes:
    """SHA-256 of an encoded image, or of the pixels of a drawn one."""
    if isinstance(image, np.ndarray):
        return hashlib.sha256(image.tobytes()).digest()
    return hashlib.sha256(image.read_bytes()).digest()
