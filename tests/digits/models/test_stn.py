"""The Spatial Transformer, and the classifier behind it."""

import numpy as np
import pytest
import tensorflow as tf

from digits.config import STNConfig
from digits.models.glimpses import centres_of_mass
from digits.models.stn import STN, SpatialTransformer
from tests.digits.models.small_models import batch, terms_of

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


SMALL = {"localisation_filters": 2, "localisation_dim": 4, "filters": 4, "hidden_dim": 8}


def make(**settings):
    return STN(STNConfig(**SMALL | {"output_size": 12} | settings), image_size=16)


def test_the_classifiers_loss_teaches_where_to_look():
    model = make()
    with tf.GradientTape() as tape:
        loss, logs = terms_of(model, batch(image_size=16))
    weights = model.attention.theta.trainable_variables
    assert all(np.any(gradient) for gradient in tape.gradient(loss, weights))
    assert set(logs) == set(model.objective.log_names)
