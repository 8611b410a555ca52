"""The images of a folder, found under the names in caption files."""

from __future__ import annotations

import functools
import os
import posixpath
import unicodedata
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from sat_tf.images import SUFFIXES
from sat_tf.util.commands import counted
from sat_tf.util.files import as_utf8
from training.data.examples import NO_CAPTIONS, NO_FILE, DataError, StoredImage, canonical_name
from training.data.readers.records import CaptionFile, Record, split_in


def is_image(name: str) -> bool:
    """Returns whether a file's name is an image's."""
    return name.lower().endswith(SUFFIXES) and not name.startswith(".")


class Match(NamedTuple):
    """The image that a caption file means."""

    name: str  # in the data set
    file: str | None  # its name in the folder, None without one
    means: str  # what was written: two such of one file contradict each other


class ImageFolder:
    """Finds the files of a folder, and of those below it, by name.

    Some systems store an umlaut as one character (NFC), others as a letter and a mark (NFD): a
    file and the caption file that names it need not agree. Only regular files count.

    Args:
        root: Folder that names start from.

    Raises:
        DataError: The folder does not exist.
    """

    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            raise DataError(f"`--data.image_dir`: there is no folder {root}.")
        self.root = root

    def path_of(self, name: str) -> Path:
        """Returns the path of a file."""
        return self.root / self.files[name]

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        """The names of all images (NFC, forward slashes), in order; hidden ones left out."""
        return tuple(name for name in self.files if is_image(posixpath.basename(name)))

    @functools.cached_property
    def stems(self) -> frozenset[str]:
        """The names of all images without folder and suffix."""
        return frozenset(_stem(posixpath.basename(name)) for name in self.names)

    def match(self, written: str, beside: str = "") -> Match:
        """Finds the image that a caption file in a folder below the root means.

        That is the path as written, from that folder or from the root; or else the only file of
        that name, or of that stem. Its folders may not be others than those written, as one of the
        two paths ends with the other; unless the text is an address, or a path of another machine.

        Raises:
            DataError: Several files have the name.
        """
        name, web = canonical_name(written), "://" in written
        if web:
            name = canonical_name(unquote(written.partition("://")[2].partition("?")[0]))
        moved = web or name.startswith("/") or name[1:2] == ":"  # on another machine
        for folder in () if moved else dict.fromkeys((beside, "")):
            path = posixpath.normpath(posixpath.join(folder, name))
            if path in self.files:
                return Match(path, path, path)
        moved = moved or name.startswith("../")
        several = self._ending_like(name, -1 if moved else 0)
        if len(several) > 1:
            raise DataError(
                f"{written!r} is the name of {len(several)} files, such as "
                f"{' and '.join(several[:2])}; write the path, or name the folder of the images "
                "with `--data.image-dir`"
            )
        file = several[0] if several else None
        return Match((file or posixpath.basename(name)) if moved else name, file, name)

    def near(self, name: str) -> str | None:
        """Returns a file of a missing one's name in other capitals or another folder, if any."""
        return next(iter(self._by_stem.get(_stem(posixpath.basename(name)).lower(), ())), None)

    def _ending_like(self, name: str, least: int) -> Sequence[str]:
        """The files of a name, or of its stem, that share most of its folders, `least` of them."""
        last = posixpath.basename(name)
        found = self._by_stem.get(last.lower(), []) + self._by_stem.get(_stem(last).lower(), [])
        for same in (
            lambda one: posixpath.basename(one) == last,
            lambda one: _stem(posixpath.basename(one)) == last,
            lambda one: is_image(last) and _stem(posixpath.basename(one)) == _stem(last),
        ):
            if several := list(filter(same, dict.fromkeys(found))):
                break
        else:
            return []
        shared = {one: _shared_folders(one, name) for one in several}
        return [one for one in several if shared[one] == max(shared.values()) >= least]

    @functools.cached_property
    def _by_stem(self) -> dict[str, list[str]]:
        """The images by stem: last part of the name without suffix, in small letters."""
        found: dict[str, list[str]] = defaultdict(list)
        for name in self.names:
            found[_stem(posixpath.basename(name)).lower()].append(name)
        return dict(found)

    @functools.cached_property
    def files(self) -> dict[str, str]:
        """The regular files: name -> path below the root, as the system has it.

        Bytes that are not UTF-8 are escaped: no caption file names such a file.
        """
        found: dict[str, str] = {}
        left, seen = [""], set()
        while left:
            inner = left.pop()
            folder = os.path.realpath(os.path.join(self.root, inner))
            if folder in seen:  # by a link
                continue
            seen.add(folder)
            with os.scandir(folder) as entries:
                there = sorted(entries, key=lambda entry: entry.name, reverse=True)
            for entry in there:
                path = f"{inner}/{entry.name}" if inner else entry.name
                if entry.is_dir() and not entry.name.startswith("."):
                    left.append(path)
                elif entry.is_file() and not entry.name.startswith("."):
                    found[as_utf8(unicodedata.normalize("NFC", path))] = path
        return dict(sorted(found.items()))


def _stem(name: str) -> str:
    """A name without the suffix of an image."""
    stem, suffix = os.path.splitext(name)
    return stem if suffix.lower() in SUFFIXES else name


def _shared_folders(file: str, name: str) -> int:
    """Number of folders that two paths share at their ends; -1 if they name different ones."""
    one, other = (
        [part for part in path.split("/")[-2::-1] if part.strip(".") and part[-1] != ":"]
        for path in (file, name)
    )
    count = min(len(one), len(other))
    return count if one[:count] == other[:count] else -1


@dataclass
class Image:
    """An image of the folder, with the records of all caption files."""

    name: str  # in the data set
    image: Path | StoredImage | None  # None without a file
    file: str  # its path below the folder of the images, or its name
    split: str | None  # None until it is decided
    group: str | None  # what it must share a split with
    identifier: str | None  # its number in a caption file
    place: str  # where it is named first
    near: str | None = None  # a file that differs from a missing one in capitals or folder
    captions: list[str] = field(default_factory=list)

    @property
    def lacks(self) -> str:
        """Reason for which it cannot be used; empty if it can be."""
        if self.image is None:
            near = f"; there is {self.near}" if self.near else ""
            return f"{NO_FILE}{near}; named in {self.place}"
        return "" if self.captions else f"{NO_CAPTIONS}; named in {self.place}"


def gather(
    files: Sequence[CaptionFile],
    splits: Sequence[str | None] | None,
    images: ImageFolder,
) -> tuple[dict[str, Image], list[str]]:
    """Merges the records of each image and finds its file; returns name -> image, and notes.

    `splits` are those that the files' names give, to files that name none themselves; None if no
    split is to be read.

    Raises:
        DataError: A name is that of several files, two names are of one file, or records of an
            image contradict each other.
    """
    found: dict[str, Image] = {}
    owner: dict[str, str] = {}  # file -> what was written for it
    nearly: dict[str, str] = {}
    for file, of_file in zip(files, splits or [None] * len(files), strict=True):
        beside = _folder_below(file.path, images.root)
        match = functools.cache(functools.partial(images.match, beside=beside))
        given = [None] * len(file.records)
        if splits is not None:
            given = [split_in(one.split, file.path, one.place) for one in file.records]
            given = given if any(given) else [of_file] * len(given)
        for record, split in zip(file.records, given, strict=True):
            where, path = f"{file.path}, {record.place}", None
            if record.stored is not None:
                name = record.image
            else:
                try:
                    name, path, means = match(record.image)
                except DataError as error:
                    raise DataError(f"{where}: {error}.") from error
                if path is not None and (other := owner.setdefault(path, means)) != means:
                    two = f"{other!r} and {means!r} both mean the file {path}"
                    raise DataError(f"{where}: {two}; write its path.")
                if path != means and path is not None:
                    nearly.setdefault(record.image, path)
            if name not in found:
                image = record.stored or (images.path_of(path) if path else None)
                near = images.near(name) if image is None else None
                place = f"{file.path.name}, {record.place}"
                of_record = (split, record.group, record.identifier)
                found[name] = Image(name, image, path or name, *of_record, place, near)
            _merge(found[name], record, split, where)
    what = f"{counted(len(nearly), 'name')} matched to the only file of that name"
    return found, [f"{what}, such as {name} by {path}." for name, path in [*nearly.items()][:1]]


def _merge(image: Image, record: Record, split: str | None, where: str) -> None:
    for kind, mine, theirs in (
        ("is in the split", image.split, split),
        ("is in the group", image.group, record.group),
    ):
        if mine != theirs:
            two = f"{theirs or 'none'} here and {mine or 'none'} before ({image.place})"
            raise DataError(f"{where}: {record.image!r} {kind} {two}; give each image one.")
    stored = record.stored
    if stored not in (None, image.image) and stored.read_bytes() != image.image.read_bytes():
        raise DataError(
            f"{where}: a second image {record.image!r}, unlike that of {image.place}; give each "
            "image a name of its own."
        )
    image.captions += record.captions


def _folder_below(path: Path, root: Path) -> str:
    """The folder of a caption file below that of the images; empty if it is that or elsewhere."""
    folder, root = (path if path.is_dir() else path.parent).resolve(), root.resolve()
    inner = folder.relative_to(root) if folder.is_relative_to(root) else Path()
    return "" if inner == Path() else inner.as_posix()
