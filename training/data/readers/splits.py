"""Splits of a folder's images: those that files and folders name, lists, or the hash of a name.

The hash gives each name, or that of its group, a place in [0, 1).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from training.data.examples import DataError
from training.data.readers.caption_files.records import known_split
from training.data.readers.text_files import lines

EXACT_BELOW = 1000
"""Images of a folder from which on the hash alone decides, so that adding images moves none."""
TENTHS = (0.1, 0.2)
"""Places below which names are in dev and in test, in a folder that is not small."""

_TURNS = ("dev", "test", "train")
_SHARES = np.array([0.1, 0.1, 0.8])
_CLOSE = 0.03  # of the images: by which dev and test may miss a tenth if no group is larger
_ENUMERATED = 9  # groups: 3^9 ways
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


def place_of(name: str) -> float:
    """Returns the place of a name in [0, 1), by its SHA-256."""
    digest = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
    return ((digest - 8) % 10 + digest / 2**64) / 10


def hashed_split(name: str, places: Sequence[float] = TENTHS) -> str:
    """Chooses a split by the place of a name.

    Dev is below the first of `places`, test below the second, train below the third, then dev
    again, and so on; what is after the last has the next split in turn.
    """
    return _TURNS[bisect_right(places, place_of(name)) % len(_TURNS)]


def choose_places(sizes: Mapping[str, int]) -> tuple[float, ...]:
    """Chooses the places at which names change from dev to test to train, and on in turn.

    A small folder is split 80/10/10 to the image, any other by `TENTHS`. Where large groups keep
    that from being near, images are divided as nearly as groups allow, whatever their hashes:
    train, then dev, and then test have at least one group.

    Args:
        sizes: Name of each group, or of an image without one -> number of its images.
    """
    order = sorted(sizes, key=place_of)
    counts = np.array([sizes[name] for name in order])
    if len(order) < 2:
        return 0.0, 0.0
    ungrouped = counts.max() == 1
    if counts.sum() >= EXACT_BELOW:
        turns = np.array([_TURNS.index(hashed_split(name)) for name in order])
        if ungrouped or _is_close(turns, counts):
            return TENTHS
    else:
        turns = _first_tenths(counts)
    if not ungrouped and not _is_close(turns, counts):
        turns = min(turns, _divided(counts), key=lambda one: _misfit(_totals(one, counts)))
    return _places(order, turns)


def _first_tenths(counts: np.ndarray) -> np.ndarray:
    """Gives dev, and then test, a tenth of the images from the start of the order, or a group."""
    turns, end = np.full(len(counts), 2), 0
    for turn, left in enumerate((2, 1)):  # groups that the following splits need
        count = 0
        while end < max(len(counts) - left, left - 1) and (
            not count or count + counts[end] / 2 <= round(counts.sum() / 10)
        ):
            turns[end], count, end = turn, count + counts[end], end + 1
    return turns


def _divided(counts: np.ndarray) -> np.ndarray:
    """Gives groups, the largest first, to the split that lacks most images.

    Of the last ones, all ways are compared.
    """
    turns, missing = np.full(len(counts), 2), counts.sum() * _SHARES
    by_size = np.argsort(-counts, kind="stable")
    last = by_size[-_ENUMERATED:]
    for group in by_size[: -len(last)]:
        turns[group] = np.argmax(missing)
        missing[turns[group]] -= counts[group]
    fixed = counts.sum() * _SHARES - missing
    ways = np.array(list(product(range(len(_TURNS)), repeat=len(last))))
    totals = [fixed[turn] + (ways == turn) @ counts[last] for turn in range(len(_TURNS))]
    turns[last] = ways[np.argmin(_misfit(np.stack(totals, axis=-1)))]
    return turns


def _totals(turns: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Number of images of each split, `[3]`."""
    return np.bincount(turns, counts, len(_TURNS))


def _misfit(totals: np.ndarray) -> np.ndarray:
    """Images in the wrong split, `[...]`, of the sizes `[..., 3]`; empty splits count more."""
    images = totals.sum(axis=-1, keepdims=True)
    empty = (totals == 0) @ np.array([2, 1, 4])
    return np.abs(totals - images * _SHARES).sum(axis=-1) + 2 * images[..., 0] * empty


def _is_close(turns: np.ndarray, counts: np.ndarray) -> bool:
    """Returns whether groups are small, and dev and test near a tenth."""
    shares = _totals(turns, counts) / counts.sum()
    furthest = np.abs(shares - _SHARES)[:2].max()
    return bool(shares.all() and max(furthest, counts.max() / counts.sum()) <= _CLOSE)


def _places(order: Sequence[str], turns: np.ndarray) -> tuple[float, ...]:
    """Returns the places between the names of two splits."""
    places, before, now = [], -1.0, 0
    for name, turn in zip(order, turns.tolist(), strict=True):
        places += [_between(before, place_of(name))] * ((turn - now) % len(_TURNS))
        before, now = place_of(name), turn
    return tuple(places)


def _between(low: float, high: float) -> float:
    """Returns a short number above `low`, and not above `high`; 0 for a negative `low`."""
    middle = 0.0 if low < 0 else (low + high) / 2
    rounded = (round(middle, digits) for digits in range(1, 18))
    return next((place for place in rounded if low < place <= high), high)
