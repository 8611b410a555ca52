"""The glimpse sensor against NumPy slices and block means."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from sat_tf.digits.glimpses import GlimpseSensor

SIZE = 16


def make_images(batch=3, size=SIZE):
    return np.random.default_rng(0).uniform(size=[batch, size, size, 1]).astype(np.float32)


def normalised(pixels, size=SIZE):
    return (2.0 * np.array(pixels) / (size - 1) - 1.0).astype(np.float32)


def glimpse(images, centre, size, scales):
    """Patches about one centre in pixels (x, y), `[B, size, size, scales]`."""
    sensor = GlimpseSensor(size, scales)
    location = np.tile(normalised(centre, images.shape[1]), [len(images), 1])
    return sensor(sensor.pyramid(tf.constant(images)), tf.constant(location)).numpy()


def block_means(images, block):
    batch, height, width, _ = images.shape
    blocks = images.reshape(batch, height // block, block, width // block, block)
    return blocks.mean(axis=(2, 4))


@pytest.mark.parametrize(
    ("centre", "size", "rows", "columns"),
    [((5.5, 9.5), 4, slice(8, 12), slice(4, 8)), ((5.0, 9.0), 3, slice(8, 11), slice(4, 7))],
)
def test_an_even_patch_between_pixels_or_an_odd_one_on_a_pixel_is_a_slice(
    centre, size, rows, columns
):
    images = make_images()
    seen = glimpse(images, centre, size=size, scales=1)
    np.testing.assert_allclose(seen, images[:, rows, columns], atol=1e-5)


def test_each_patch_covers_twice_as_much_averaged_over_blocks():
    images = make_images()
    # A centre on the corner of a block of four has a slice of blocks at every scale.
    seen = glimpse(images, (7.5, 7.5), size=2, scales=3)
    for k, block in enumerate((1, 2, 4)):
        whole = block_means(images, block) if block > 1 else images[..., 0]
        middle = 8 // block
        expected = whole[:, middle - 1 : middle + 1, middle - 1 : middle + 1]
        np.testing.assert_allclose(seen[..., k], expected, atol=1e-5)


def test_a_patch_beyond_the_border_is_zero_there():
    images = make_images()
    seen = glimpse(images, (-0.5, 15.5), size=4, scales=2)
    np.testing.assert_allclose(seen[:, :2, 2:, 0], images[:, 14:, :2, 0], atol=1e-5)
    assert not seen[:, 2:, :, 0].any() and not seen[:, :, :2, 0].any()
    assert seen[:, :2, 2:, 1].any() and not seen[:, 2:, :, 1].any()


def test_a_side_that_is_no_multiple_of_a_block_is_padded_with_zeros():
    images = np.ones([1, 7, 7, 1], np.float32)
    coarse = GlimpseSensor(2, 2).pyramid(tf.constant(images))[1]
    assert coarse.shape == (1, 4, 4, 1)
    np.testing.assert_allclose(coarse[0, -1, :, 0], [0.5, 0.5, 0.5, 0.25])


def test_every_image_has_its_own_location():
    images = make_images(batch=2)
    sensor = GlimpseSensor(2, 1)
    location = tf.constant(np.stack([normalised((2.5, 3.5)), normalised((9.5, 4.5))]))
    seen = sensor(sensor.pyramid(tf.constant(images)), location)
    np.testing.assert_allclose(seen[0], images[0, 3:5, 2:4], atol=1e-5)
    np.testing.assert_allclose(seen[1], images[1, 4:6, 9:11], atol=1e-5)
