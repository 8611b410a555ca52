"""Files as `decode` reads them: upright, TIFF as PNG, HEIC refused with advice."""

from __future__ import annotations

import io
from pathlib import Path

from PIL import Image

from sat_tf.images.limits import MAX_PIXELS, MAX_SIDE
from sat_tf.images.orientation import to_rgb, upright

_TIFF = (b"II*\0", b"MM\0*")
_HEIC_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1", b"avif")


def read_upright(image: bytes | str | Path) -> bytes:
    """Reads an image file as `decode` takes it: in a format that it decodes, and upright.

    Args:
        image: Path of the file, or its content.

    Raises:
        ValueError: The file is HEIC, AVIF, or a TIFF that cannot be read.
        OSError: The file cannot be read.
    """
    return upright(to_decodable(image if isinstance(image, bytes) else Path(image).read_bytes()))


def to_decodable(content: bytes) -> bytes:
    """Converts a TIFF to an upright PNG; returns any other content unchanged.

    Raises:
        ValueError: The TIFF cannot be read or is too large, or the file is HEIC or AVIF.
    """
    if content[4:8] == b"ftyp" and content[8:12] in _HEIC_BRANDS:
        raise ValueError("HEIC and AVIF are not read: export it as JPEG from the phone or a viewer")
    return _tiff_to_png(content) if content.startswith(_TIFF) else content


def _tiff_to_png(content: bytes) -> bytes:
    stream = io.BytesIO()
    try:
        with Image.open(io.BytesIO(content), formats=["TIFF"]) as image:
            width, height = image.size
            if max(width, height) > MAX_SIDE or width * height > MAX_PIXELS:
                raise ValueError(f"{width} x {height} pixels are too many")
            if image.mode in ("I", "F"):
                raise ValueError(
                    "its samples are 32-bit or signed: convert it to 8 or 16 bits per sample"
                )
            image.load()  # turns it upright as well
            pixels = to_rgb(image)
        pixels.save(stream, "PNG", compress_level=1)
    except Exception as error:  # Pillow's readers raise almost anything on broken files
        raise ValueError(f"a TIFF that cannot be read: {error}") from error
    return stream.getvalue()
