"""Image files to attack a decoder with: every format and mode, animations, bombs, odd structure.

Shared by `benchmarks.serving_fuzz` and the tests. Everything follows from a seed.
"""

from __future__ import annotations

import io
import itertools
import struct
from collections.abc import Iterable, Iterator

import numpy as np
from PIL import ExifTags, Image

KINDS = ("JPEG", "PNG", "GIF", "BMP", "WEBP")
MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr", "I;16", "I", "F")
BOMB_SIDE = 30_000

_COLOURS = ((250, 120, 20), (0, 0, 200), (10, 200, 10))


def encode(image: Image.Image, kind: str, **options) -> bytes:
    """Writes an image as a file of this kind."""
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def exif_of(orientation: int) -> Image.Exif:
    """The EXIF that asks for a turn: 1 for none, 3 for half a one, 6 for a quarter clockwise."""
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


def animation(kind: str = "GIF", frames: int = 3, **options) -> bytes:
    """An animation of plain frames of 40 x 30 pixels, each of another colour."""
    images = [Image.new("RGB", (40, 30), _COLOURS[n % len(_COLOURS)]) for n in range(frames)]
    return encode(images[0], kind, save_all=True, append_images=images[1:], **options)


def rgb_webp_animation(side: int) -> bytes:
    """Frames without alpha: Pillow leaves the header's alpha flag off, and noise keeps them RGB."""
    first, second = (noise(side, side, seed=seed) for seed in (side, side + 1))
    return encode(first, "WEBP", save_all=True, append_images=[second], lossless=True)


def jpeg_of_scans(image: Image.Image, added: int, **options) -> bytes:
    """A progressive JPEG whose last scan comes again and again."""
    content = encode(image, "JPEG", progressive=True, **options)
    scan = content[content.rindex(b"\xff\xda") : -2]
    return content[:-2] + scan * added + content[-2:]


def gif_of_blocks(image: Image.Image, lengths: Iterable[int]) -> bytes:
    """A GIF whose data blocks have these lengths, taken in turn again and again."""
    content = encode(image, "GIF")
    start = content.index(b",\0\0\0\0") + 11
    data, at = b"", start
    while content[at]:
        data += content[at + 1 : at + 1 + content[at]]
        at += 1 + content[at]
    blocks, done = b"", 0
    for length in itertools.cycle(lengths):
        if done >= len(data):
            break
        block = data[done : done + length]
        blocks += bytes([len(block)]) + block
        done += length
    return content[:start] + blocks + content[at:]


def bomb(kind: str) -> bytes:
    """A small file whose header speaks of 30,000 x 30,000 pixels."""
    side = BOMB_SIDE
    content = animation("WEBP") if kind == "WEBP" else encode(noise(), kind)
    at, size = {
        "JPEG": (content.find(b"\xff\xc0") + 5, struct.pack(">HH", side, side)),
        "PNG": (16, struct.pack(">II", side, side)),
        "BMP": (18, struct.pack("<ii", side, -side)),
        "GIF": (content.find(b",\0\0\0\0") + 5, struct.pack("<HH", side, side)),
        "WEBP": (24, (side - 1).to_bytes(3, "little") * 2),
    }[kind]
    return content[:at] + size + content[at + len(size) :]


def readable() -> Iterator[tuple[str, bytes]]:
    """Yields `(name, content)` of every kind and mode that Pillow writes, animations included."""
    for kind, mode in itertools.product(KINDS, MODES):
        try:
            yield f"{kind} {mode}", encode(noise(mode="RGB").convert(mode), kind)
        except (OSError, ValueError, KeyError):  # not a mode of this kind, or of noise
            continue
    yield "JPEG progressive", encode(noise(), "JPEG", progressive=True)
    yield "WEBP lossless", encode(noise(), "WEBP", lossless=True)
    for kind in ("GIF", "PNG", "WEBP"):
        yield f"{kind} animation", animation(kind)
    yield "WEBP animation of RGB", rgb_webp_animation(16)


def hostile() -> Iterator[tuple[str, bytes]]:
    """Yields `(name, content)` of files that ask for much, or are no images."""
    for kind in KINDS:
        yield f"{kind} bomb", bomb(kind)
    yield "GIF of tiny blocks", gif_of_blocks(noise(150, 150), (1, 2))
    yield "JPEG of 100 scans", jpeg_of_scans(smooth(2000, 2000), 100)
    yield "empty", b""
    yield "text", b"no image at all"
    yield "TIFF", encode(noise(), "TIFF")
