"""The images of a folder by name, whichever way their letters are composed."""

from __future__ import annotations

import functools
import os
import posixpath
import unicodedata
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path, PurePosixPath, PureWindowsPath
from urllib.parse import unquote

from sat_tf.images import SUFFIXES
from sat_tf.util.files import as_utf8
from training.data.examples import DataError, canonical_name


def is_image(name: str) -> bool:
    """Returns whether a file is an image by its name."""
    return name.lower().endswith(SUFFIXES) and not name.startswith(".")


class ImageFolder:
    """Finds the files of a folder, and of those below it, by name.

    Some systems store an umlaut as one character (NFC), others as a letter and a mark (NFD): a
    file and the caption file that names it need not agree. Only regular files count.

    Args:
        root: Folder that names start from.

    Raises:
        DataError: There is no such folder.
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

    def match(self, written: str, beside: str = "") -> tuple[str, str | None]:
        """Finds the image that a caption file in the folder `beside`, below the root, means.

        That is the path as written, from that folder or from the root; or else the only file of
        that name, or of that stem. Returns the name of the image in its data set, and that of its
        file, None without one.

        Raises:
            DataError: Several files have the name.
        """
        name = canonical_name(written)
        web, anchored = "://" in written, name.startswith("/") or PureWindowsPath(name).drive
        if web:
            name = canonical_name(unquote(written.partition("://")[2].partition("?")[0]))
        for folder in dict.fromkeys((beside, "")):
            path = posixpath.normpath(posixpath.join(folder, name))
            if not (web or anchored) and path in self.files:
                return path, path
        moved = web or bool(anchored) or name.startswith("../")
        parts = name.split("/")
        for start in range(1, len(parts)) if moved else ():  # a path of another machine
            if (path := "/".join(parts[start:])) in self.files:
                return path, path
        several = self._meant(name)
        if len(several) > 1:
            named = " and ".join(several[:2])
            raise DataError(
                f"{written!r} is the name of {len(several)} files, such as {named}; write the "
                "path, or name the folder of the images with `--data.image-dir`"
            )
        file = several[0] if several else None
        if moved:
            return file or posixpath.basename(name), file
        return name, file

    def near(self, name: str) -> str | None:
        """Returns the name of a file that differs from a missing one in capitals, if any."""
        stem = PurePosixPath(name).stem.lower()
        return next(iter(self._by_stem.get(stem, ())), None)

    @functools.cached_property
    def stems(self) -> frozenset[str]:
        """The names of all images without folder and suffix."""
        return frozenset(PurePosixPath(name).stem for name in self.names)

    def _meant(self, name: str) -> Sequence[str]:
        last = posixpath.basename(name)
        found = self._by_stem.get(last.lower(), []) + self._by_stem.get(_stem(last).lower(), [])
        for test in (
            lambda one: posixpath.basename(one) == last,
            lambda one: _stem(posixpath.basename(one)) == last,
            lambda one: is_image(last) and _stem(posixpath.basename(one)) == _stem(last),
        ):
            if several := list(filter(test, dict.fromkeys(found))):
                inner = [one for one in several if f"/{_stem(one)}".endswith(f"/{_stem(name)}")]
                return inner if len(inner) == 1 else several
        return []

    @functools.cached_property
    def _by_stem(self) -> dict[str, list[str]]:
        """The images by the last part of their names without suffix, in small letters."""
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
        left, linked = [""], {os.path.realpath(self.root)}
        while left:
            inner = left.pop()
            with os.scandir(os.path.join(self.root, inner)) as entries:
                there = sorted(entries, key=lambda entry: entry.name)
            folders = []
            for entry in there:
                path = f"{inner}/{entry.name}" if inner else entry.name
                if entry.name.startswith("."):
                    continue
                if entry.is_file():
                    found[as_utf8(unicodedata.normalize("NFC", path))] = path
                elif entry.is_dir() and (
                    not entry.is_symlink() or _add(linked, os.path.realpath(entry.path))
                ):
                    folders.append(path)
            left += reversed(folders)
        return found


def _stem(name: str) -> str:
    """A name without the suffix of an image."""
    stem, suffix = os.path.splitext(name)
    return stem if suffix.lower() in SUFFIXES else name


def _add(known: set[str], folder: str) -> bool:
    """Adds a folder that a link leads to; returns False if it, or one around it, is known."""
    new = not any(f"{one}/".startswith(f"{folder}/") for one in known)
    known.add(folder)
    return new
