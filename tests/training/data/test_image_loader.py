"""Images are read upright from wherever they are stored, or the reason is given."""

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from tests.image_files import encode, exif_of
from training.data.image_loader import UNREADABLE, read_image, unreadable_reason


def half(image):
    return tf.cast(image[::2, ::2], tf.float32)


def png(pixels: np.ndarray, orientation: int = 1) -> bytes:
    return encode(Image.fromarray(pixels), "PNG", exif=exif_of(orientation))


@pytest.fixture
def pixels() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, [4, 6, 3], np.uint8)


@pytest.mark.parametrize("kept", ["array", "bytes", "file"])
def test_wherever_it_is_kept_it_is_the_same_image(tmp_path, pixels, kept):
    (tmp_path / "a.png").write_bytes(png(pixels))
    image = {"array": pixels, "bytes": png(pixels), "file": tmp_path / "a.png"}[kept]
    found, rotated = read_image(image, half)
    np.testing.assert_array_equal(found, pixels[::2, ::2])
    assert not rotated


def test_exif_turns_it_and_that_is_said(pixels):
    found, rotated = read_image(png(pixels, orientation=3), half)
    np.testing.assert_array_equal(found, pixels[::-1, ::-1][::2, ::2])
    assert rotated


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "the file is empty"),
        (None, "No such file"),
        (b"\0\0\0\x18ftypheic\0\0\0\0", "a HEIC that cannot be read"),
    ],
)
def test_what_cannot_be_read_has_a_reason(tmp_path, content, why):
    image = tmp_path / "none.png" if content is None else content
    with pytest.raises(UNREADABLE) as error:
        read_image(image, half)
    assert why in unreadable_reason(error.value)
