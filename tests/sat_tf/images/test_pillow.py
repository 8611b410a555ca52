"""Files are read upright, in a format that `decode` reads, however broken the metadata."""

import io
import struct
import sys

import numpy as np
import pytest
from PIL import Image, ImageOps
from PIL.PngImagePlugin import PngInfo

from sat_tf.images import MAX_SIDE, decoding, pillow
from tests.image_files import encode, smooth
from tests.serving.export_fixtures import good_images

WIDTH, ORIENTATION, X_RESOLUTION = 0x0100, 0x0112, 0x011A
ASCII, SHORT, RATIONAL, SIGNED = 2, 3, 5, 9
XMP = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><r tiff:Orientation="3"/></x:xmpmeta>'


def photograph(mode: str = "RGB") -> Image.Image:
    return smooth(20, 40).convert(mode)


def exif(orientation: int, *others: tuple[int, int, int, bytes]) -> bytes:
    """An EXIF block of the orientation and further tags: number, type, count and four bytes."""
    tags = [(ORIENTATION, SHORT, 1, struct.pack("<HH", orientation, 0)), *others]
    block = b"".join(struct.pack("<HHI", *tag[:3]) + tag[3] for tag in tags)
    return b"Exif\0\0II*\0" + struct.pack("<IH", 8, len(tags)) + block + bytes(4)


def decoded(content: bytes) -> np.ndarray:
    return decoding.decode(content).numpy().astype(int)


@pytest.mark.parametrize("orientation", range(2, 9))
def test_every_orientation_is_turned_as_pillow_turns_it(orientation):
    content = encode(photograph(), "PNG", exif=exif(orientation))
    expected = ImageOps.exif_transpose(Image.open(io.BytesIO(content)))
    np.testing.assert_array_equal(decoded(pillow.read_upright(content)), np.asarray(expected))


def test_an_orientation_in_xmp_counts_and_is_gone_afterwards():
    text = PngInfo()
    text.add_itxt("XML:com.adobe.xmp", XMP.decode())
    for content in (
        encode(photograph(), "JPEG", xmp=XMP),
        encode(photograph(), "PNG", pnginfo=text),
    ):
        upright = pillow.read_upright(content)
        assert np.abs(decoded(upright) - decoded(content)[::-1, ::-1]).mean() < 3
        assert pillow.read_upright(upright) is upright


@pytest.mark.parametrize("mode", ["L", "LA", "P", "RGBA", "1", "I;16"])
def test_a_turned_image_has_the_pixels_of_the_one_that_is_not(mode):
    image = photograph("L" if mode == "I;16" else mode)
    if mode == "I;16":
        image = Image.fromarray(np.asarray(image).astype(np.uint16) * 256 + 7)
    content = encode(image, "PNG", exif=exif(3))
    turned = decoded(pillow.read_upright(content))
    np.testing.assert_array_equal(turned, decoded(content)[::-1, ::-1])


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
    upright = pillow.read_upright(content)
    assert np.abs(decoded(upright) - np.rot90(decoded(content), k=-1)).mean() < 3


@pytest.mark.parametrize(
    "content",
    [
        encode(photograph(), "JPEG"),
        encode(photograph(), "PNG"),
        encode(photograph(), "JPEG", exif=exif(1)),
        encode(photograph(), "JPEG", exif=exif(9)),
        encode(photograph(), "JPEG", exif=b"Exif\0\0nothing of the kind"),
        encode(photograph(), "JPEG", exif=exif(6))[:200],
    ],
)
def test_a_jpeg_or_png_that_needs_no_turn_or_is_damaged_is_left_alone(content):
    assert pillow.read_upright(content) is content


@pytest.mark.parametrize(
    ("kind", "options", "became", "most"),
    [
        ("TIFF", {"compression": "tiff_lzw"}, "PNG", 0),
        ("GIF", {}, "PNG", 20),
        ("BMP", {}, "PNG", 0),
        ("WEBP", {"lossless": True}, "PNG", 0),
        ("HEIF", {"quality": 90}, "JPEG", 12),
        ("AVIF", {"quality": 90}, "JPEG", 12),
    ],
)
@pytest.mark.parametrize("orientation", [1, 6])
def test_other_formats_become_an_upright_png_or_jpeg(kind, options, became, most, orientation):
    if kind == "HEIF":
        pytest.importorskip("pillow_heif").register_heif_opener()
    turned = kind not in ("GIF", "BMP")  # which have no EXIF
    content = encode(
        photograph(), kind, **options, **({"exif": exif(orientation)} if turned else {})
    )
    read = pillow.read_upright(content)
    assert Image.open(io.BytesIO(read)).format == became
    expected = np.rot90(np.asarray(photograph()), -1 if orientation == 6 and turned else 0)
    assert np.abs(decoded(read) - expected).mean() <= most


def test_of_a_tiff_of_16_bits_the_high_byte_is_read_and_one_of_32_is_refused():
    grey = np.asarray(photograph("L"))
    read = pillow.read_upright(encode(Image.fromarray(grey.astype(np.uint16) * 256 + 7), "TIFF"))
    np.testing.assert_array_equal(decoded(read)[..., 0], grey)
    for kind in (np.float32, np.int32):
        with pytest.raises(ValueError, match="convert it to 8 or 16 bits per sample"):
            pillow.read_upright(encode(Image.fromarray(grey.astype(kind)), "TIFF"))


def test_heic_without_its_reader_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    with pytest.raises(ValueError, match="HEIC is read with pillow-heif: pip install pillow-heif"):
        pillow.read_upright(b"\0\0\0\x18ftypheic" + bytes(40))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "it is in none of the formats JPEG, PNG, "),
        (b"no image", "it is in none of the formats JPEG, PNG, "),
        (encode(photograph(), "TIFF")[:60], ""),
        (b"\0\0\0\x18ftypheic" + bytes(40), "the HEIC is damaged"),
        (b"\0\0\0\x18ftypavif" + bytes(40), "the AVIF is damaged"),
    ],
)
def test_a_file_that_cannot_be_read_says_why(content, said):
    if b"heic" in content:
        pytest.importorskip("pillow_heif")
    with pytest.raises(ValueError, match=f"^{said}"):
        pillow.read_upright(content)
    with pytest.raises(ValueError, match=f"^Cannot read the image: {said}"):
        pillow.read_pixels(content, 24, "crop")


TOLERANCE = 1e-3  # grey levels of 255


def read_in_tensorflow(image, size, policy):
    """The preprocessing of training."""
    if isinstance(image, bytes):
        image = decoding.decode(pillow.read_upright(image))
    return decoding.resize(image, size, policy)


@pytest.mark.parametrize("policy", ["crop", "squash"])
@pytest.mark.parametrize("size", [24, 100])
def test_every_format_is_read_as_in_training(policy, size):
    more = [("LA", "PNG"), ("RGBA", "BMP"), ("L", "BMP"), ("P", "BMP"), ("RGBA", "WEBP")]
    modes = {f"{kind} {mode}": encode(smooth().convert(mode), kind) for mode, kind in more}
    for name, content in (good_images() | modes).items():
        ours, theirs = (
            read(content, size, policy) for read in (pillow.read_pixels, read_in_tensorflow)
        )
        assert ours.dtype == np.float32
        np.testing.assert_allclose(ours, theirs, atol=TOLERANCE, err_msg=name)


@pytest.mark.parametrize("shape", [(1, 1), (3, 500), (501, 4), (61, 37)])
def test_odd_shapes_are_scaled_as_in_training(shape):
    pixels = np.random.default_rng(0).integers(0, 256, [*shape, 3], np.uint8)
    for policy in ("crop", "squash"):
        ours, theirs = (
            read(pixels, 32, policy) for read in (pillow.read_pixels, read_in_tensorflow)
        )
        np.testing.assert_allclose(ours, theirs, atol=TOLERANCE)


def test_other_images_that_cannot_be_read_are_clear_errors(tmp_path):
    with pytest.raises(ValueError, match=r"Cannot read .*none.jpg': No such file"):
        pillow.read_pixels(tmp_path / "none.jpg", 24, "crop")
    with pytest.raises(ValueError, match="the HEIC is damaged"):
        pillow.read_pixels(b"\0\0\0\x18ftypheic", 24, "crop")
    with pytest.raises(ValueError, match=f"1 x {MAX_SIDE + 1} pixels are too many"):
        pillow.read_pixels(encode(Image.new("L", (1, MAX_SIDE + 1)), "PNG"), 24, "crop")
    pixels = np.zeros([1, 4, 6, 4], np.uint8)
    for wrong in (pixels[0] / np.float32(255), pixels[0, ..., 0], pixels[0], pixels[0, :0, :, :3]):
        got = rf"{wrong.dtype} \{list(wrong.shape)}"
        with pytest.raises(ValueError, match=rf"expected uint8 pixels \[H, W, 3\], got {got}"):
            pillow.read_pixels(wrong, 24, "crop")


def test_an_image_of_pillow_is_read_as_its_file(tmp_path):
    photo = smooth().convert("RGBA")
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees
    photo.save(tmp_path / "photo.png", exif=exif)
    with Image.open(tmp_path / "photo.png") as opened:
        found = pillow.read_pixels(opened, 32, "crop")
    np.testing.assert_array_equal(found, pillow.read_pixels(tmp_path / "photo.png", 32, "crop"))
    assert not np.array_equal(found, pillow.read_pixels(photo, 32, "crop"))
