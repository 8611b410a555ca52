"""Splits that the names of files and folders give, and lists of images beside the captions."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from training.data.examples import DataError
from training.data.sources.caption_files.records import known_split
from training.data.sources.text_files import lines

_TEXTS = (".txt", ".lst", ".csv")
_FEW, _SMALL = 20, 2**22  # lists in a folder, and bytes of one in JSON


def split_in(parts: Sequence[str]) -> str | None:
    """The split that the last part of a path with such a word means."""
    for text in reversed(parts):
        # trainImages, train2017, train-00000, trainset
        words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+", text)
        if splits := {known_split(word.lower().removesuffix("set")) for word in words} - {None}:
            return splits.pop() if len(splits) == 1 else None
    return None


def split_of(file: Path, data_dir: Path) -> str | None:
    """The split that the words of a file's name give, else those of its folder's."""
    inside = file.relative_to(data_dir) if file.is_relative_to(data_dir) else Path(file.name)
    return split_in(inside.parts)


def listed_splits(
    folders: Iterable[Path], names: Collection[str], read: Collection[Path]
) -> tuple[dict[str, str], dict[Path, int], dict[Path, str]]:
    """Reads the lists of the images of each split.

    Such as Flickr_8k.trainImages.txt or splits/train.csv, with a name first on each line, with or
    without its folder and suffix; or splits.json, {"train": [NAME, ...], ...}.

    Args:
        folders: Where lists may lie.
        names: The images.
        read: Files with captions, which are no lists.

    Returns:
        The splits of names, none if the lists are of one split alone; the lists, each with its
        number of entries that name no image; and why others are not used.

    Raises:
        DataError: An image is in the lists of two splits.
    """
    known: dict[str, str] = {}
    splits: dict[str, str] = {}
    files: dict[str, Path] = {}
    unknown: dict[Path, int] = {}
    reasons: dict[Path, str] = {}
    for file in (file for folder in folders for file in _candidates(folder) if file not in read):
        known = known or _ends(names)
        for split, entries in _parts(file):
            if not entries:
                continue
            if split in files:
                reasons.setdefault(file, f"{files[split].name} is the list of {split}")
                continue
            found = [name for entry in entries if (name := _named(str(entry), known))]
            numbers = all(str(entry).isdecimal() for entry in entries)
            labels = numbers and len(set(entries)) < len(entries)
            if labels or len(found) < len(entries) / 2:
                few = "most of their lines name no image" if found and not labels else ""
                reasons.setdefault(file, few or "their lines name no images")
                continue
            files[split] = file
            unknown[file] = unknown.get(file, 0) + len(entries) - len(found)
            for name in found:
                if splits.setdefault(name, split) != split:
                    raise DataError(
                        f"{name!r} is in the lists of two splits, {splits[name]} and {split} "
                        f"({files[splits[name]]}, {file}); take it out of one."
                    )
    if len(files) > 1:
        return splits, unknown, reasons
    return {}, {}, reasons | dict.fromkeys(unknown, "they list images of one split alone")


def _candidates(folder: Path) -> list[Path]:
    """Files that may be lists: texts named like a split, and small ones in JSON."""
    with os.scandir(folder) as entries:
        named = [e.name for e in entries if e.name.lower().endswith((*_TEXTS, ".json"))]
    texts = [name for name in named if name.lower().endswith(_TEXTS) and split_in([name])]
    written = [name for name in named if name.lower().endswith(".json")]
    several = (sorted(files) for files in (texts, written) if len(files) <= _FEW)
    return [folder / name for files in several for name in files if not name.startswith(".")]


def _parts(file: Path) -> Iterator[tuple[str, list[Any]]]:
    """The splits in a file, with their entries as they stand."""
    try:
        if file.suffix.lower() != ".json":
            yield split_in([file.name]), _names_in(file)
        elif file.stat().st_size < _SMALL:
            content = json.loads(file.read_bytes())
            by_key = content if isinstance(content, dict) else {file.stem: content}
            for key, entries in by_key.items():
                split = split_in([key]) if isinstance(entries, list) else None
                if split and isinstance((*entries, None)[0], (str, int)):
                    yield split, entries
    except (ValueError, OSError):  # no JSON, or not to be read
        return


def _names_in(file: Path) -> list[str]:
    """The lines of a list; one that is not UTF-8 is read as Latin-1."""
    try:
        return [line.strip() for _, line in lines(file)]
    except DataError:
        return [line for line in file.read_text("latin-1").splitlines() if line.strip()]


def _ends(names: Iterable[str]) -> dict[str, str]:
    """Names, their ends after each slash, and these without suffix; those of two names, blank."""
    found: dict[str, str] = {}
    for name in names:
        parts = name.split("/")
        for end in ("/".join(parts[start:]) for start in range(len(parts))):
            for form in {end, os.path.splitext(end)[0]}:
                found[form] = name if found.get(form, name) == name else ""
    return found | dict(zip(names, names, strict=True))


def _named(entry: str, known: dict[str, str]) -> str | None:
    """The image that an entry of a list names, alone or before something else."""
    for text in (entry, re.split(r"[\t,;|]", entry)[0], entry.partition(" ")[0]):
        parts = text.strip(' "').replace("\\", "/").split("/")
        for start in range(len(parts)):
            if name := known.get("/".join(parts[start:])):
                return name
    return None
