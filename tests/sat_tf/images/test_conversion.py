"""Files are read upright, in a format that `decode` reads."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from benchmarks.image_corpus import encode, exif_of
from sat_tf.images import read_upright


def photograph() -> Image.Image:
    """Red on the left, blue on the right."""
    pixels = np.zeros([20, 40, 3], np.uint8)
    pixels[:, :20, 0] = pixels[:, 20:, 2] = 255
    return Image.fromarray(pixels)


@pytest.mark.parametrize("kept", ["bytes", "path", "text"])
def test_a_photograph_is_turned_upright(tmp_path, kept):
    content, path = encode(photograph(), "JPEG", exif=exif_of(6)), tmp_path / "a.jpg"
    path.write_bytes(content)
    image = {"bytes": content, "path": path, "text": str(path)}[kept]
    turned = Image.open(io.BytesIO(read_upright(image)))
    assert turned.size == (20, 40)
    red, blue = turned.getpixel((10, 4)), turned.getpixel((10, 36))
    assert red[0] > 200 and blue[2] > 200
    content = encode(photograph(), "JPEG")
    assert read_upright(content) is content


def test_a_tiff_becomes_a_png_and_heic_is_refused():
    read = Image.open(io.BytesIO(read_upright(encode(photograph(), "TIFF"))))
    assert (read.format, read.size) == ("PNG", (40, 20))
    with pytest.raises(ValueError, match="HEIC and AVIF are not read: export it as JPEG"):
        read_upright(b"\0\0\0\x18ftypheic" + bytes(40))


def test_a_missing_file_is_an_error_of_the_system(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_upright(tmp_path / "none.jpg")
