"""Every format against Pillow; headers, with lowered limits; broken files."""

import contextlib
import io
import struct

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from sat_tf import images
from sat_tf.images import decoding, pillow, resizing
from tests.image_files import encode, gif_of_blocks, noise, smooth

ORANGE = (250, 120, 20)
CHECKS = {
    "JPEG": decoding.check_jpeg,
    "PNG": decoding.check_png,
    "GIF": decoding.check_gif,
    "BMP": decoding.check_bmp,
    "WEBP": decoding.check_webp,
}
FILES = [("JPEG", {}), ("JPEG", {"progressive": True}), ("PNG", {}), ("GIF", {}), ("BMP", {})]
FILES += [("WEBP", {}), ("WEBP", {"lossless": True}), ("WEBP", {"exif": b"Exif\0\0abcd"})]
MANY_MARKERS = b"\xff\xda" * 5000  # in a comment, or behind the end: no scan


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
    if form == "P":
        image, form = image.convert("RGB").quantize(64), "PNG"
        options = {"transparency": bytes(range(0, 256, 4))}
    if form == "GIF":
        image = image.convert("RGB").quantize(64)
        options = {"transparency": 5, "comment": b"before the frame"}
    if form == "WEBP":
        options = {"lossless": True, "exact": True}
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
        decoding.decode(content)
    message = decoding.read_error(error.value)
    assert message and not any(part in message for part in ("\n", "{{", "assert", "Graph", "File"))


@pytest.mark.parametrize("kept", [6, 12, 13, 800])
def test_a_gif_cut_before_its_frame_ends_is_an_error(kept):
    with pytest.raises(tf.errors.InvalidArgumentError):
        decoding.decode(encode(noise(), "GIF")[:kept])


def test_a_reason_takes_the_place_of_the_pixels_or_fails_a_graph():
    strip = tf.constant(encode(Image.new("1", (images.MAX_SIDE + 1, 1)), "PNG"))
    pixels, problem = decoding.read(strip)
    assert pixels.shape == (0, 0, 3) and "or more than 32768 per side" in str(problem.numpy())
    with pytest.raises(tf.errors.InvalidArgumentError, match="in all"):
        tf.function(decoding.decode, autograph=False)(strip)


def test_crop_keeps_the_centre_and_squash_keeps_everything():
    pixels = np.zeros([10, 30, 3], np.uint8)
    pixels[:, :10, 0] = pixels[:, 10:20, 1] = pixels[:, 20:, 2] = 200
    cropped = resizing.resize(pixels, 6, "crop").numpy()
    np.testing.assert_allclose(cropped, np.broadcast_to([0, 200, 0], [6, 6, 3]), atol=1e-3)
    squashed = resizing.resize(pixels, 6, "squash").numpy()
    np.testing.assert_allclose(squashed[:, [0, -1]].max(axis=(0, 1)), [200, 0, 200], atol=1e-3)
    image = smooth(90, 60)
    ours = resizing.resize(np.asarray(image), 24, "squash").numpy()
    theirs = np.asarray(image.resize((24, 24), Image.Resampling.BILINEAR))
    np.testing.assert_allclose(ours, theirs, atol=1.0)


def problem(kind: str, content: bytes) -> str:
    return CHECKS[kind](tf.constant(content))[1].numpy().decode()


@pytest.mark.parametrize(("kind", "options"), FILES)
def test_format_and_size_are_those_of_the_file(kind, options, monkeypatch):
    content = encode(noise(37, 53), kind, **options)
    assert decoding.FORMATS[int(decoding.read_format(content))].upper() == kind
    monkeypatch.setattr(decoding, "MAX_SIDE", 53)
    monkeypatch.setattr(decoding, "MAX_PIXELS", 37 * 53)
    assert problem(kind, content) == ""
    monkeypatch.setattr(decoding, "MAX_PIXELS", 37 * 53 - 1)
    assert problem(kind, content).startswith("the image has no pixels, or more than 32768")
    monkeypatch.setattr(decoding, "MAX_PIXELS", 37 * 53)
    monkeypatch.setattr(decoding, "MAX_SIDE", 52)
    assert problem(kind, content).startswith("the image has no pixels, or more than 32768")


@pytest.mark.parametrize(
    ("size", "fits"),
    [
        ([8192, 8192], True),
        ([8192, 8193], False),
        ([decoding.MAX_SIDE, 1], True),
        ([1, decoding.MAX_SIDE + 1], False),
        ([0, 5], False),
        ([2**32 - 1, 2**32 - 1], False),
    ],
)
def test_a_size_fits_within_the_limits_of_sides_and_pixels(size, fits):
    assert bool(decoding.size_fits(tf.constant(size, tf.int64))) is fits


@pytest.mark.parametrize(("flags", "marked"), [(0x02, 0x12), (0x12, 0x12), (0x10, 0x10), (0, 0)])
def test_a_webp_animation_is_marked_as_having_alpha_and_nothing_else_changes(flags, marked):
    header = b"RIFF\x16\0\0\0WEBPVP8X\x0a\0\0\0" + bytes([flags, 0, 0, 0]) + b"\x0f\0\0\x0f\0\0"
    content, reason = decoding.check_webp(tf.constant(header))
    assert content.numpy() == header[:20] + bytes([marked]) + header[21:] and reason == ""
    for length in (12, 16, 20):  # too short for the flags
        assert decoding.check_webp(tf.constant(header[:length]))[0].numpy() == header[:length]


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
    assert int(decoding.count_scans(tf.constant(content))) == scans
    assert problem("JPEG", content) == ""
    monkeypatch.setattr(decoding, "MAX_SCANNED_PIXELS", scans * 37 * 53 - 1)
    assert problem("JPEG", content).endswith("scans, or too many for its size")
    monkeypatch.setattr(decoding, "MAX_SCANNED_PIXELS", scans * 37 * 53)
    monkeypatch.setattr(decoding, "MAX_SCANS", scans - 1)
    assert problem("JPEG", content).endswith("scans, or too many for its size")


def test_a_jpeg_of_too_many_segments_to_follow_is_refused():
    comments = b"\xff\xfe\x00\x02" * 1100
    content = b"\xff\xd8" + comments + encode(noise(), "JPEG", comment=MANY_MARKERS)[2:]
    assert int(decoding.count_scans(tf.constant(content))) > decoding.MAX_SCANS
    with pytest.raises(ValueError, match="scans"):
        pillow.check_scans(content)


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
        scans = int(decoding.count_scans(tf.constant(content)))
        many = scans > decoding.MAX_SCANS or scans * side * side > decoding.MAX_SCANNED_PIXELS
        refused.append(many)
        with pytest.raises(ValueError, match="scans") if many else contextlib.nullcontext():
            pillow.check_scans(content)
    assert any(refused) and not all(refused)


def test_a_gif_is_cut_after_its_first_frame():
    frames = [Image.new("RGB", (40, 30), colour) for colour in ("red", "blue", "green")]
    content = encode(
        frames[0], "GIF", save_all=True, append_images=frames[1:], comment=b"two " * 200
    )
    frame, size = decoding.first_frame(tf.constant(content))
    kept = Image.open(io.BytesIO(frame.numpy()))
    assert kept.n_frames == 1 and kept.size == (40, 30)
    np.testing.assert_array_equal(size, [30, 40])
    first = Image.open(io.BytesIO(content)).convert("RGB")
    np.testing.assert_array_equal(np.asarray(kept.convert("RGB")), np.asarray(first))


@pytest.mark.parametrize("lengths", [(255,), (1,), (254, 3), (7,) * 500 + (90,)])
def test_blocks_of_any_length_are_followed_to_the_end(lengths):
    content = gif_of_blocks(noise(90, 90), lengths)
    frame, _ = decoding.first_frame(tf.constant(content))
    assert frame.numpy() == content


def test_a_gif_of_too_many_runs_of_blocks_is_refused(monkeypatch):
    content = gif_of_blocks(noise(), (100, 7))
    assert problem("GIF", content) == ""
    monkeypatch.setattr(decoding, "MAX_RUNS", 10)
    assert problem("GIF", content).endswith("or one of too many blocks")
