"""Files are read upright, in a format that `decode` reads, however broken what stands beside it."""

import io
import struct
import sys

import numpy as np
import pytest
from PIL import Image, ImageOps
from PIL.PngImagePlugin import PngInfo

from sat_tf.images import decoding, pillow, resizing
from tests.image_files import encode, smooth

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
    np.testing.assert_array_equal(decoded(pillow.upright(content)), np.asarray(expected))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_every_format_with_exif_is_turned_once(kind):
    content = encode(photograph(), kind, exif=exif(6))
    upright = pillow.upright(content)
    assert pillow.upright(upright) is upright
    expected = np.rot90(decoded(content), k=-1)
    assert expected.shape == (40, 20, 3)
    assert np.abs(decoded(upright) - expected).mean() < 3


def test_an_orientation_in_xmp_counts_and_is_gone_afterwards():
    text = PngInfo()
    text.add_itxt("XML:com.adobe.xmp", XMP.decode())
    for content in (
        encode(photograph(), "JPEG", xmp=XMP),
        encode(photograph(), "PNG", pnginfo=text),
    ):
        upright = pillow.upright(content)
        assert np.abs(decoded(upright) - decoded(content)[::-1, ::-1]).mean() < 3
        assert pillow.upright(upright) is upright


@pytest.mark.parametrize("mode", ["L", "LA", "P", "RGBA", "1", "I;16"])
def test_a_turned_image_has_the_pixels_of_the_one_that_is_not(mode):
    image = photograph("L" if mode == "I;16" else mode)
    if mode == "I;16":
        image = Image.fromarray(np.asarray(image).astype(np.uint16) * 256 + 7)
    content = encode(image, "PNG", exif=exif(3))
    turned = decoded(pillow.upright(content))
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
    upright = pillow.upright(content)
    assert np.abs(decoded(upright) - np.rot90(decoded(content), k=-1)).mean() < 3


@pytest.mark.parametrize(
    "content",
    [
        encode(photograph(), "JPEG"),
        encode(photograph(), "JPEG", exif=exif(1)),
        encode(photograph(), "JPEG", exif=exif(9)),
        encode(photograph(), "JPEG", exif=b"Exif\0\0nothing of the kind"),
        encode(photograph(), "JPEG", exif=exif(6))[:200],
        encode(photograph(), "TIFF", exif=exif(6)),  # refused when it is not turned, too
        b"",
        b"no image",
    ],
)
def test_what_needs_no_turn_or_cannot_be_read_is_left_alone(content):
    assert pillow.upright(content) is content


def test_a_file_is_read_upright_from_its_path_or_its_content(tmp_path):
    content, path = encode(photograph(), "JPEG", exif=exif(6)), tmp_path / "a.jpg"
    path.write_bytes(content)
    assert pillow.read_upright(content) == pillow.upright(content) != content
    assert pillow.read_upright(path) == pillow.read_upright(str(path)) == pillow.upright(content)
    with pytest.raises(FileNotFoundError):
        pillow.read_upright(tmp_path / "none.jpg")


@pytest.mark.parametrize("orientation", [1, 6])
def test_a_tiff_becomes_an_upright_png(orientation):
    content = encode(photograph(), "TIFF", exif=exif(orientation), compression="tiff_lzw")
    read = pillow.read_upright(content)
    assert Image.open(io.BytesIO(read)).format == "PNG"
    upright = np.rot90(np.asarray(photograph()), -1 if orientation == 6 else 0)
    np.testing.assert_array_equal(decoded(read), upright)


def test_of_a_tiff_of_16_bits_the_high_byte_is_read_and_one_of_32_is_refused():
    grey = np.asarray(photograph("L"))
    read = pillow.read_upright(encode(Image.fromarray(grey.astype(np.uint16) * 256 + 7), "TIFF"))
    np.testing.assert_array_equal(decoded(read)[..., 0], grey)
    for kind in (np.float32, np.int32):
        with pytest.raises(ValueError, match="convert it to 8 or 16 bits per sample"):
            pillow.read_upright(encode(Image.fromarray(grey.astype(kind)), "TIFF"))


@pytest.mark.parametrize(("kind", "module"), [("HEIF", "pillow_heif"), ("AVIF", "PIL")])
@pytest.mark.parametrize("orientation", [1, 6])
def test_a_photograph_of_a_phone_becomes_an_upright_jpeg(kind, module, orientation):
    reader = pytest.importorskip(module)
    if kind == "HEIF":
        reader.register_heif_opener()
    content = encode(smooth(), kind, exif=exif(orientation), quality=90)
    read = pillow.read_upright(content)
    assert Image.open(io.BytesIO(read)).format == "JPEG"
    upright = np.rot90(np.asarray(smooth()).astype(float), -1 if orientation == 6 else 0)
    assert np.abs(decoded(read) - upright).mean() < 6.0


def test_heic_without_its_reader_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    with pytest.raises(ValueError, match="HEIC is read with pillow-heif: pip install pillow-heif"):
        pillow.read_upright(b"\0\0\0\x18ftypheic" + bytes(40))


@pytest.mark.parametrize("brand", [b"heic", b"mif1", b"avif"])
def test_a_broken_photograph_of_a_phone_is_told(brand):
    pytest.importorskip("pillow_heif")
    with pytest.raises(ValueError, match="a (HEIC|AVIF) that cannot be read"):
        pillow.read_upright(b"\0\0\0\x18ftyp" + brand + bytes(40))


@pytest.mark.parametrize(
    ("height", "width", "expected"),
    [(4, 4, (0, 0, 4)), (4, 9, (0, 2, 4)), (9, 4, (2, 0, 4)), (1, 2, (0, 0, 1))],
)
def test_the_square_is_centred_and_the_one_that_resize_scales(height, width, expected):
    assert pillow.centred_square(height, width) == expected
    top, left, side = expected
    pixels = np.random.default_rng(0).integers(0, 256, [height, width, 3], np.uint8)
    kept = pixels[top : top + side, left : left + side]
    np.testing.assert_allclose(resizing.resize(pixels, side, "crop"), kept, atol=1e-3)
