"""Scans of a JPEG are counted as the decoder meets them; too many are refused."""

from __future__ import annotations

import pytest
import tensorflow as tf
from PIL import Image

from benchmarks.image_corpus import encode, jpeg_of_scans, noise
from sat_tf import images
from sat_tf.images import jpeg
from sat_tf.images.limits import MAX_SCANS
from sat_tf.images.scans import check_scans

count_scans = tf.function(jpeg.scans, autograph=False)
STRAY = b"\xff\xda" * 5000  # in a comment, or behind the end: no scan


@pytest.mark.parametrize(
    ("content", "scans"),
    [
        (encode(noise(), "JPEG"), 1),
        (encode(noise(), "JPEG", progressive=True), 10),
        (jpeg_of_scans(noise(), 30), 40),
        (jpeg_of_scans(noise(), 30) + STRAY, 40),
        (encode(noise(), "JPEG", comment=STRAY), 1),
        (encode(noise(), "JPEG", progressive=True, comment=STRAY) + STRAY, 10),
    ],
)
def test_scans_are_counted(content, scans):
    assert int(count_scans(tf.constant(content))) == scans
    check_scans(content)
    assert images.decode(content).shape == (37, 53, 3)


@pytest.mark.parametrize(
    "content",
    [
        jpeg_of_scans(noise(), 100),
        jpeg_of_scans(Image.new("RGB", (1000, 1000)), 100),
        # As many scans fit a smaller image.
        jpeg_of_scans(Image.new("RGB", (6000, 6000)), 30),
    ],
)
def test_a_jpeg_of_too_many_scans_is_refused(content):
    with pytest.raises(tf.errors.InvalidArgumentError, match="scans, or too many for its size"):
        images.decode(content)
    with pytest.raises(ValueError, match="scans, or too many for its size"):
        check_scans(content)


def test_a_jpeg_of_too_many_segments_to_follow_is_refused():
    content = b"\xff\xd8" + b"\xff\xfe\x00\x02" * 2000 + encode(noise(), "JPEG", comment=STRAY)[2:]
    assert int(count_scans(tf.constant(content))) > MAX_SCANS
    with pytest.raises(ValueError, match="scans"):
        check_scans(content)
