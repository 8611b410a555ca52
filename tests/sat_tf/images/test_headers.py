"""Headers are checked before anything is decoded: ordinary files, lowered limits."""

import contextlib
import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from sat_tf.images import headers
from sat_tf.images.pillow import check_scans
from tests.image_files import encode, gif_of_blocks, noise

CHECKS = {
    "JPEG": headers.check_jpeg,
    "PNG": headers.check_png,
    "GIF": headers.check_gif,
    "BMP": headers.check_bmp,
    "WEBP": headers.check_webp,
}
FILES = [("JPEG", {}), ("JPEG", {"progressive": True}), ("PNG", {}), ("GIF", {}), ("BMP", {})]
FILES += [("WEBP", {}), ("WEBP", {"lossless": True}), ("WEBP", {"exif": b"Exif\0\0abcd"})]
MANY_MARKERS = b"\xff\xda" * 5000  # in a comment, or behind the end: no scan


def problem(kind: str, content: bytes) -> str:
    return CHECKS[kind](tf.constant(content))[1].numpy().decode()


@pytest.mark.parametrize(("kind", "options"), FILES)
def test_format_and_size_are_those_of_the_file(kind, options, monkeypatch):
    content = encode(noise(37, 53), kind, **options)
    assert headers.FORMATS[int(headers.read_format(content))].upper() == kind
    monkeypatch.setattr(headers, "MAX_SIDE", 53)
    monkeypatch.setattr(headers, "MAX_PIXELS", 37 * 53)
    assert problem(kind, content) == ""
    monkeypatch.setattr(headers, "MAX_PIXELS", 37 * 53 - 1)
    assert problem(kind, content).startswith("the image has no pixels, or more than 32768")
    monkeypatch.setattr(headers, "MAX_PIXELS", 37 * 53)
    monkeypatch.setattr(headers, "MAX_SIDE", 52)
    assert problem(kind, content).startswith("the image has no pixels, or more than 32768")


@pytest.mark.parametrize(
    ("size", "fits"),
    [
        ([8192, 8192], True),
        ([8192, 8193], False),
        ([headers.MAX_SIDE, 1], True),
        ([1, headers.MAX_SIDE + 1], False),
        ([0, 5], False),
        ([2**32 - 1, 2**32 - 1], False),
    ],
)
def test_a_size_fits_within_the_limits_of_sides_and_pixels(size, fits):
    assert bool(headers.size_fits(tf.constant(size, tf.int64))) is fits


@pytest.mark.parametrize(("flags", "marked"), [(0x02, 0x12), (0x12, 0x12), (0x10, 0x10), (0, 0)])
def test_a_webp_animation_is_marked_as_having_alpha_and_nothing_else_changes(flags, marked):
    header = b"RIFF\x16\0\0\0WEBPVP8X\x0a\0\0\0" + bytes([flags, 0, 0, 0]) + b"\x0f\0\0\x0f\0\0"
    content, reason = headers.check_webp(tf.constant(header))
    assert content.numpy() == header[:20] + bytes([marked]) + header[21:] and reason == ""
    for length in (12, 16, 20):  # too short for the flags
        assert headers.check_webp(tf.constant(header[:length]))[0].numpy() == header[:length]


@pytest.mark.parametrize(
    ("content", "scans"),
    [
        (encode(noise(), "JPEG"), 1),
        (encode(noise(), "JPEG", progressive=True), 10),
        (encode(noise(), "JPEG", comment=MANY_MARKERS), 1),
        (encode(noise(), "JPEG", progressive=True, comment=MANY_MARKERS) + MANY_MARKERS, 10),
    ],
)
def test_scans_are_counted_as_the_decoder_meets_them(content, scans, monkeypatch):
    assert int(headers.count_scans(tf.constant(content))) == scans
    assert problem("JPEG", content) == ""
    monkeypatch.setattr(headers, "MAX_SCANNED_PIXELS", scans * 37 * 53 - 1)
    assert problem("JPEG", content).endswith("scans, or too many for its size")
    monkeypatch.setattr(headers, "MAX_SCANNED_PIXELS", scans * 37 * 53)
    monkeypatch.setattr(headers, "MAX_SCANS", scans - 1)
    assert problem("JPEG", content).endswith("scans, or too many for its size")


def test_a_jpeg_of_too_many_segments_to_follow_is_refused():
    comments = b"\xff\xfe\x00\x02" * 1100
    content = b"\xff\xd8" + comments + encode(noise(), "JPEG", comment=MANY_MARKERS)[2:]
    assert int(headers.count_scans(tf.constant(content))) > headers.MAX_SCANS
    with pytest.raises(ValueError, match="scans"):
        check_scans(content)


def segments(rng: np.random.Generator, side: int) -> bytes:
    """Markers and lengths of a JPEG, no image: comments and the rest hold markers of no scan."""

    def segment(marker: bytes, content: bytes) -> bytes:
        return marker + (len(content) + 2).to_bytes(2, "big") + content

    frame = segment(b"\xff\xc2", b"\x08" + side.to_bytes(2, "big") * 2 + b"\x01")
    scan = segment(b"\xff\xda", b"\x01\x01\x00\x00\x3f\x00") + b"\x12\xff\x00\xff\xd0\x34"
    kinds = [frame, scan, segment(b"\xff\xfe", b"\xff\xda" * 3)]
    middle = b"".join(kinds[i] for i in rng.choice(3, rng.integers(1, 200), p=[0.02, 0.9, 0.08]))
    return b"\xff\xd8" + frame + middle + b"\xff\xd9" + b"\xff\xda" * int(rng.integers(0, 100))


@pytest.mark.parametrize("side", [100, 6000])
def test_pillow_and_the_graph_refuse_the_same_scans(side):
    rng, refused = np.random.default_rng(side), []
    for _ in range(12):
        content = segments(rng, side)
        scans = int(headers.count_scans(tf.constant(content)))
        many = scans > headers.MAX_SCANS or scans * side * side > headers.MAX_SCANNED_PIXELS
        refused.append(many)
        with pytest.raises(ValueError, match="scans") if many else contextlib.nullcontext():
            check_scans(content)
    assert any(refused) and not all(refused)


def test_a_gif_is_cut_after_its_first_frame():
    frames = [Image.new("RGB", (40, 30), colour) for colour in ("red", "blue", "green")]
    content = encode(
        frames[0], "GIF", save_all=True, append_images=frames[1:], comment=b"two " * 200
    )
    frame, size = headers.first_frame(tf.constant(content))
    kept = Image.open(io.BytesIO(frame.numpy()))
    assert kept.n_frames == 1 and kept.size == (40, 30)
    np.testing.assert_array_equal(size, [30, 40])
    first = Image.open(io.BytesIO(content)).convert("RGB")
    np.testing.assert_array_equal(np.asarray(kept.convert("RGB")), np.asarray(first))


@pytest.mark.parametrize("lengths", [(255,), (1,), (254, 3), (7,) * 500 + (90,)])
def test_blocks_of_any_length_are_followed_to_the_end(lengths):
    content = gif_of_blocks(noise(90, 90), lengths)
    frame, _ = headers.first_frame(tf.constant(content))
    assert frame.numpy() == content


def test_a_gif_of_too_many_runs_of_blocks_is_refused(monkeypatch):
    content = gif_of_blocks(noise(), (100, 7))
    assert problem("GIF", content) == ""
    monkeypatch.setattr(headers, "MAX_RUNS", 10)
    assert problem("GIF", content).endswith("or one of too many blocks")
