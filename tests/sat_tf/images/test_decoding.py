"""Decoding and resizing of every format against Pillow, and of broken files."""

import io
import struct

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from sat_tf import images
from sat_tf.images import decoding, pillow
from tests.image_files import encode, noise, smooth

ORANGE = (250, 120, 20)


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"subsampling": 2, "quality": 60}])
def test_a_jpeg_decodes_to_the_pixels_pillow_gives(options):
    content = encode(smooth(), "JPEG", **options)
    expected = np.asarray(Image.open(io.BytesIO(content)))
    np.testing.assert_array_equal(decoding.decode(content), expected)


@pytest.mark.parametrize("colours", [256, 7])
def test_a_bmp_of_8_bits_is_read_through_its_palette(colours):
    image = smooth().quantize(colours)
    assert len(image.getpalette("RGB")) == 3 * colours
    content = encode(image, "BMP")
    np.testing.assert_array_equal(decoding.decode(content), np.asarray(image.convert("RGB")))


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (30, struct.pack("<I", 1)),  # run lengths
        (30, struct.pack("<I", 3) + bytes(20) + struct.pack("<III", 0xFF, 0xFF00, 0xFF0000)),
    ],
)
def test_a_bmp_that_would_be_read_wrongly_is_refused(at, value):
    content = encode(smooth().convert("RGBA"), "BMP")
    content = content[:at] + value + content[at + len(value) :]
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        decoding.decode(content)
    assert decoding.read_error(error.value).startswith("the BMP is compressed, or")


def test_a_bmp_with_the_usual_masks_is_read():
    masks = struct.pack("<III", 0xFF0000, 0xFF00, 0xFF)
    content = encode(smooth().convert("RGBA"), "BMP")
    offset = struct.pack("<I", 54 + len(masks))
    content = content[:10] + offset + content[14:30] + b"\3" + content[31:54] + masks + content[54:]
    expected = np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))
    np.testing.assert_array_equal(decoding.decode(content), expected)
    np.testing.assert_array_equal(expected, np.asarray(smooth()))


def every_alpha() -> Image.Image:
    """All colours of a channel with all alphas."""
    level, alpha = np.meshgrid(np.arange(256, dtype=np.uint8), np.arange(256, dtype=np.uint8))
    return Image.fromarray(np.stack([level, 255 - level, level // 2, alpha], axis=-1), "RGBA")


@pytest.mark.parametrize("form", ["PNG", "WEBP", "GIF", "LA", "P"])
def test_what_is_transparent_lies_over_white(form):
    image, options = every_alpha(), {}
    if form == "LA":
        image, form = image.convert("LA"), "PNG"
    if form in ("P", "GIF"):
        image, form = image.convert("RGB").quantize(64), form.replace("P", "PNG")
        options = {"transparency": bytes(range(0, 256, 4)) if form == "PNG" else 5}
    options |= {"lossless": True, "exact": True} if form == "WEBP" else {}
    content = encode(image, form, **options)
    with Image.open(io.BytesIO(content)) as opened:
        pixels = np.asarray(opened.convert("RGBA"), np.float64)
    colour, alpha = pixels[..., :3], pixels[..., 3:]
    expected = np.rint(colour * alpha / 255) + 255 - alpha
    np.testing.assert_array_equal(decoding.decode(content), expected)
    np.testing.assert_array_equal(np.asarray(pillow.decode(content)), expected)


def test_an_animated_webp_is_its_first_frame():
    first, more = Image.new("RGBA", (9, 7), (*ORANGE, 90)), [Image.new("RGBA", (9, 7))]
    options = {"save_all": True, "append_images": more, "lossless": True, "exact": True}
    assert decoding.decode(encode(first, "WEBP", **options)).shape == (7, 9, 3)


@pytest.mark.parametrize(
    "content",
    [b"", b"not an image at all", encode(smooth(), "JPEG")[:40], b"BM", b"\x89PNG\r\n\x1a\n"],
)
def test_what_is_no_image_is_an_error_of_one_readable_line(content):
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        decoding.load(content, 8, "crop")
    message = decoding.read_error(error.value)
    assert message and not any(part in message for part in ("\n", "{{", "assert", "Graph", "File"))


@pytest.mark.parametrize("kept", [6, 12, 13, 800])
def test_a_gif_cut_before_its_frame_ends_is_an_error(kept):
    with pytest.raises(tf.errors.InvalidArgumentError):
        decoding.decode(encode(noise(), "GIF")[:kept])


@pytest.mark.parametrize("comment", [b"", b"before the frame"])
def test_a_transparent_colour_of_a_gif_is_shown_as_in_other_formats(comment):
    picture = Image.new("RGBA", (12, 9), (255, 255, 255, 0))
    picture.paste((200, 10, 10, 255), (3, 3, 8, 7))
    content = encode(picture, "GIF", comment=comment)
    with Image.open(io.BytesIO(content)) as opened:
        assert "transparency" in opened.info
        expected = np.asarray(pillow.to_rgb(opened))
    decoded = decoding.decode(content).numpy()
    np.testing.assert_array_equal(decoded, expected)
    assert (decoded[0, 0] == 255).all()


def test_a_reason_takes_the_place_of_the_pixels_or_fails_a_graph():
    strip = tf.constant(encode(Image.new("1", (images.MAX_SIDE + 1, 1)), "PNG"))
    pixels, problem = decoding.read(strip)
    assert pixels.shape == (0, 0, 3) and "or more than 32768 per side" in str(problem.numpy())
    with pytest.raises(tf.errors.InvalidArgumentError, match="in all"):
        tf.function(decoding.decode, autograph=False)(strip)


def test_crop_keeps_the_centre_and_squash_keeps_everything():
    pixels = np.zeros([10, 30, 3], np.uint8)
    pixels[:, :10, 0] = pixels[:, 10:20, 1] = pixels[:, 20:, 2] = 200
    cropped = decoding.resize(pixels, 6, "crop").numpy()
    np.testing.assert_allclose(cropped, np.broadcast_to([0, 200, 0], [6, 6, 3]), atol=1e-3)
    squashed = decoding.resize(pixels, 6, "squash").numpy()
    np.testing.assert_allclose(squashed[:, [0, -1]].max(axis=(0, 1)), [200, 0, 200], atol=1e-3)
    image = smooth(90, 60)
    ours = decoding.resize(np.asarray(image), 24, "squash").numpy()
    theirs = np.asarray(image.resize((24, 24), Image.Resampling.BILINEAR))
    np.testing.assert_allclose(ours, theirs, atol=1.0)
