"""Image files of every format, for tests. Everything follows from a seed."""

import io

import numpy as np
from PIL import ExifTags, Image


def encode(image: Image.Image, kind: str, **options) -> bytes:
    """Writes an image as a file of this kind."""
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def exif_of(orientation: int) -> Image.Exif:
    """Returns the EXIF that asks for a turn: 1 for none, 3 for half a one, 6 for a quarter."""
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    return exif


def noise(height: int = 37, width: int = 53, mode: str = "RGB", seed: int = 0) -> Image.Image:
    """Draws noise that differs from pixel to pixel."""
    pixels = np.random.default_rng(seed).integers(0, 256, [height, width, 4], np.uint8)
    return Image.fromarray(pixels, "RGBA").convert(mode)


def smooth(height: int = 37, width: int = 53, seed: int = 0) -> Image.Image:
    """Draws coarse, smooth noise, another image for another seed."""
    pixels = np.random.default_rng(seed).integers(0, 256, [5, 6, 3], np.uint8)
    return Image.fromarray(pixels).resize((width, height), Image.Resampling.BICUBIC)


def make_images(count: int = 2, size: int = 64) -> np.ndarray:
    """Draws pixels for an encoder, `[count, size, size, 3]`."""
    return np.random.default_rng(0).uniform(0, 255, [count, size, size, 3]).astype("float32")
