"""The centred square: on numbers, and as the graph of `resize` cuts it."""

from __future__ import annotations

import numpy as np
import pytest

from sat_tf import images
from sat_tf.images.crop import centred_square


@pytest.mark.parametrize(
    ("height", "width", "expected"),
    [(4, 4, (0, 0, 4)), (4, 9, (0, 2, 4)), (9, 4, (2, 0, 4)), (1, 2, (0, 0, 1))],
)
def test_the_square_is_centred_and_the_one_that_resize_scales(height, width, expected):
    assert centred_square(height, width) == expected
    top, left, side = expected
    pixels = np.random.default_rng(0).integers(0, 256, [height, width, 3], np.uint8)
    kept = pixels[top : top + side, left : left + side]
    np.testing.assert_allclose(images.resize(pixels, side, "crop"), kept, atol=1e-3)
