"""Reads images by Pillow, without TensorFlow: any format, turned upright, and scaled.

Pillow scales "F" images with the kernel of `tf.image.resize(.., "bilinear", antialias=True)`,
a triangle as wide as the scale, so pixels agree with those of `sat_tf.images.decoding` to rounding.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError, features

from sat_tf.images import MAX_PIXELS, MAX_SCANS, MAX_SIDE
from sat_tf.util.errors import invalid_value
from sat_tf.util.fields import check_argument
from sat_tf.util.files import read_content as read_file

ImageInput = str | Path | bytes | np.ndarray | Image.Image
"""Path of an image file, its bytes, uint8 pixels `[H, W, 3]`, or an image of Pillow."""
FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "AVIF", "HEIF")
EXIF_ORIENTATION = 0x0112
"""EXIF tag of the orientation."""

# Bytes of a PNG that has an orientation: of an EXIF chunk, of EXIF as text, of XMP.
_PNG_ORIENTATION = (b"eXIf", b"Raw profile type", b"tiff:Orientation")
_AVIF_BRANDS = (b"avif", b"avis")


def read_upright(image: bytes | str | Path) -> bytes:
    """Reads an image file as the graph decodes it: a JPEG or PNG, turned upright by EXIF.

    Returns:
        The file itself if it is an upright JPEG or PNG, or a damaged one, which the decoder names.
        A turned JPEG, HEIC or AVIF becomes a JPEG of quality 95 without chroma subsampling,
        everything else a PNG.

    Raises:
        ValueError: It is of another format and cannot be read; the message names no file.
        OSError: The file cannot be read.
    """
    content = image if isinstance(image, bytes) else read_file(Path(image))
    as_it_is = content.startswith((b"\xff\xd8", b"\x89PNG"))
    try:
        with _open(content) as opened:
            if as_it_is and not _may_turn(opened, content):
                return content
            pixels = _turned(opened)
            kind = "JPEG" if opened.format in ("JPEG", "MPO", "HEIF", "AVIF") else "PNG"
    except Exception as error:  # Pillow's readers raise almost anything on broken files
        if as_it_is:
            return content
        raise ValueError(_reason(error, content)) from error
    stream = io.BytesIO()
    pixels.save(stream, kind, quality=95, subsampling=0, compress_level=1)
    return stream.getvalue()


def decode(content: bytes) -> Image.Image:
    """Decodes an image file to RGB, turned upright by EXIF: the first frame of an animation.

    Raises:
        ValueError: It cannot be read, or has too many pixels or scans.
    """
    try:
        with _open(content) as image:
            return _turned(image)
    except Exception as error:  # Pillow's readers raise almost anything on broken files
        raise ValueError(f"Cannot read the image: {_reason(error, content)}.") from error


def _open(content: bytes) -> Image.Image:
    """Opens an image file after a check of its header."""
    if content.count(b"\xff\xda") > MAX_SCANS and content.startswith(b"\xff\xd8"):
        raise ValueError(f"the JPEG has more than {MAX_SCANS} scans")
    formats = [name for name in FORMATS if name != "HEIF"]
    if content[4:8] == b"ftyp":
        formats = ["AVIF"]
        if content[8:12] not in _AVIF_BRANDS:
            from pillow_heif import register_heif_opener

            register_heif_opener()
            formats = ["HEIF"]
        elif not features.check("avif"):
            raise ValueError("AVIF is read by Pillow 11.3 or later: pip install -U pillow")
    image = Image.open(io.BytesIO(content), formats=formats)
    if max(image.size) > MAX_SIDE or image.width * image.height > MAX_PIXELS:
        raise ValueError(f"{image.width} x {image.height} pixels are too many")
    if image.format == "TIFF" and image.mode in ("I", "F"):
        raise ValueError("32-bit or signed samples: convert it to 8 or 16 bits per sample")
    return image


def _may_turn(image: Image.Image, content: bytes) -> bool:
    """Returns whether an image is to be turned; Pillow decodes a PNG to find its EXIF."""
    if image.format == "PNG" and not any(mark in content for mark in _PNG_ORIENTATION):
        return False
    return 2 <= image.getexif().get(EXIF_ORIENTATION, 1) <= 8


def _turned(image: Image.Image) -> Image.Image:
    """Returns an image as RGB, upright and without metadata; with broken EXIF it is not turned."""
    image.load()
    try:
        orientation = image.getexif().get(EXIF_ORIENTATION, 1)
    except Exception:  # Pillow's readers raise almost anything on broken files
        orientation = 1
    pixels = to_rgb(image)
    pixels.info.clear()
    # Alone: a malformed tag next to it would keep Pillow from turning the image.
    pixels.getexif()[EXIF_ORIENTATION] = orientation
    pixels = ImageOps.exif_transpose(pixels)
    pixels.info.clear()
    return pixels


def _reason(error: Exception, content: bytes) -> str:
    """Returns why an image cannot be read."""
    if isinstance(error, ImportError):
        return "HEIC is read with pillow-heif: pip install pillow-heif, or export it as JPEG"
    if not isinstance(error, UnidentifiedImageError):
        return str(error)
    if content[4:8] == b"ftyp":
        return f"the {'AVIF' if content[8:12] in _AVIF_BRANDS else 'HEIC'} is damaged"
    return "it is in none of the formats JPEG, PNG, GIF, BMP, WebP, TIFF, HEIC and AVIF"


def to_rgb(image: Image.Image) -> Image.Image:
    """Converts to RGB as the graph does: 16 bits keep the high byte, where Pillow clips at 255.

    Transparent areas are composited onto white: a colour c of 255 with an alpha of a becomes
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
    """Returns the centred square of the image's short side: the policy `crop`.

    Returns:
        Its top, left and side, pixels; an odd pixel is left over at the bottom or right.
    """
    side = min(height, width)
    return (height - side) // 2, (width - side) // 2, side


def read_content(image: str | Path | bytes) -> bytes:
    """Returns the content of an image file.

    Raises:
        ValueError: It cannot be read; the message names it.
    """
    if isinstance(image, bytes):
        return image
    try:
        return read_file(Path(image))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ValueError(f"Cannot read the image {str(image)!r}: {reason}.") from error


def resize(image: Image.Image, size: int, policy: str) -> np.ndarray:
    """Scales an image to a square; see `sat_tf.images.decoding.resize`.

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
    """Reads an image as the encoder sees it, a photograph turned upright by EXIF.

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
            pixels = _turned(image)
        except Exception as error:  # of a file that is read only now
            raise ValueError(f"Cannot read the image: {error}.") from error
        return resize(pixels, size, policy)
    return resize(decode(read_content(image)), size, policy)
