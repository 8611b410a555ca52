"""JPEG and PNG in the graph against Pillow; limits; broken files."""

import struct
import zlib

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from sat_tf.images import MAX_SCANS, MAX_SIDE, decoding, pillow
from tests.image_files import encode, noise, smooth

MARKERS = b"\xff\xda" * (MAX_SCANS + 1)


def png_of(width: int, height: int) -> bytes:
    """The header of a PNG without its pixels."""
    head = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n\0\0\0\r" + head + struct.pack(">I", zlib.crc32(head))


@pytest.mark.parametrize(
    "options", [{}, {"progressive": True}, {"subsampling": 2, "quality": 60}], ids=str
)
@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
def test_a_jpeg_decodes_to_the_pixels_that_pillow_gives(mode, options):
    content = encode(smooth().convert(mode), "JPEG", **options)
    expected = np.asarray(pillow.decode(content))
    found = decoding.decode(content).numpy().astype(int)
    assert np.abs(found - expected).max() <= (2 if mode == "CMYK" else 0)


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "LA", "P", "1", "I;16"])
def test_a_png_decodes_to_the_pixels_that_pillow_gives(mode):
    image = smooth().convert("L" if mode == "I;16" else mode)
    if mode in ("RGBA", "LA"):
        image.putalpha(noise().convert("L").resize(image.size))
    if mode == "I;16":
        image = Image.fromarray(np.asarray(image).astype(np.uint16) * 256 + 7)
    content = encode(image, "PNG")
    np.testing.assert_array_equal(decoding.decode(content), np.asarray(pillow.decode(content)))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", decoding.NO_IMAGE),
        (b"text", decoding.NO_IMAGE),
        (encode(smooth(), "GIF"), decoding.NO_IMAGE),
        (encode(smooth(), "WEBP"), decoding.NO_IMAGE),
        (b"\x89PNG\r\n\x1a\n", decoding.NO_IMAGE),
        (png_of(MAX_SIDE + 1, 1), "the image has no pixels, or more than"),
        (png_of(2**14, 2**14), "the image has no pixels, or more than"),
        (png_of(0, 4), "the image has no pixels, or more than"),
        (png_of(2**31, 2**31), "the image has no pixels, or more than"),
        (encode(smooth(), "JPEG", comment=MARKERS), "the JPEG has more than 64 scans"),
        (encode(smooth(), "JPEG")[:100], ""),
        (encode(smooth(), "PNG")[:60], ""),
        (b"\xff\xd8", ""),
    ],
)
def test_a_file_that_cannot_be_decoded_says_why(content, said):
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        decoding.decode(content)
    found = decoding.read_error(error.value)
    assert found.startswith(said) and "\n" not in found
    if said:
        image, problem = decoding.read(tf.constant(content))
        assert image.shape == [0, 0, 3] and problem.numpy().decode() == found


def test_the_limits_of_size_are_those_of_pillow():
    for width, height in ((MAX_SIDE + 1, 1), (2**14, 2**13)):
        with pytest.raises(ValueError, match="pixels are too many"):
            pillow.decode(encode(Image.new("1", (width, height)), "PNG"))
    assert decoding.size_fits(tf.constant([2**13, 2**13], tf.int64))
    assert not decoding.size_fits(tf.constant([2**13, 2**13 + 1], tf.int64))


@pytest.mark.parametrize(("size", "policy"), [(0, "crop"), (24, "stretch")])
def test_a_wrong_size_or_policy_is_an_error(size, policy):
    with pytest.raises(ValueError, match="`size`: expected at least 1|`resize`: expected one of"):
        decoding.resize(np.zeros([4, 4, 3], np.uint8), size, policy)
