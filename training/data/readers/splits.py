"""Splits of a folder's images: given by records, lists or folders, or by a hash.

The hash gives each name, or that of its group, a place in [0, 1).
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from sat_tf.util.commands import counted
from training.data.examples import SPLITS, DataError
from training.data.readers.images import Image
from training.data.readers.records import SPLIT_WORDS, CaptionFile, lines

EXACT_BELOW = 1000
"""Images of a folder from which on the hash alone decides, so that adding images moves none."""
TENTHS = (0.1, 0.2)
"""Places below which names are in dev and in test, in a folder that is not small."""

_TURNS = ("dev", "test", "train")
_SHARES = np.array([0.1, 0.1, 0.8])
_CLOSE = 0.03  # of the images: by which dev and test may miss a tenth if no group is larger
_LISTS = (".txt", ".lst")
_LARGEST = 2**26  # bytes of a list
_BY_NAMES = "`--data.held-out 0.1,0.2` divides by names"

Divided = tuple[tuple[float, ...] | None, tuple[Path, ...], list[str]]
"""Places of the hash (None if splits are given), the lists that were read, and notes."""


def divide(
    images: dict[str, Image], data_dir: Path, files: Sequence[CaptionFile], held_out: str | None
) -> Divided:
    """Gives each image its split: that of its records, of lists, of its folder, or of a hash.

    Raises:
        DataError: Some images have no split but others do, or a group or an image has two.
    """
    lists, notes = (), []
    given = any(image.split for image in images.values())
    if not given and held_out is None:
        folders = dict.fromkeys((data_dir, *(file.path.parent for file in files)))
        splits, lists, notes = listed_splits(folders, images, [file.path for file in files])
        if not splits and (splits := _splits_of_folders(images.values())):
            notes.append("The splits are those of the images' folders.")
        for image in images.values() if splits else ():
            image.split = splits.get(image.name)
        if splits and (rest := sum(image.split is None for image in images.values())):
            notes.append(f"{counted(rest, 'image')} in none of the lists, left out.")
    elif lost := given and next((one for one in images.values() if one.split is None), None):
        raise DataError(
            f"{lost.name!r} ({lost.place}) has no split, but other images have one; give every "
            f"image its split, or none: {_BY_NAMES}."
        )
    if any(image.split for image in images.values()):
        _check_groups(images.values())
        return None, lists, notes
    if unclear := next((file for file in files if file.unclear and held_out is None), None):
        raise DataError(f"{unclear.path}: {unclear.unclear}; else {_BY_NAMES}.")
    usable = [image for image in images.values() if not image.lacks] or images.values()
    sizes = Counter(image.group or image.name for image in usable)
    places = tuple(map(float, held_out.split(","))) if held_out else choose_places(sizes)
    for image in images.values():
        image.split = hashed_split(image.group or image.name, places)
    if groups := {image.group for image in images.values()} - {None}:
        kept = f"{counted(len(groups), 'group')} kept together"
        notes.append(f"{kept}: of {len(images)} images, {sizes_of(images.values())}.")
    return places, lists, notes


def sizes_of(images: Iterable[Image]) -> str:
    """Returns the number of images in each split, as words."""
    splits = Counter(image.split for image in images)
    return ", ".join(f"{name} {splits[name]}" for name in SPLITS if splits[name])


def _check_groups(images: Iterable[Image]) -> None:
    first: dict[str, Image] = {}
    for image in images:
        other = first.setdefault(image.group, image) if image.group and image.split else image
        if other.split != image.split:
            raise DataError(
                f"The group {image.group!r} is in two splits, {other.split} ({other.name}) and "
                f"{image.split} ({image.name}); give a group one split."
            )


def split_in_path(parts: Sequence[str]) -> str | None:
    """Returns the split that the last part of a path with such a word means, as val2017 does."""
    for text in reversed(parts):
        words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+", text)
        found = {SPLIT_WORDS.get(word.lower().removesuffix("set")) for word in words} - {None}
        if found:
            return found.pop() if len(found) == 1 else None
    return None


def _splits_of_folders(images: Iterable[Image]) -> dict[str, str | None]:
    """Returns name -> split, if the folders of the files name one for each; else nothing.

    Raises:
        DataError: They name splits for some of the files, or for none of train or dev.
    """
    files = {image.name: image.file for image in images if image.image is not None}
    splits = {name: split_in_path(file.split("/")[:-1]) for name, file in files.items()}
    found = {*splits.values()}
    if len(found - {None}) < 2:
        return {}
    if lacking := [*{"train", "dev"} - found, *({None} & found)]:
        shown = ", ".join(
            next(file for n, file in files.items() if splits[n] == of) for of in found
        )
        lacks = "some to none" if lacking[0] is None else f"none to {lacking[0]}"
        raise DataError(
            f"The folders of the images name splits ({shown}), but {lacks}. Give each image its "
            f"split in a column split; or {_BY_NAMES}, all of them."
        )
    return splits


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
    notes = [f"The splits are those of {listed}; {_BY_NAMES}."]
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
    """Returns the place of a name in [0, 1), from its SHA-256."""
    digest = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
    return ((digest - 8) % 10 + digest / 2**64) / 10


def hashed_split(name: str, places: Sequence[float] = TENTHS) -> str:
    """Chooses a split from the place of a name.

    Dev is below the first of `places`, test below the second, train below the third, then dev
    again, and so on; places after the last have the next split in turn.
    """
    return _TURNS[bisect_right(places, place_of(name)) % len(_TURNS)]


def choose_places(sizes: Mapping[str, int]) -> tuple[float, ...]:
    """Chooses the places at which names change from dev to test to train, and on in turn.

    A small folder is split 80/10/10 to the image, any other by `TENTHS`. Groups that keep that from
    being near are divided, the largest first, each to the split that lacks most images: train, then
    dev, and then test have at least one.

    Args:
        sizes: Name of each group, or of an image without one -> number of its images.
    """
    order = sorted(sizes, key=place_of)
    counts = np.array([sizes[name] for name in order])
    if len(order) < 2:
        return 0.0, 0.0
    if counts.sum() >= EXACT_BELOW:
        turns = np.array([_TURNS.index(hashed_split(name)) for name in order])
        missed = np.abs(np.bincount(turns, counts, 3) / counts.sum() - _SHARES)[:2]
        if counts.max() == 1 or max(*missed, counts.max() / counts.sum()) <= _CLOSE:
            return TENTHS
    return _places(order, _turns(counts))


def _turns(counts: np.ndarray) -> np.ndarray:
    """Chooses the split of each group, as an index into `_TURNS`."""
    if counts.max() == 1:
        dev = max(1, round(len(counts) / 10))
        test = dev if len(counts) > 2 else 0
        return np.repeat([0, 1, 2], [dev, test, len(counts) - dev - test])
    turns, missing = np.full(len(counts), 2), counts.sum() * _SHARES
    empty = [2, 0, 1]  # of the splits, in the order in which they need a group
    for done, group in enumerate(np.argsort(-counts, kind="stable")):
        turn = empty[0] if len(counts) - done <= len(empty) else int(np.argmax(missing))
        turns[group] = turn
        missing[turn] -= counts[group]
        empty = [one for one in empty if one != turn]
    return turns


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
