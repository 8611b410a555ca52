"""The mask over an image."""

from __future__ import annotations

import numpy as np

from sat_tf.digits.stn import SpatialMask


def make_images(size=12):
    return np.random.default_rng(0).uniform(size=[2, size, size, 1]).astype(np.float32)


def test_it_starts_as_a_constant_that_lets_nearly_all_through():
    images = make_images()
    masked, mask = SpatialMask(12, filters=(2, 2))(images)
    np.testing.assert_allclose(mask, np.full([2, 12, 12, 1], 1.0 / (1.0 + np.exp(-2.0))), rtol=1e-6)
    np.testing.assert_allclose(masked, images * mask.numpy(), rtol=1e-6)


def test_what_it_shows_is_the_image_times_a_mask_of_its_own():
    layer, images = SpatialMask(12, filters=(2, 3)), make_images()
    kernel, bias = layer.localisation.get_layer("logits").weights
    kernel.assign(np.random.default_rng(1).normal(size=kernel.shape))
    bias.assign([0.0])
    masked, mask = layer(images)
    assert np.ptp(mask[0]) > 0 and np.any(mask[0] != mask[1])
    assert np.all(mask > 0) and np.all(mask < 1)
    np.testing.assert_allclose(masked, images * mask.numpy(), rtol=1e-6)


def test_a_side_that_is_no_multiple_of_four_keeps_its_size():
    images = make_images(size=15)
    assert SpatialMask(15, filters=(2, 2))(images)[0].shape == images.shape
