"""Scans counted in plain Python, as the graph counts them."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
import tensorflow as tf

from sat_tf.images import jpeg
from sat_tf.images.limits import MAX_SCANNED_PIXELS, MAX_SCANS
from sat_tf.images.scans import check_scans

count_scans = tf.function(jpeg.scans, autograph=False)
FRAME, SCAN, RESTART, COMMENT, END = b"\xff\xc2", b"\xff\xda", b"\xff\xd0", b"\xff\xfe", b"\xff\xd9"


def segment(marker: bytes, content: bytes) -> bytes:
    return marker + (len(content) + 2).to_bytes(2, "big") + content


def random_jpeg(rng: np.random.Generator, side: int) -> bytes:
    """Segments in any order; comments and what follows the end hold markers that are none."""
    size = side.to_bytes(2, "big") * 2
    kinds = [
        segment(FRAME, b"\x08" + size + b"\x01"),
        segment(SCAN, b"\x01\x01\x00\x00\x3f\x00") + b"\x12\xff\x00" + RESTART + b"\x34",
        segment(COMMENT, SCAN * 3),
    ]
    middle = b"".join(kinds[i] for i in rng.choice(3, rng.integers(1, 200), p=[0.02, 0.9, 0.08]))
    return b"\xff\xd8" + kinds[0] + middle + END + SCAN * int(rng.integers(0, 100))


@pytest.mark.parametrize("side", [100, 6000])
def test_what_the_graph_refuses_is_refused_and_nothing_else(side):
    rng, refused = np.random.default_rng(side), []
    for _ in range(30):
        content = random_jpeg(rng, side)
        scans = int(count_scans(tf.constant(content)))
        refused.append(scans > MAX_SCANS or scans * side * side > MAX_SCANNED_PIXELS)
        with pytest.raises(ValueError, match="scans") if refused[-1] else nullcontext():
            check_scans(content)
    assert any(refused) and not all(refused)
