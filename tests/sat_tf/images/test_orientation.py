"""Photographs are turned as their EXIF asks, however broken what stands beside it."""

from __future__ import annotations

import io
import struct

import numpy as np
import pytest
from PIL import Image, ImageOps
from PIL.PngImagePlugin import PngInfo

from benchmarks.image_corpus import encode, jpeg_of_scans, smooth
from sat_tf import images

WIDTH, ORIENTATION, X_RESOLUTION = 0x0100, 0x0112, 0x011A
ASCII, SHORT, RATIONAL, SIGNED = 2, 3, 5, 9


def photograph(mode: str = "RGB") -> Image.Image:
    return smooth(20, 40).convert(mode)


def exif(orientation: int, *others: tuple[int, int, int, bytes]) -> bytes:
    """An EXIF block of the orientation and further tags: number, type, count and four bytes."""
    tags = [(ORIENTATION, SHORT, 1, struct.pack("<HH", orientation, 0)), *others]
    block = b"".join(struct.pack("<HHI", *tag[:3]) + tag[3] for tag in tags)
    return b"Exif\0\0II*\0" + struct.pack("<IH", 8, len(tags)) + block + bytes(4)


def decoded(content: bytes) -> np.ndarray:
    return images.decode(content).numpy().astype(int)


@pytest.mark.parametrize("orientation", range(2, 9))
def test_every_orientation_is_turned_as_pillow_turns_it(orientation):
    content = encode(photograph(), "PNG", exif=exif(orientation))
    expected = ImageOps.exif_transpose(Image.open(io.BytesIO(content)))
    np.testing.assert_array_equal(decoded(images.upright(content)), np.asarray(expected))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_every_format_with_exif_is_turned_once(kind):
    content = encode(photograph(), kind, exif=exif(6))
    upright = images.upright(content)
    assert images.upright(upright) is upright
    expected = np.rot90(decoded(content), k=-1)
    assert expected.shape == (40, 20, 3)
    assert np.abs(decoded(upright) - expected).mean() < 3


def test_an_orientation_in_xmp_counts_and_is_gone_afterwards():
    xmp = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><r tiff:Orientation="3"/></x:xmpmeta>'
    upright = images.upright(encode(photograph(), "JPEG", xmp=xmp))
    expected = decoded(encode(photograph(), "JPEG"))[::-1, ::-1]
    assert np.abs(decoded(upright) - expected).mean() < 3
    assert images.upright(upright) is upright


@pytest.mark.parametrize("mode", ["L", "LA", "P", "RGBA", "1"])
def test_a_turned_image_has_the_pixels_of_the_one_that_is_not(mode):
    content = encode(photograph(mode), "PNG", exif=exif(3))
    turned = decoded(images.upright(content))
    np.testing.assert_array_equal(turned, decoded(content)[::-1, ::-1])


def test_of_16_bits_the_high_byte_is_kept():
    values = np.linspace(0, 65535, 64).astype(np.uint16).reshape(8, 8)
    content = encode(Image.fromarray(values), "PNG", exif=exif(3))
    turned = decoded(images.upright(content))
    np.testing.assert_array_equal(turned, decoded(content)[::-1, ::-1])
    np.testing.assert_array_equal(turned[..., 0], values[::-1, ::-1] // 256)


@pytest.mark.parametrize(
    "tag",
    [
        (X_RESOLUTION, ASCII, 4, b"abc\0"),
        (X_RESOLUTION, RATIONAL, 1, struct.pack("<I", 2**31)),
        (X_RESOLUTION, SHORT, 2**30, bytes(4)),
        (WIDTH, SIGNED, 1, struct.pack("<i", -1)),
    ],
)
@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
def test_a_malformed_tag_beside_the_orientation_does_no_harm(kind, tag):
    content = encode(photograph(), kind, exif=exif(6, tag))
    upright = images.upright(content)
    assert np.abs(decoded(upright) - np.rot90(decoded(content), k=-1)).mean() < 3


@pytest.mark.parametrize(
    "content",
    [
        encode(photograph(), "JPEG"),
        encode(photograph(), "JPEG", exif=exif(1)),
        encode(photograph(), "JPEG", exif=exif(9)),
        encode(photograph(), "JPEG", exif=b"Exif\0\0nothing of the kind"),
        encode(photograph(), "JPEG", exif=exif(6)[:13]),
        encode(photograph(), "JPEG", exif=exif(6))[:200],
        encode(photograph(), "TIFF", exif=exif(6)),  # refused when it is not turned, too
        b"",
        b"no image",
    ],
)
def test_what_needs_no_turn_or_cannot_be_read_is_left_alone(content):
    assert images.upright(content) is content


@pytest.mark.parametrize("size", [(40, 20), (14_000, 14_000)])
def test_a_png_without_orientation_is_not_decoded(size, monkeypatch):
    content = encode(Image.new("L", size), "PNG")
    monkeypatch.setattr(Image.Image, "load", lambda self: pytest.fail("it was decoded"))
    assert images.upright(content) is content


def test_an_image_of_too_many_pixels_is_not_decoded_to_be_turned(monkeypatch):
    content = encode(Image.new("L", (14_000, 14_000)), "PNG", exif=exif(6))
    monkeypatch.setattr(Image.Image, "load", lambda self: pytest.fail("it was decoded"))
    assert images.upright(content) is content


def test_a_jpeg_of_too_many_scans_is_not_decoded_to_be_turned(monkeypatch):
    content = jpeg_of_scans(Image.new("L", (1000, 1000)), 100, exif=exif(6))
    monkeypatch.setattr(Image.Image, "load", lambda self: pytest.fail("it was decoded"))
    assert images.upright(content) is content


def test_a_png_with_its_orientation_in_xmp_is_turned():
    xmp = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><r tiff:Orientation="3"/></x:xmpmeta>'
    text = PngInfo()
    text.add_itxt("XML:com.adobe.xmp", xmp.decode())
    content = encode(photograph(), "PNG", pnginfo=text)
    np.testing.assert_array_equal(
        decoded(images.upright(content)), decoded(encode(photograph(), "PNG"))[::-1, ::-1]
    )
