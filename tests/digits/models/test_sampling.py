"""The bilinear sampler, affine maps and centres of mass against NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from digits.models.glimpses import (
    affine_grid,
    bilinear_sample,
    bilinear_sample_grid,
    centres_of_mass,
    to_pixels,
    transform,
)

IDENTITY = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]


def make_images(batch=2, height=5, width=7, channels=1, dtype=np.float64):
    rng = np.random.default_rng(0)
    return rng.uniform(0.1, 1.0, [batch, height, width, channels]).astype(dtype)


def maps(theta, batch=2):
    return tf.constant(np.tile(np.array(theta, np.float64), [batch, 1, 1]))


def by_hand(image, point):
    """The double sum over every pixel of `[H, W, C]`, as the paper has it."""
    x, y = point
    total = np.zeros(image.shape[-1])
    for n in range(image.shape[0]):
        for m in range(image.shape[1]):
            total += image[n, m] * max(0.0, 1 - abs(x - m)) * max(0.0, 1 - abs(y - n))
    return total


def test_the_grid_counts_from_minus_one_to_one_x_first_and_y_down():
    grid = affine_grid(maps(IDENTITY, 1), 3, 5)[0].numpy()
    np.testing.assert_allclose(grid[1, :, 0], [-1, -0.5, 0, 0.5, 1])
    np.testing.assert_allclose(grid[:, 2, 1], [-1, 0, 1])
    np.testing.assert_allclose(to_pixels(tf.constant(grid), 3, 5)[2, 4], [4, 2])


def test_the_sampler_is_the_papers_double_sum():
    images = make_images(channels=3)
    points = np.random.default_rng(1).uniform(-2.0, 8.0, [2, 4, 6, 2])
    sampled = bilinear_sample(tf.constant(images), tf.constant(points)).numpy()
    assert sampled.shape == (2, 4, 6, 3)
    for index in np.ndindex(2, 4, 6):
        expected = by_hand(images[index[0]], points[index])
        np.testing.assert_allclose(sampled[index], expected, atol=1e-12)


def test_rows_and_columns_are_read_as_the_points_they_make():
    images, (x, y) = make_images(channels=3), np.random.default_rng(1).uniform(-3, 9, [2, 2, 4])
    points = np.stack(np.broadcast_arrays(x[:, np.newaxis], y[..., np.newaxis]), axis=-1)
    found, expected = bilinear_sample_grid(images, x, y), bilinear_sample(images, points)
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("far", [1.4, 50.0, 1e30])
def test_out_of_range_is_zero(far):
    images = make_images(dtype=np.float32)
    points = np.array([[[-far, 2.0], [6 + far, 2.0], [3.0, -far], [3.0, 4 + far]]] * 2, np.float32)
    np.testing.assert_array_equal(bilinear_sample(images, points), np.zeros([2, 4, 1]))


def test_the_gradient_in_theta_is_that_of_finite_differences():
    images = tf.constant(make_images(batch=1))
    # No sample on a pixel's border, where the sampler has a corner.
    theta = maps([[0.83, 0.11, 0.07], [-0.13, 0.91, 0.043]], 1)
    found, expected = tf.test.compute_gradient(lambda x: transform(images, x, 4, 4), [theta], 1e-6)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)


def test_centres_of_mass_are_means_under_the_softmax():
    logits = np.random.default_rng(2).normal(size=[2, 3, 4, 5])
    weights = np.exp(logits) / np.exp(logits).sum((1, 2), keepdims=True)
    x, y = np.meshgrid(np.linspace(-1, 1, 4), np.linspace(-1, 1, 3))
    wanted = [(weights * along[..., np.newaxis]).sum((1, 2)) for along in (x, y)]
    found = centres_of_mass(tf.constant(logits))
    np.testing.assert_allclose(found, np.stack(wanted, axis=-1), atol=1e-12)
