"""Captions next to their images: KEY.jpg with KEY.txt, in a folder or in a webdataset tar.

Each line of a text is a caption. Keys are equal, one text for one image.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sat_tf.util.files import read_content
from training.data.examples import StoredImage
from training.data.readers.images import ImageFolder
from training.data.readers.records import (
    RECIPES,
    CaptionFile,
    Record,
    captions_in,
    decoded,
    fail,
    finished,
    is_image_name,
)

_MOST = 2**20  # bytes of the text of one image
_TEXTS = (".txt", ".text")  # webdataset takes them for the same


def texts_of(names: Collection[str]) -> dict[str, str]:
    """Returns each image with a text: its name -> the name of the text."""
    stems = {name: os.path.splitext(name)[0] for name in names if is_image_name(name)}
    texts = ((name, stem + end) for name, stem in stems.items() for end in _TEXTS)
    return {name: text for name, text in texts if text in names}


def read_pairs(images: ImageFolder) -> CaptionFile:
    """Reads the captions of each image of a folder from the text of its name.

    Raises:
        DataError: Two images have one text, or a text holds no captions.
    """
    texts = texts_of(images.files)
    records = _records(images.root, texts, lambda text: read_content(images.path_of(text)))
    several = sum(len(record.captions) > 1 for record in records)
    note = f"captions are those of {len(texts)} files *.txt named like their images"
    note += f"; {several} of them have several lines, each a caption." if several else "."
    used = frozenset(map(images.path_of, texts.values()))
    return replace(finished(images.root, records, [note]), used=used)


@dataclass(frozen=True)
class TarFiles(Sequence):
    """The files in a tar, by number, each with its offset and size."""

    path: Path
    places: tuple[tuple[int, int], ...]

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: int) -> Mapping[str, Any]:
        offset, size = self.places[index]
        with self.path.open("rb") as file:
            file.seek(offset)
            return {"image": file.read(size)}


def read_tar(path: Path) -> CaptionFile:
    """Reads a webdataset shard: KEY.jpg with KEY.txt; images without a text have no caption.

    Raises:
        DataError: It is not a plain tar, two members have one name or key, or no image has a text.
    """
    places: dict[str, tuple[int, int]] = {}
    try:
        with tarfile.open(path, "r:") as tar:
            for member in tar:
                if not (member.isfile() or member.islnk()) or "/." in f"/{member.name}":
                    continue
                if member.name in places:
                    fail(path, f"member {member.name}", "a second one; give each its own name")
                # The file of a hard link is there once.
                linked = places.get(member.linkname)
                places[member.name] = linked or (member.offset_data, member.size)
    except tarfile.TarError as error:
        way = "unpack it, or pack it without gz"
        fail(path, "the whole file", f"not a plain tar ({error}); {way}")
    stored = TarFiles(path, tuple(places.values()))
    numbers = {name: number for number, name in enumerate(places)}
    images, texts = [*filter(is_image_name, places)], texts_of(places)
    if not texts:
        found = f"{len(places)} files, {len(images)} of them images, and no KEY.jpg with KEY.txt"
        fail(path, "the whole file", f"{found}; write captions so, or see {RECIPES}")
    records = _records(path, texts, lambda text: stored[numbers[text]]["image"])
    records += [Record(name, (), f"member {name}") for name in images if name not in texts]
    records = [
        replace(one, stored=StoredImage(stored, numbers[one.image], one.image)) for one in records
    ]
    others = [*places.keys() - {*images, *texts.values()}]
    notes = [f"{len(others)} members are not read, such as {min(others)}."] if others else []
    return finished(path, sorted(records, key=lambda one: numbers[one.image]), notes)


def _records(path: Path, texts: Mapping[str, str], read: Callable[[str], bytes]) -> list[Record]:
    """Reads the record of each image from its text."""
    owner, records = {}, []
    for name, text in texts.items():
        if owner.setdefault(text, name) != name:
            way = "give each image a text of its own"
            fail(path, text, f"it is the text of {owner[text]} and of {name}; {way}")
        try:
            content = read(text)
            lines = decoded(content).splitlines()
        except (OSError, ValueError) as error:
            fail(path, text, f"it is not UTF-8 or cannot be read ({error})")
        if len(content) > _MOST:
            fail(path, text, f"it has more than {_MOST:,} bytes")
        found = tuple(filter(None, captions_in(lines, path, text)))  # blank lines are between
        records.append(Record(name, found or ("",), text))
    return records
