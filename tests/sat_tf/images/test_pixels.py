"""Pixels without TensorFlow are those of the library's preprocessing."""

import numpy as np
import pytest
from PIL import Image

from sat_tf.images import MAX_SIDE, decoding, resizing
from sat_tf.images.pillow import read_pixels, read_upright
from tests.image_files import encode, smooth
from tests.serving.export_fixtures import bad_images, good_images

TOLERANCE = 1e-3  # grey levels of 255


def read_in_tensorflow(image, size, policy):
    """The preprocessing of training."""
    if isinstance(image, bytes):
        image = decoding.decode(read_upright(image))
    return resizing.resize(image, size, policy)


@pytest.mark.parametrize("policy", ["crop", "squash"])
@pytest.mark.parametrize("size", [24, 100])
def test_every_format_is_read_as_in_training(policy, size):
    more = [("LA", "PNG"), ("RGBA", "BMP"), ("L", "BMP"), ("P", "BMP"), ("RGBA", "WEBP")]
    modes = {f"{kind} {mode}": encode(smooth().convert(mode), kind) for mode, kind in more}
    for name, content in (good_images() | modes).items():
        ours, theirs = (read(content, size, policy) for read in (read_pixels, read_in_tensorflow))
        assert ours.dtype == np.float32
        np.testing.assert_allclose(ours, theirs, atol=TOLERANCE, err_msg=name)


@pytest.mark.parametrize("shape", [(1, 1), (3, 500), (501, 4), (61, 37)])
def test_odd_shapes_are_scaled_as_in_training(shape):
    pixels = np.random.default_rng(0).integers(0, 256, [*shape, 3], np.uint8)
    for policy in ("crop", "squash"):
        ours, theirs = (read(pixels, 32, policy) for read in (read_pixels, read_in_tensorflow))
        np.testing.assert_allclose(ours, theirs, atol=TOLERANCE)


@pytest.mark.parametrize("name", ["empty", "text", "cut", "flipped", "huge"])
def test_what_is_no_image_is_a_clear_error(name):
    with pytest.raises(ValueError, match=r"^Cannot read the image: "):
        read_pixels(bad_images()[name], 24, "crop")


def test_other_images_that_cannot_be_read_are_clear_errors(tmp_path):
    with pytest.raises(ValueError, match=r"Cannot read .*none.jpg': No such file"):
        read_pixels(tmp_path / "none.jpg", 24, "crop")
    with pytest.raises(ValueError, match="a HEIC that cannot be read: it is damaged"):
        read_pixels(b"\0\0\0\x18ftypheic", 24, "crop")
    with pytest.raises(ValueError, match=f"1 x {MAX_SIDE + 1} pixels are too many"):
        read_pixels(encode(Image.new("L", (1, MAX_SIDE + 1)), "PNG"), 24, "crop")
    pixels = np.zeros([1, 4, 6, 4], np.uint8)
    for wrong in (pixels[0] / np.float32(255), pixels[0, ..., 0], pixels[0], pixels[0, :0, :, :3]):
        got = rf"{wrong.dtype} \{list(wrong.shape)}"
        with pytest.raises(ValueError, match=rf"expected uint8 pixels \[H, W, 3\], got {got}"):
            read_pixels(wrong, 24, "crop")


def test_an_image_of_pillow_is_read_as_its_file(tmp_path):
    photo = smooth().convert("RGBA")
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees
    photo.save(tmp_path / "photo.png", exif=exif)
    with Image.open(tmp_path / "photo.png") as opened:
        found = read_pixels(opened, 32, "crop")
    np.testing.assert_array_equal(found, read_pixels(tmp_path / "photo.png", 32, "crop"))
    assert not np.array_equal(found, read_pixels(photo, 32, "crop"))
