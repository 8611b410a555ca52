"""Sizes read from headers agree with Pillow; what asks for too many pixels is never decoded."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from benchmarks.image_corpus import bomb, encode, noise, rgb_webp_animation
from sat_tf import images
from sat_tf.images import gif, headers, jpeg

SIZES = {
    "PNG": headers.png_size,
    "BMP": headers.bmp_size,
    "JPEG": jpeg.size,
    "GIF": lambda content: gif.first_frame(content)[1],
    "WEBP": headers.webp_size,
}
FILES = [("JPEG", {}), ("JPEG", {"progressive": True}), ("PNG", {}), ("GIF", {}), ("BMP", {})]
FILES += [("WEBP", {}), ("WEBP", {"lossless": True}), ("WEBP", {"exif": b"Exif\0\0abcd"})]


@pytest.mark.parametrize(("kind", "options"), FILES)
def test_format_and_size_are_those_of_the_file(kind, options):
    content = encode(noise(), kind, **options)
    assert headers.FORMATS[int(headers.read_format(content))].upper() == kind
    np.testing.assert_array_equal(SIZES[kind](tf.constant(content)), [37, 53])


@pytest.mark.parametrize(
    "content", [b"", b"B", b"RIFF", b"some text", b"GIF", b"\x89PNG\r\n\x1a\n"]
)
def test_anything_else_is_unknown(content):
    assert int(headers.read_format(content)) == headers.UNKNOWN


@pytest.mark.parametrize("kind", list(SIZES))
def test_a_bomb_is_refused_before_it_is_decoded(kind):
    content = bomb(kind)
    np.testing.assert_array_equal(SIZES[kind](tf.constant(content)), [30000, 30000])
    with pytest.raises(tf.errors.InvalidArgumentError, match="in all") as error:
        images.decode(content)
    assert images.read_error(error.value).startswith("the image has no pixels, or more than 32768")


def test_a_bomb_fails_a_graph_that_decodes_it():
    decode = tf.function(images.decode, autograph=False)
    with pytest.raises(tf.errors.InvalidArgumentError, match="in all"):
        decode(tf.constant(bomb("PNG")))


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


def test_a_webp_animation_is_marked_as_having_alpha():
    content = rgb_webp_animation(16)
    marked = headers.webp_decodable(tf.constant(content)).numpy()
    assert marked[20] == content[20] | 0x10
    assert marked[:20] + marked[21:] == content[:20] + content[21:]


@pytest.mark.parametrize("options", [{}, {"lossless": True}, {"exif": b"Exif\0\0abcd"}])
def test_a_still_webp_stays_as_it_is(options):
    content = encode(noise(), "WEBP", **options)
    assert headers.webp_decodable(tf.constant(content)).numpy() == content
