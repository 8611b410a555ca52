"""Captions next to their images: KEY.jpg with KEY.txt, in a folder or in a webdataset tar.

Each line of a text is a caption. Keys are equal, one text for one image.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

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
    read_text,
)

_MOST = 2**20  # bytes of the text of one image
_SAMPLE = 50
_TEXTS = ("txt", "text")  # webdataset takes them for the same


def texts_of(images: ImageFolder) -> dict[str, str]:
    """Returns each image with a text of its own: its name -> the name of the text."""
    texts = {name: f"{os.path.splitext(name)[0]}.txt" for name in images.names}
    return {name: text for name, text in texts.items() if text in images.files}


def read_pairs(images: ImageFolder) -> CaptionFile:
    """Reads the captions of each image of a folder from the text of its name.

    Raises:
        DataError: Two images have one text, or the texts hold no words.
    """
    root, owner, records = images.root, {}, []
    paired = texts_of(images)
    for name, text in paired.items():
        if owner.setdefault(text, name) != name:
            way = "give each image a text of its own"
            fail(root, text, f"it is the text of {owner[text]} and of {name}; {way}")
        path = images.path_of(text)
        if path.stat().st_size > _MOST:
            fail(root, text, f"it has more than {_MOST:,} bytes")
        records.append(_record(root, text, name, read_text(path)))
    if not any(map(str.isalpha, "".join(t for r in records[:_SAMPLE] for t in r.captions))):
        way = f"name the caption file with `--data.captions`, or see {RECIPES}"
        fail(root, records[0].place, f"no letters, so no caption (places of boxes?); {way}")
    used = frozenset(images.path_of(text) for text in owner)
    several = sum(len(record.captions) > 1 for record in records)
    note = f"Captions are those of {len(owner)} files *.txt named like their images"
    note += f"; {several} of them have several lines, each a caption." if several else "."
    found = finished(root, records, [note])
    return replace(found, used=used)


def _record(path: Path, place: str, name: str, text: str, stored: Any = None) -> Record:
    found, blank = captions_in(text.splitlines() or [""], path, place)
    blank = 0 if found else min(blank, 1)  # blank lines between captions
    return Record(name, found, place, blank=blank, stored=stored)


@dataclass(frozen=True)
class TarImages(Sequence):
    """The images of a tar, by number, each with its offset and size."""

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
    """Reads a webdataset shard: KEY.jpg with KEY.txt; other members are counted.

    Raises:
        DataError: It is no plain tar, two members have one key, or no image has a text.
    """
    places: dict[str, tuple[int, int]] = {}
    owner: dict[str, str] = {}
    texts: dict[str, bytes] = {}
    others = 0
    try:
        with tarfile.open(path, "r:") as tar:
            for member in tar:
                key, _, kind = member.name.rpartition(".")
                if not (member.isfile() or member.islnk()) or "/." in f"/{member.name}":
                    continue
                image = is_image_name(member.name)
                if key in (owner if image else texts) and (image or kind in _TEXTS):
                    what = f"a second member of the key {key}; give each image its own"
                    fail(path, f"member {member.name}", what)
                if image:
                    linked = places.get(member.linkname)  # a hard link: the file is there once
                    places[member.name] = linked or (member.offset_data, member.size)
                    owner[key] = member.name
                elif kind in _TEXTS:
                    if member.size > _MOST:
                        fail(path, f"member {member.name}", f"it has more than {_MOST:,} bytes")
                    content = tar.extractfile(member)
                    texts[key] = content.read() if content else b""
                else:
                    others += 1
    except tarfile.TarError as error:
        way = "unpack it, or pack it without gz"
        fail(path, "the whole file", f"not a plain tar ({error}); {way}")
    if texts.keys().isdisjoint(owner):
        found = f"{len(owner)} images and {len(texts)} texts, none with a common key"
        way = f"write the captions of KEY.jpg to KEY.txt, or see {RECIPES}"
        fail(path, "the whole file", f"{found}; {way}")
    images = TarImages(path, tuple(places.values()))
    records = []
    for index, (key, name) in enumerate(owner.items()):
        stored = StoredImage(images, index, name)
        try:
            text = decoded(texts[key]) if key in texts else ""
        except UnicodeDecodeError as error:
            fail(path, f"the text of {name}", f"not UTF-8 ({error.reason})")
        records.append(_record(path, f"member {name}", name, text, stored))
    alone = sorted(texts.keys() - owner.keys())
    notes = []
    if alone:
        notes.append(f"{path.name}: {len(alone)} texts have no image, such as {alone[0]}.txt.")
    if others:
        notes.append(f"{path.name}: {others} members that are no image or text are not read.")
    return finished(path, records, notes)
