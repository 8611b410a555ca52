"""Images to the encoder's input, by Pillow, for every captioner.

Pillow scales in float32 and with the kernel of `tf.image.resize(..., "bilinear", antialias=True)`,
a triangle as wide as the scale, so pixels agree with those of `sat_tf.images.decoding` to rounding.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from sat_tf.errors import invalid_value
from sat_tf.fields import check_argument
from sat_tf.images import MAX_PIXELS, MAX_SIDE
from sat_tf.images.pillow import FORMATS, centred_square, check_scans, read_upright, to_rgb

_UNKNOWN = "it is in none of the formats JPEG, PNG, GIF, BMP, WebP, TIFF, HEIC and AVIF"

ImageInput = str | Path | bytes | np.ndarray | Image.Image
"""Path of an image file, its bytes, uint8 pixels `[H, W, 3]`, or an image of Pillow."""


def read_content(image: str | Path | bytes) -> bytes:
    """Reads an image file and turns it upright by its EXIF.

    Raises:
        ValueError: It cannot be read.
    """
    name = "the image" if isinstance(image, bytes) else f"the image {str(image)!r}"
    try:
        return read_upright(image)
    except OSError as error:
        raise ValueError(f"Cannot read {name}: {error.strerror or error}.") from error
    except ValueError as error:
        raise ValueError(f"Cannot read {name}: {error}.") from error


def decode(content: bytes) -> Image.Image:
    """Decodes an image file to RGB, the first frame of an animation.

    Raises:
        ValueError: It cannot be read, or has too many pixels or scans.
    """
    try:
        check_scans(content)
        with Image.open(io.BytesIO(content), formats=FORMATS) as image:
            width, height = image.size
            if max(width, height) > MAX_SIDE or width * height > MAX_PIXELS:
                raise ValueError(f"{width} x {height} pixels are too many")
            return to_rgb(image)
    except UnidentifiedImageError as error:
        raise ValueError(f"Cannot read the image: {_UNKNOWN}.") from error
    except Exception as error:  # Pillow's readers raise almost anything on broken files
        raise ValueError(f"Cannot read the image: {error}.") from error


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
        return resize(to_rgb(ImageOps.exif_transpose(image)), size, policy)
    return resize(decode(read_content(image)), size, policy)
