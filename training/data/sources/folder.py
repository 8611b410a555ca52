"""Your own data set: a folder of images and a caption file, in any language.

The caption file is a CSV, a JSONL, a COCO JSON or a Karpathy JSON (see `caption_files`). It names
the images relative to the folder, or to `--data.image_dir`. If it names no splits, a hash of each
image's name decides, so that adding images moves none.
"""

from __future__ import annotations

import functools
import hashlib
import os
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath, PureWindowsPath

from sat_tf.errors import invalid_value
from sat_tf.files import printable
from training.data.examples import (
    NO_CAPTIONS,
    NO_FILE,
    DataError,
    Example,
    Split,
    canonical_name,
    usable_split,
)
from training.data.sources.caption_files import (
    IMAGE_SUFFIXES,
    SUFFIXES,
    Record,
    advice_without_captions,
    read_captions,
)


@dataclass
class _Entry:
    """The records of one image, merged."""

    split: str | None
    captions: list[str] = field(default_factory=list)
    blank: int = 0


def load(
    split: str,
    data_dir: Path,
    *,
    captions: str | None = None,
    image_dir: str | None = None,
    limit: int | None = None,
) -> Split:
    """Loads one split of a folder.

    Images without a file or without a caption are skipped; no image is opened.

    Args:
        split: "train", "dev" or "test".
        data_dir: The folder.
        captions: Path of the caption file within the folder; None if there is only one.
        image_dir: Folder that the names of images start from, relative to `data_dir`; None for
            `data_dir` itself.
        limit: Load only so many examples.

    Returns:
        The split in the order of the file, each image once. An image's id is its name with forward
        slashes, in Unicode's NFC form.

    Raises:
        ValueError: `captions` names no file of the folder.
        DataError: There is not exactly one caption file; it does not parse; a name leaves the
            folder; or no image of the split can be used.
    """
    path = _caption_file(Path(data_dir), captions)
    images = ImageFolder(Path(data_dir) / (image_dir or ""))
    entries = _gather(path, read_captions(path))
    chosen = {name: e for name, e in entries.items() if (e.split or hashed_split(name)) == split}
    if not chosen:
        raise DataError(
            f"{path} names no image of the {split} split: {_sizes(entries)}. Add images, or a "
            "split to each image."
        )
    examples, skipped, blank = [], [], 0
    for name, entry in chosen.items():
        if len(examples) == limit:
            break
        blank += entry.blank
        file = images.find(name)
        if file is None:
            near = images.near_match(name)
            advice = f"; there is {near}" if near else ""
            skipped.append((name, f"{NO_FILE} in {image_dir or 'the data folder'}{advice}"))
        elif not entry.captions:
            skipped.append((name, f"{NO_CAPTIONS} in {path.name}"))
        else:
            examples.append(Example(name, file, tuple(entry.captions)))
    uncaptioned = tuple(name for name in images.names() if name not in entries)
    details = {"blank_captions": blank, "uncaptioned": uncaptioned}
    return usable_split(split, examples, skipped, f"the {split} split of {path}", **details)


def hashed_split(name: str) -> str:
    """Chooses a split by the SHA-256 of a name: train for 80 %, dev and test for 10 % each."""
    tenth = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") % 10
    return "train" if tenth < 8 else ("dev", "test")[tenth - 8]


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
        self._nearly: dict[Path, dict[str, str]] = {}

    def find(self, name: str) -> Path | None:
        """The file of this name (NFC, forward slashes), if any."""
        path = self.root
        for part in name.split("/"):
            entry = self._listing(path).get(part)
            if entry is None:
                return None
            path = path / entry
        return path if path.is_file() else None

    def near_match(self, name: str) -> str | None:
        """A file that may be meant, if any.

        It is in the same folder and differs only in case or suffix, or has the same name in
        another folder.
        """
        path = PurePosixPath(name)
        near = self._near(self.root / path.parent)
        for written in (path.name.lower(), path.stem.lower()):
            if written in near:
                return str(path.with_name(near[written]))
        same = self._by_last_part.get(path.name, ())
        return same[0] if len(same) == 1 else None

    def names(self) -> Iterator[str]:
        """The names of all image files (NFC, forward slashes), hidden folders left out.

        Bytes that are not UTF-8 are escaped: no caption file names such a file.
        """
        for folder, folders, files in os.walk(self.root):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            inner = Path(folder).relative_to(self.root)
            for file in sorted(filter(_is_image, files)):
                yield printable(unicodedata.normalize("NFC", (inner / file).as_posix()))

    @functools.cached_property
    def _by_last_part(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name in self.names():
            found.setdefault(PurePosixPath(name).name, []).append(name)
        return found

    def _near(self, folder: Path) -> dict[str, str]:
        """The images of a folder by their names and stems in small letters."""
        if folder not in self._nearly:
            images = list(filter(_is_image, self._listing(folder)))
            stems = {PurePosixPath(name).stem.lower(): name for name in images}
            self._nearly[folder] = stems | {name.lower(): name for name in images}
        return self._nearly[folder]

    def _listing(self, folder: Path) -> dict[str, str]:
        # One listing per folder, instead of one look-up per image and form.
        if folder not in self._listings:
            names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
            self._listings[folder] = {unicodedata.normalize("NFC", name): name for name in names}
        return self._listings[folder]


def _is_image(name: str) -> bool:
    return name.lower().endswith(IMAGE_SUFFIXES) and not name.startswith(".")


def _caption_file(data_dir: Path, name: str | None) -> Path:
    files = sorted(e for e in data_dir.iterdir() if e.is_file() and not e.name.startswith("."))
    found = [file.name for file in files if file.suffix.lower() in SUFFIXES]
    kinds, there = ", ".join(f"*{suffix}" for suffix in SUFFIXES), ", ".join(found) or "none"
    if name is not None:
        if not (data_dir / name).is_file():
            expected = f"a file ({kinds}) in {data_dir}, which has {there}"
            raise invalid_value("--data.captions", expected, repr(name))
        return data_dir / name
    if len(found) != 1:
        advice = " Name the one to use with `--data.captions FILE`."
        raise DataError(
            f"{data_dir}: expected one caption file ({kinds}), found {there}."
            f"{advice if found else advice_without_captions(files)}"
        )
    return data_dir / found[0]


def _gather(path: Path, records: Iterable[Record]) -> dict[str, _Entry]:
    """The entry of every image, in the order of the file."""
    records = tuple(records)
    named = any(record.split for record in records)
    entries: dict[str, _Entry] = {}
    for record in records:
        if named and record.split is None:
            raise DataError(
                f"{path}, {record.place}: {record.image!r} has no split, but other images have "
                "one; give every image its split, or none."
            )
        name = _inside(path, record)
        entry = entries.setdefault(name, _Entry(record.split))
        if entry.split != record.split:
            raise DataError(
                f"{path}, {record.place}: {record.image!r} is in the {record.split} split here "
                f"and in {entry.split} before."
            )
        entry.captions += record.captions
        entry.blank += record.blank
    return entries


def _inside(path: Path, record: Record) -> str:
    """The image's name in NFC with forward slashes, which must not leave the folder."""
    name = canonical_name(record.image)
    # On Windows a drive makes a path absolute.
    anchored = PureWindowsPath(name).anchor or PureWindowsPath(name).drive
    if anchored or name in (".", "..") or name.startswith("../"):
        raise DataError(
            f"{path}, {record.place}: expected the path of an image relative to its folder and "
            f"inside it, got {record.image!r}."
        )
    return name


def _sizes(entries: dict[str, _Entry]) -> str:
    splits = [entry.split or hashed_split(name) for name, entry in entries.items()]
    counted = [f"{name} {splits.count(name)}" for name in dict.fromkeys(splits)]
    return f"of its {len(entries)} images it has {', '.join(counted)}"
