"""Splits by the names of images, or of their groups: a hash gives each a place in [0, 1)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from sat_tf.errors import invalid_value

EXACT_BELOW = 1000
"""Images of a folder from which on the hash alone decides, so that adding images moves none."""
TENTHS = (0.1, 0.2)
"""Places below which names are in dev and in test, in a folder that is not small."""


def place_of(name: str) -> float:
    """Returns the place of a name in [0, 1), by its SHA-256."""
    digest = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
    return ((digest - 8) % 10 + digest / 2**64) / 10


def hashed_split(name: str, places: tuple[float, float] = TENTHS) -> str:
    """Chooses a split by the place of a name: dev below the first, test below the second."""
    place = place_of(name)
    return "dev" if place < places[0] else "test" if place < places[1] else "train"


def parse_places(text: str | None) -> tuple[float, float] | None:
    """Parses `0.1,0.2`.

    Raises:
        ValueError: It has another form.
    """
    if text is None:
        return None
    try:
        dev, test = map(float, text.split(","))
    except ValueError:
        dev, test = 1.0, 0.0
    if not 0 <= dev <= test < 1:
        expected = "two places in [0, 1), in order, such as 0.1,0.2"
        raise invalid_value("--data.held_out", expected, repr(text), "key")
    return dev, test


def choose_places(sizes: Mapping[str, int]) -> tuple[float, float]:
    """Chooses the places below which names are in dev and in test.

    A small folder is split 80/10/10 to the image, or as nearly as its groups allow; dev, and then
    test, has at least one group.

    Args:
        sizes: Name of each group, or of an image without one -> number of its images.
    """
    total, order = sum(sizes.values()), sorted(sizes, key=place_of)
    if total >= EXACT_BELOW or len(order) < 2:
        return TENTHS if total >= EXACT_BELOW else (0.0, 0.0)
    end, ends = 0, []
    for left in (2, 1):  # groups that the following splits need
        count = 0
        while end < max(len(order) - left, left - 1) and (
            not count or count + sizes[order[end]] / 2 <= round(total / 10)
        ):
            count, end = count + sizes[order[end]], end + 1
        ends.append(round((place_of(order[end - 1]) + place_of(order[end])) / 2, 12))
    return ends[0], ends[1]
