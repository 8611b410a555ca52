"""The Spatial Transformer: its start as the identity, its gradients."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from sat_tf.digits.sampling import centres_of_mass
from sat_tf.digits.stn import SpatialTransformer

IDENTITY = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]


def first_pass(**options):
    """Images through an untrained transformer, and its gradients."""
    layer = SpatialTransformer(12, 12, filters=(2, 2), **options)
    images = tf.random.stateless_uniform([2, 12, 12, 1], [5, 6], 0.1, 1.0)
    with tf.GradientTape() as tape:
        rectified, theta = layer(images)
        loss = tf.reduce_sum(rectified * tf.random.stateless_normal([2, 12, 12, 1], [0, 1]))
    gradients = tape.gradient(loss, layer.theta.trainable_variables)
    return layer, images, rectified, theta, gradients


def test_a_spatial_transformer_starts_as_the_identity_and_can_learn():
    _, images, rectified, theta, gradients = first_pass(hidden_dim=3)
    np.testing.assert_array_equal(theta, np.tile(np.array(IDENTITY, np.float32), [2, 1, 1]))
    np.testing.assert_allclose(rectified, images, atol=1e-4)
    assert all(np.any(gradient.numpy()) for gradient in gradients)


@pytest.mark.parametrize("hidden_dim", [0, 3])
def test_with_heat_maps_it_starts_at_the_mean_of_their_centres(hidden_dim):
    layer, images, _, theta, gradients = first_pass(hidden_dim=hidden_dim, points=2)
    centres = centres_of_mass(layer.heat_maps(layer.convolutions(images))).numpy().mean(axis=1)
    assert np.any(centres)
    expected = np.tile(np.array(IDENTITY, np.float32), [2, 1, 1])
    expected[..., 2] = centres
    np.testing.assert_allclose(theta, expected, atol=1e-6)
    assert all(np.any(gradient.numpy()) for gradient in gradients)


def test_a_spatial_transformer_that_reads_nothing_is_refused():
    with pytest.raises(ValueError, match="`hidden_dim` and `points`: .* got 0 and 0"):
        SpatialTransformer(12, 6, hidden_dim=0)
