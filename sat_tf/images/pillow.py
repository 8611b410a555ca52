"""Images by Pillow alone, without TensorFlow: files turned upright and converted; pixels.

TensorFlow's decoders ignore the EXIF orientation and read no TIFF: what they shall read is turned
upright and encoded again; TIFF, HEIC and AVIF are converted. `decode` turns the pixels themselves.
Pillow scales in float32 and with the kernel of `tf.image.resize(..., "bilinear", antialias=True)`,
a triangle as wide as the scale, so pixels agree with those of `sat_tf.images.decoding` to rounding.
"""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError, features

from sat_tf.images import MAX_PIXELS, MAX_SIDE
from sat_tf.util.errors import invalid_value
from sat_tf.util.fields import check_argument
from sat_tf.util.files import read_content as read_file

ImageInput = str | Path | bytes | np.ndarray | Image.Image
"""Path of an image file, its bytes, uint8 pixels `[H, W, 3]`, or an image of Pillow."""
FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP")
"""Formats that Pillow may open, by its names: those that `decode` reads."""
EXIF_ORIENTATION = 0x0112
"""EXIF tag of the orientation."""

MAX_SCANS = 64
"""Scans of a JPEG; encoders write up to about twelve.

Each scan of a progressive JPEG makes a decoder go over the whole image again, and an empty scan
takes a dozen bytes: a small file can ask for minutes.
"""
FEW_SCANS = 16
"""Scans that are allowed for every size."""
MAX_SCANNED_PIXELS = FEW_SCANS * MAX_PIXELS
"""Pixels times scans."""
MAX_SEGMENTS = 2**10
"""Segments followed to count the scans of a JPEG that seems to have many."""
MANY_SCANS = f"the JPEG has more than {MAX_SCANS} scans, or too many for its size"
"""Error about a JPEG beyond these limits."""

# Bytes of a PNG that has an orientation: of an EXIF chunk, of EXIF as text, of XMP.
_PNG_ORIENTATION = (b"eXIf", b"Raw profile type", b"tiff:Orientation")
# The transposition that undoes each orientation.
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_UNKNOWN = "it is in none of the formats JPEG, PNG, GIF, BMP, WebP, TIFF, HEIC and AVIF"
_TIFF = (b"II*\0", b"MM\0*")
_HEIC_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")
_AVIF_BRANDS = (b"avif", b"avis")

_START, _END, _START_OF_SCAN = 0xD8, 0xD9, 0xDA
_MARKER = re.compile(rb"\xff[\x02-\xcf\xd8-\xfe]")  # those of restarts are part of a scan
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # markers of segments with the size


def read_upright(image: bytes | str | Path) -> bytes:
    """Reads an image file as `decode` takes it: in a format that it decodes, and upright.

    Args:
        image: Path of the file, or its content.

    Raises:
        ValueError: It is a TIFF, HEIC or AVIF that cannot be read.
        OSError: The file cannot be read.
    """
    return upright(to_decodable(image if isinstance(image, bytes) else read_file(Path(image))))


def to_decodable(content: bytes) -> bytes:
    """Converts TIFF, HEIC and AVIF, upright; returns any other content unchanged.

    Returns:
        A PNG of a TIFF; of HEIC and AVIF, whose pixels are not exact either, a JPEG.

    Raises:
        ValueError: The file cannot be read or is too large, or what reads HEIC is not installed.
    """
    kind = _foreign_format(content)
    if kind is None:
        return content
    stream = io.BytesIO()
    try:
        _check_reader(kind)
        with Image.open(io.BytesIO(content), formats=[kind]) as image:
            _check_size(image)
            if image.mode in ("I", "F"):
                raise ValueError(
                    "its samples are 32-bit or signed: convert it to 8 or 16 bits per sample"
                )
            image.load()
            pixels = to_rgb(ImageOps.exif_transpose(image))
        pixels.info.clear()
        form = {"compress_level": 1} if kind == "TIFF" else {"quality": 95, "subsampling": 0}
        pixels.save(stream, "PNG" if kind == "TIFF" else "JPEG", **form)
    except ImportError as error:
        raise ValueError(str(error)) from error
    except Exception as error:  # Pillow's readers raise almost anything on broken files
        name = "HEIC" if kind == "HEIF" else kind
        why = "it is damaged" if isinstance(error, UnidentifiedImageError) else error
        raise ValueError(f"a {name} that cannot be read: {why}") from error
    return stream.getvalue()


def _foreign_format(content: bytes) -> str | None:
    """Returns Pillow's name of a format that `decode` does not read, but this module does."""
    if content.startswith(_TIFF):
        return "TIFF"
    brand = content[8:12]
    if content[4:8] != b"ftyp" or brand not in (*_HEIC_BRANDS, *_AVIF_BRANDS):
        return None
    length = int.from_bytes(content[:4], "big")  # of the list of brands that the file has
    return "AVIF" if any(name in content[8 : min(length, 256)] for name in _AVIF_BRANDS) else "HEIF"


def _check_reader(kind: str) -> None:
    """Checks that Pillow reads a format, and has it learn HEIC; raises an `ImportError`."""
    if kind == "AVIF" and not features.check("avif"):
        raise ImportError("AVIF is read by Pillow 11.3 or later: pip install -U pillow")
    if kind == "HEIF":
        try:
            import pillow_heif
        except ImportError as error:
            raise ImportError(
                "HEIC is read with pillow-heif: pip install pillow-heif, or export it as JPEG"
            ) from error
        pillow_heif.register_heif_opener()


def upright(image_bytes: bytes) -> bytes:
    """Turns an image as its EXIF asks.

    Args:
        image_bytes: Content of an image file.

    Returns:
        The very same bytes if the image is upright, or if Pillow cannot or must not read it or its
        EXIF (`decode` says what is wrong with an image). A turned JPEG is encoded again as JPEG of
        quality 95 without chroma subsampling, everything else as PNG.
    """
    turned = io.BytesIO()
    try:
        check_scans(image_bytes)
        with Image.open(io.BytesIO(image_bytes), formats=FORMATS) as image:
            # Pillow decodes a PNG to find its EXIF or XMP.
            silent = image.format == "PNG" and not any(m in image_bytes for m in _PNG_ORIENTATION)
            if silent:
                return image_bytes
            _check_size(image)
            turn = _turn_of(image)
            if turn is None:
                return image_bytes
            kind = "JPEG" if image.format in ("JPEG", "MPO") else "PNG"
            pixels = to_rgb(image).transpose(turn)
        pixels.info.clear()  # The old metadata, EXIF included, must not be written again.
        pixels.save(turned, kind, quality=95, subsampling=0)
    except Exception:  # Pillow's readers raise almost anything on broken files.
        return image_bytes
    return turned.getvalue()


def _turn_of(image: Image.Image) -> Image.Transpose | None:
    """Returns what turns an image upright by its EXIF; None if it is, or its EXIF is broken."""
    try:
        return _TURNS.get(image.getexif().get(EXIF_ORIENTATION))
    except Exception:  # Pillow's readers raise almost anything on broken files
        return None


def _check_size(image: Image.Image) -> None:
    if max(image.size) > MAX_SIDE or image.width * image.height > MAX_PIXELS:
        raise ValueError(f"{image.width} x {image.height} pixels are too many")


def to_rgb(image: Image.Image) -> Image.Image:
    """Converts to RGB as `decode` does: 16 bits keep the high byte, where Pillow clips at 255.

    What is transparent lies over white, as on a page: a colour c of 255 with an alpha of a becomes
    c a / 255, rounded, and 255 - a.
    """
    if image.mode.startswith("I"):
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if not image.has_transparency_data:
        return image.convert("RGB")
    pixels = np.asarray(image.convert("RGBA"), np.uint16)
    colour, alpha = pixels[..., :3], pixels[..., 3:]
    return Image.fromarray(((colour * alpha + 127) // 255 + 255 - alpha).astype(np.uint8))


def centred_square(height: int, width: int) -> tuple[int, int, int]:
    """Returns the centred square whose side is the image's short side.

    It is the part of an image that the policy `crop` keeps: `resize` has the same arithmetic on
    tensors, for sizes that a graph does not know.

    Returns:
        Its top, left and side, pixels; an odd pixel is left over at the bottom or right.
    """
    side = min(height, width)
    return (height - side) // 2, (width - side) // 2, side


def check_scans(content: bytes) -> None:
    """Checks that a JPEG has no more scans than `decode` reads; any other content passes.

    Raises:
        ValueError: It has more, or too many segments to follow.
    """
    if not content.startswith(b"\xff\xd8") or content.count(b"\xff\xda") <= FEW_SCANS:
        return
    # Thumbnails and what follows the end may hold the same two bytes: then look closer.
    scans, pixels = _follow_segments(content)
    if scans > MAX_SCANS or scans * pixels > MAX_SCANNED_PIXELS:
        raise ValueError(MANY_SCANS)


def _follow_segments(content: bytes) -> tuple[int, int]:
    """Counts scans and pixels by going from segment to segment, as a decoder does."""
    position = scans = pixels = 0
    for _ in range(MAX_SEGMENTS):
        found = _MARKER.search(content, position)
        if found is None or content[found.start() + 1] == _END or scans > MAX_SCANS:
            return scans, pixels
        code, position = content[found.start() + 1], found.end()
        scans += code == _START_OF_SCAN
        if code in _FRAMES:
            size = content[position + 3 : position + 7]
            height, width = (int.from_bytes(part, "big") for part in (size[:2], size[2:]))
            pixels = max(pixels, height * width)
        if code != _START:
            position += int.from_bytes(content[position : position + 2], "big")
    return MAX_SCANS + 1, pixels


# --- the input of the encoder ---


def read_content(image: str | Path | bytes) -> bytes:
    """Reads an image file, converted if its format is none of `FORMATS`.

    Raises:
        ValueError: It cannot be read.
    """
    name = "the image" if isinstance(image, bytes) else f"the image {str(image)!r}"
    try:
        return to_decodable(image if isinstance(image, bytes) else read_file(Path(image)))
    except OSError as error:
        raise ValueError(f"Cannot read {name}: {error.strerror or error}.") from error
    except ValueError as error:
        raise ValueError(f"Cannot read {name}: {error}.") from error


def decode(content: bytes) -> Image.Image:
    """Decodes an image file to RGB, turned upright by its EXIF: the first frame of an animation.

    Raises:
        ValueError: It cannot be read, or has too many pixels or scans.
    """
    try:
        check_scans(content)
        with Image.open(io.BytesIO(content), formats=FORMATS) as image:
            _check_size(image)
            pixels, turn = to_rgb(image), _turn_of(image)
        pixels = pixels if turn is None else pixels.transpose(turn)
        pixels.info.clear()  # it would be turned again
        return pixels
    except UnidentifiedImageError as error:
        raise ValueError(f"Cannot read the image: {_UNKNOWN}.") from error
    except Exception as error:  # Pillow's readers raise almost anything on broken files
        raise ValueError(f"Cannot read the image: {error}.") from error


def resize(image: Image.Image, size: int, policy: str) -> np.ndarray:
    """Scales an image to a square; see `sat_tf.images.resizing.resize`.

    Args:
        image: RGB.
        size: Side of the result, pixels.
        policy: `crop` scales the centred square, `squash` the whole image.

    Returns:
        float32 `[size, size, 3]`, values 0 to 255.
    """
    if policy == "crop":
        width, height = image.size
        top, left, side = centred_square(height, width)
        image = image.crop((left, top, left + side, top + side))
    # Channel by channel in float32: Pillow rounds RGB to whole grey levels, twice.
    channels = [
        channel.convert("F").resize((size, size), Image.Resampling.BILINEAR)
        for channel in image.split()
    ]
    return np.clip(np.stack([np.asarray(channel) for channel in channels], axis=-1), 0.0, 255.0)


def read_pixels(image: ImageInput, size: int, policy: str) -> np.ndarray:
    """Reads an image as the encoder sees it, a photograph turned upright by its EXIF.

    Args:
        image: Path of a file, its bytes, uint8 pixels `[H, W, 3]`, or an image of Pillow.
        size: Side, pixels.
        policy: `crop` or `squash`.

    Returns:
        float32 `[size, size, 3]`, 0 to 255.

    Raises:
        ValueError: The image is missing or cannot be read; or pixels are of another type or shape.
    """
    if isinstance(image, np.ndarray):
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[-1] != 3 or not image.size:
            got = f"{image.dtype} {list(image.shape)}"
            raise invalid_value("image", "uint8 pixels [H, W, 3]", got)
        return resize(Image.fromarray(image), size, policy)
    check_argument("image", image, ImageInput)
    if isinstance(image, Image.Image):
        try:
            pixels = to_rgb(ImageOps.exif_transpose(image))
        except Exception as error:  # of a file that is read only now
            raise ValueError(f"Cannot read the image: {error}.") from error
        return resize(pixels, size, policy)
    return resize(decode(read_content(image)), size, policy)
