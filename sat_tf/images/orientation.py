"""EXIF orientation, which TensorFlow's decoders ignore: turn images upright with Pillow."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from sat_tf.images.limits import MAX_PIXELS, MAX_SIDE
from sat_tf.images.scans import check_scans

EXIF_ORIENTATION = 0x0112
"""EXIF tag of the orientation."""
FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP")
"""Formats that Pillow may open, by its names: those that `decode` reads."""

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
            if not _may_be_turned(image, image_bytes):
                return image_bytes
            turn = _TURNS.get(image.getexif().get(EXIF_ORIENTATION))
            if turn is None:
                return image_bytes
            kind = "JPEG" if image.format in ("JPEG", "MPO") else "PNG"
            pixels = to_rgb(image).transpose(turn)
        pixels.info.clear()  # The old metadata, EXIF included, must not be written again.
        pixels.save(turned, kind, quality=95, subsampling=0)
    except Exception:  # Pillow's readers raise almost anything on broken files.
        return image_bytes
    return turned.getvalue()


def _may_be_turned(image: Image.Image, image_bytes: bytes) -> bool:
    """Says if it is worth asking Pillow, which decodes a PNG to find its EXIF or XMP."""
    width, height = image.size
    if max(width, height) > MAX_SIDE or width * height > MAX_PIXELS:
        return False
    return image.format != "PNG" or any(mark in image_bytes for mark in _PNG_ORIENTATION)


def to_rgb(image: Image.Image) -> Image.Image:
    """Converts to RGB as `decode` does: 16 bits keep the high byte, where Pillow clips at 255."""
    if image.mode.startswith("I"):
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    return image.convert("RGB")
