"""Scans of a JPEG, counted before Pillow decodes it. Imports no TensorFlow.

`sat_tf.images.jpeg` counts them in the graph and says why they are limited.
"""

from __future__ import annotations

import re

from sat_tf.images.limits import (
    FEW_SCANS,
    MANY_SCANS,
    MAX_SCANNED_PIXELS,
    MAX_SCANS,
    MAX_SEGMENTS,
)

_START, _END, _START_OF_SCAN = 0xD8, 0xD9, 0xDA
_MARKER = re.compile(rb"\xff[\x02-\xcf\xd8-\xfe]")  # those of restarts are part of a scan
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # markers of segments with the size


def check_scans(content: bytes) -> None:
    """Checks that a JPEG has no more scans than `decode` reads; any other content passes.

    Raises:
        ValueError: It has more, or too many segments to follow.
    """
    if not content.startswith(b"\xff\xd8") or content.count(b"\xff\xda") <= FEW_SCANS:
        return
    # Thumbnails and what follows the end may hold the same two bytes: then look closer.
    scans, pixels = _follow(content)
    if scans > MAX_SCANS or scans * pixels > MAX_SCANNED_PIXELS:
        raise ValueError(MANY_SCANS)


def _follow(content: bytes) -> tuple[int, int]:
    """Counts scans and pixels by going from segment to segment, as the decoder does."""
    position = scans = pixels = 0
    for _ in range(MAX_SEGMENTS):
        found = _MARKER.search(content, position)
        if found is None or content[found.start() + 1] == _END or scans > MAX_SCANS:
            return scans, pixels
        code, position = content[found.start() + 1], found.end()
        scans += code == _START_OF_SCAN
        if code in _FRAMES:
            size = content[position + 3 : position + 7]
            height, width = (int.from_bytes(part, "big") for part in (size[:2], size[2:]))
            pixels = max(pixels, height * width)
        if code != _START:
            position += int.from_bytes(content[position : position + 2], "big")
    return MAX_SCANS + 1, pixels
