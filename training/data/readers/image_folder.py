"""The images of a folder by name, whichever way their letters are composed."""

from __future__ import annotations

import bisect
import functools
import os
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, KeysView, Sequence
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote

from sat_tf.images import SUFFIXES
from sat_tf.util.files import as_utf8
from training.data.examples import DataError


def is_image(name: str) -> bool:
    """Returns whether a file is an image by its name."""
    return name.lower().endswith(SUFFIXES) and not name.startswith(".")


class ImageFolder:
    """Finds files by name, whichever way their letters are composed.

    Some systems store an umlaut as one character (NFC), others as a letter and a mark (NFD): a
    file and the caption file that names it need not agree.

    Args:
        root: Folder that names start from.

    Raises:
        DataError: There is no such folder.
    """

    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            raise DataError(f"`--data.image_dir`: there is no folder {root}.")
        self.root = root
        self._listings: dict[Path, dict[str, str]] = {}

    def find(self, name: str) -> Path | None:
        """The file of this name (NFC, forward slashes), if any."""
        folder = self.root
        *inner, last = name.split("/")
        for part in inner:
            if (entry := self._listing(folder).get(part)) is None:
                return None
            folder = folder / entry
        entry = self._listing(folder).get(last)
        path = None if entry is None else folder / entry
        return path if path is not None and path.is_file() else None

    def find_nearly(self, names: Iterable[str]) -> dict[str, str]:
        """Returns the names without a file, each with the only image that it can mean.

        That is an image of the name one or more folders deeper, or in another folder than one that
        does not exist; with a suffix, with another one, or with other capitals; without the prefix
        of Label Studio's uploads. An image that two names could mean is neither's.
        """
        names, there = tuple(names), set(self.all_names)
        missing = [n for n in names if n not in there and self.find(n) is None]
        nearly = {name: near for name in missing if (near := self.only(name)) is not None}
        claims = Counter((*names, *nearly.values()))
        return {name: near for name, near in nearly.items() if claims[near] == 1}

    def only(self, name: str) -> str | None:
        """The only image that a name without a file can mean, if any."""
        folder, last = PurePosixPath(name).parent, PurePosixPath(name).name
        elsewhere = folder == PurePosixPath(".") or not (self.root / folder).is_dir()

        def one(several: Sequence[str], inside: Sequence[str]) -> str | None:
            left = inside if inside or not elsewhere else several
            return left[0] if len(left) == 1 else None

        def here(several: Sequence[str]) -> list[str]:
            beside = [n for n in several if PurePosixPath(n).parent == folder]
            deeper = [n for n in several if f"/{PurePosixPath(n).parent}".endswith(f"/{folder}")]
            return beside or deeper

        spaced = (last.replace("_", " "), last.replace(" ", "_"))  # as Wikimedia does
        for written in (last, re.sub(r"^[0-9a-f]{8}-", "", last), unquote(last), *spaced):
            if several := self._by["name"].get(written, ()):
                return one(several, [n for n in several if n.endswith(f"/{name}")])
            several = self._by["stem"].get(written, ())
            if found := one(several, here(several)):
                return found
        if is_image(last):  # in other letters, or of another suffix
            several = self._by["small stem"].get(PurePosixPath(last).stem.lower(), ())
            if found := one(several, here(several)):
                return found
        number = last.removesuffix(".0")  # as pandas writes it beside a row without one
        numbered = self._by["number"].get(int(number), ()) if number.isdecimal() else ()
        return numbered[0] if len(numbered) == 1 else None

    def below(self, folder: str, name: str) -> str | None:
        """The image of that name in a folder, or the only one deeper in it; None if others fit."""
        if self.find(inner := f"{folder}/{name}"):
            return inner
        if self.find(name):
            return None
        same = self._by["name"].get(PurePosixPath(name).name, ())
        deeper = [n for n in same if n.startswith(f"{folder}/") and n.endswith(f"/{name}")]
        return deeper[0] if len(deeper) == 1 else None

    def near_match(self, name: str) -> str | None:
        """A file that may be meant, if any, or what to do about several.

        It is in the same folder and differs only in case or suffix, or has the same name in
        another folder.
        """
        path = PurePosixPath(name)
        alike = self._by["small stem"]
        for stem in (path.stem.lower(), path.name.lower()):  # with a suffix, or without one
            for near in alike.get(stem, ()):
                if PurePosixPath(near).parent == path.parent:
                    return f"there is {near}"
        same = self._by["name"].get(path.name, ())
        for views in (f"{path.name}_", f"{path.name}-"):
            at = bisect.bisect(self._lasts, views)
            if (
                not same
                and len(found := self._lasts[at : at + 2]) > 1
                and found[1].startswith(views)
            ):
                return f"images of it are {found[0]} and {found[1]}: write a row for each"
        if len(same) > 1:
            two = f"{same[0]} and {same[1]}"
            chosen = "name the folder too, or give it by `--data.image-dir`"
            return f"{len(same)} have that name, such as {two}: {chosen}"
        return f"there is {same[0]}" if same else None

    def inside(self, path: str) -> str | None:
        """The image that an absolute path of another machine means, by its longest end; or None."""
        parts = PurePosixPath(path).parts
        for start in range(1, len(parts)):
            name = "/".join(parts[start:])
            if self.find(name):
                return name
        return self.only(parts[-1]) if parts else None

    @functools.cached_property
    def all_names(self) -> tuple[str, ...]:
        """The names of all image files (NFC, forward slashes), hidden folders left out.

        Bytes that are not UTF-8 are escaped: no caption file names such a file.
        """
        found = []
        start = len(os.path.join(self.root, ""))  # pathlib would take half of the time of reading
        for folder, folders, files in os.walk(self.root):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for file in sorted(filter(is_image, files)):
                name = os.path.join(folder, file)[start:].replace(os.sep, "/")
                found.append(as_utf8(unicodedata.normalize("NFC", name)))
        return tuple(found)

    @property
    def stems(self) -> KeysView[str]:
        """The names of all images without folder and suffix."""
        return self._by["stem"].keys()

    @property
    def small_stems(self) -> KeysView[str]:
        """The same in small letters."""
        return self._by["small stem"].keys()

    @functools.cached_property
    def _lasts(self) -> list[str]:
        return sorted(self._by["name"])

    @functools.cached_property
    def _by(self) -> dict[str, dict[Any, list[str]]]:
        """The images by last part, its stem, that in small letters, and the number in it (COCO)."""
        found: dict[str, dict[Any, list[str]]] = defaultdict(lambda: defaultdict(list))
        for name in self.all_names:
            last = name.rpartition("/")[2]
            stem = os.path.splitext(last)[0]
            found["name"][last].append(name)
            found["stem"][stem].append(name)
            found["small stem"][stem.lower()].append(name)
            if number := re.fullmatch(r"(?:COCO_\w+_)?(\d+)", stem):
                found["number"][int(number[1])].append(name)
        return found

    def _listing(self, folder: Path) -> dict[str, str]:
        # One listing per folder, instead of one look-up per image and form.
        if folder not in self._listings:
            names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
            self._listings[folder] = {unicodedata.normalize("NFC", name): name for name in names}
        return self._listings[folder]
