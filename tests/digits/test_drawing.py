"""Drawings become images like those of training, wherever and however large they are drawn."""

import numpy as np
import pytest
from PIL import Image

from digits.reader import decode_drawing, fit_drawing
from tests.image_files import encode


def paper(*boxes: tuple[int, int, int, int], side: int = 280) -> np.ndarray:
    """Ink in boxes of left, top, right and bottom."""
    pixels = np.zeros([side, side], np.uint8)
    for left, top, right, bottom in boxes:
        pixels[top:bottom, left:right] = 255
    return pixels


def png(pixels: np.ndarray) -> bytes:
    return encode(Image.fromarray(pixels), "PNG")


def extent(image: np.ndarray) -> tuple[int, int, int, int]:
    rows, columns = np.flatnonzero(image.max(axis=1) > 0.5), np.flatnonzero(image.max(axis=0) > 0.5)
    return columns[0], rows[0], columns[-1] + 1, rows[-1] + 1


@pytest.mark.parametrize("box", [(10, 10, 60, 90), (100, 20, 270, 260)])
def test_a_digit_without_room_is_centred_by_mass_and_twenty_pixels_long(box):
    image, frame = fit_drawing(paper(box), 28, (20, 20))
    left, top, right, bottom = extent(image)
    assert bottom - top == pytest.approx(20, abs=1)
    assert (left + right) / 2 == pytest.approx(14, abs=1)
    assert image.shape == (28, 28) and image.max() == 1.0 and image.dtype == np.float32
    # The frame is a square around the ink.
    assert frame[2] - frame[0] == pytest.approx(frame[3] - frame[1])
    assert (frame[1] + frame[3]) / 2 == pytest.approx((box[1] + box[3]) / 2 / 280, abs=0.01)


def test_a_digit_with_room_keeps_its_place_and_size():
    image, frame = fit_drawing(paper((60, 80, 120, 200)), 42, (14, 24))
    np.testing.assert_allclose(frame, (0, 0, 1, 1), atol=1e-6)
    np.testing.assert_allclose(extent(image), (9, 12, 18, 30), atol=1)


@pytest.mark.parametrize(
    "boxes",
    [
        ((20, 60, 60, 160), (180, 60, 220, 160)),  # side by side
        ((60, 10, 100, 110), (60, 160, 100, 260)),  # one above the other
    ],
)
def test_of_two_digits_each_is_twenty_pixels_long(boxes):
    image, _ = fit_drawing(paper(*boxes), 60, (20, 20), digits=2)
    ink = image > 0.5
    along = [np.diff(np.flatnonzero(np.diff(np.r_[0, line, 0])))[0] for line in ink.T if line.any()]
    assert np.median(along) == pytest.approx(20, abs=1)


def test_dark_ink_on_bright_paper_is_ink_too():
    pixels = paper((100, 50, 120, 200))
    np.testing.assert_array_equal(decode_drawing(png(255 - pixels)), pixels)
    np.testing.assert_array_equal(decode_drawing(png(pixels)), pixels)


@pytest.mark.parametrize("ink", [0, 200])
def test_ink_on_a_transparent_ground_is_what_is_opaque(ink):
    pixels = paper((100, 50, 120, 200))
    grey = np.full_like(pixels, ink)
    drawing = Image.fromarray(np.stack([grey, grey, grey, pixels], axis=-1), "RGBA")
    np.testing.assert_array_equal(decode_drawing(encode(drawing, "PNG")), pixels)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 100 100\n", "none of the formats"),
        (png(np.zeros([8, 8], np.uint8)), "8 x 8 pixels, expected sides of 16 to 2048"),
        (png(np.zeros([20, 3000], np.uint8)), "3000 x 20 pixels, expected"),
    ],
    ids=["eps", "small", "large"],
)
def test_other_files_are_refused(content, says):
    with pytest.raises(ValueError, match=says):
        decode_drawing(content)
