"""Splits by the names of images, or of their groups: a hash gives each a place in [0, 1)."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np

EXACT_BELOW = 1000
"""Images of a folder from which on the hash alone decides, so that adding images moves none."""
TENTHS = (0.1, 0.2)
"""Places below which names are in dev and in test, in a folder that is not small."""

_TURNS = ("dev", "test", "train")
_SHARES = np.array([0.1, 0.1, 0.8])
_CLOSE = 0.03  # of the images: by which dev and test may miss a tenth if no group is larger
_ENUMERATED = 9  # groups: 3^9 ways


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
