"""Splits of a folder's images: those that names of files and folders tell, lists, or a hash.

The hash gives each name, or that of its group, a place in [0, 1).
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path

import numpy as np

from sat_tf.util.commands import counted
from training.data.examples import SPLIT_ALIASES, SPLITS, DataError
from training.data.readers.records import lines

EXACT_BELOW = 1000
"""Images of a folder from which on the hash alone decides, so that adding images moves none."""
TENTHS = (0.1, 0.2)
"""Places below which names are in dev and in test, in a folder that is not small."""

_WORDS = {split: split for split in SPLITS} | SPLIT_ALIASES
_WORDS |= {"training": "train", "restval": "train"}
_TURNS = ("dev", "test", "train")
_SHARES = np.array([0.1, 0.1, 0.8])
_CLOSE = 0.03  # of the images: by which dev and test may miss a tenth if no group is larger
_ENUMERATED = 9  # groups: 3^9 ways
_LISTS = (".txt", ".lst")
_LARGEST = 2**26  # bytes of a list


def split_in_path(parts: Sequence[str], whole: bool = False) -> str | None:
    """Returns the split that the last part of a path with such a word means.

    Args:
        parts: The folders and the file.
        whole: Parts are the word alone; else they may contain it, as trainImages or val2017.
    """
    for text in reversed(parts):
        words = [text] if whole else re.findall(r"[A-Z]?[a-z]+|[A-Z]+", text)
        found = {_WORDS.get(word.lower().removesuffix("set")) for word in words} - {None}
        if found:
            return found.pop() if len(found) == 1 else None
    return None


def listed_splits(
    folders: Iterable[Path], names: Collection[str], read: Collection[Path]
) -> tuple[dict[str, str], tuple[Path, ...], list[str]]:
    """Reads lists of the images of each split, such as Flickr_8k.trainImages.txt.

    Each line begins with the name of an image, with or without folder and suffix. `read` are the
    caption files, which are no lists. Returns image -> split (empty without lists of train and of
    another split), the lists, and notes.

    Raises:
        DataError: An image is in the lists of two splits.
    """
    found: dict[str, list[tuple[Path, list[str]]]] = defaultdict(list)
    for file in (file for folder in folders for file in sorted(folder.iterdir())):
        split = split_in_path([file.name]) if file.suffix.lower() in _LISTS else None
        if split and file.is_file() and file not in read and file.stat().st_size < _LARGEST:
            found[split].append((file, [line.split()[0] for _, line in lines(file)]))
    if "train" not in found or len(found) < 2:
        return {}, (), []
    files = [file for of in found.values() for file, _ in of]
    listed = ", ".join(file.name for file in files)
    entries = [entry for of in found.values() for _, several in of for entry in several]
    known = _ends(names)
    unknown = sum(not known.get(entry) for entry in entries)
    count, numbers = len(entries), sorted(int(one) for one in entries if one.isdecimal())
    positions = bool(entries) and numbers in ([*range(count)], [*range(1, count + 1)])
    if positions or any(len(of) > 1 for of in found.values()) or 2 * unknown > len(entries):
        why = "may be positions, not names" if positions else "do not name the images"
        return {}, (), [f"The lists {listed} are not used, as their lines {why}."]
    splits: dict[str, str] = {}
    for split, ((file, several),) in found.items():
        for name in filter(None, map(known.get, several)):
            if splits.setdefault(name, split) != split:
                two = f"the lists of two splits, {splits[name]} and {split} ({file})"
                raise DataError(f"{name!r} is in {two}; take it out of one.")
    notes = [f"The splits are those of {listed}; `--data.held-out 0.1,0.2` divides by names."]
    if unknown:
        notes.append(f"Of the lists, {counted(unknown, 'line')} without an image with captions.")
    return splits, tuple(files), notes


def _ends(names: Collection[str]) -> dict[str, str]:
    """Names, their last parts, and these without suffix -> names; those of two names, blank."""
    found: dict[str, str] = {}
    for name in names:
        last = posixpath.basename(name)
        for form in {name, last, posixpath.splitext(last)[0], posixpath.splitext(name)[0]}:
            found[form] = name if found.get(form, name) == name else ""
    return found | dict(zip(names, names, strict=True))


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
        turns = min(turns, _divided(counts), key=lambda one: _misfit(np.bincount(one, counts, 3)))
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


def _misfit(totals: np.ndarray) -> np.ndarray:
    """Images in the wrong split, `[...]`, of the sizes `[..., 3]`; empty splits count more."""
    images = totals.sum(axis=-1, keepdims=True)
    empty = (totals == 0) @ np.array([2, 1, 4])
    return np.abs(totals - images * _SHARES).sum(axis=-1) + 2 * images[..., 0] * empty


def _is_close(turns: np.ndarray, counts: np.ndarray) -> bool:
    """Returns whether groups are small, and dev and test near a tenth."""
    shares = np.bincount(turns, counts, 3) / counts.sum()
    furthest = np.abs(shares - _SHARES)[:2].max()
    return bool(shares.all() and max(furthest, counts.max() / counts.sum()) <= _CLOSE)


def _places(order: Sequence[str], turns: np.ndarray) -> tuple[float, ...]:
    """Returns the places between the names of two splits."""
    places, before, now = [], -1.0, 0
    for name, turn in zip(order, turns.tolist(), strict=True):
        place = place_of(name)
        middle = 0.0 if before < 0 else (before + place) / 2
        rounded = (round(middle, digits) for digits in range(1, 18))  # a short number between
        border = next((one for one in rounded if before < one <= place), place)
        places += [border] * ((turn - now) % len(_TURNS))
        before, now = place, turn
    return tuple(places)
