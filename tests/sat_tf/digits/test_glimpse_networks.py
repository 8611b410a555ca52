"""The networks that read a glimpse, by hand."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from sat_tf.digits.glimpses import GatedGlimpseNetwork, GlimpseNetwork


def test_the_glimpse_network_is_the_papers_equation():
    network = GlimpseNetwork((2, 2, 1), 3, 5)
    rng = np.random.default_rng(0)
    patches, location = rng.uniform(size=[3, 2, 2, 1]), rng.normal(size=[3, 2])
    network.set_weights([rng.normal(size=w.shape) for w in network.weights])
    weights = {w.path.split("/")[-2]: [] for w in network.weights}
    for w in network.weights:
        weights[w.path.split("/")[-2]].append(w.numpy())

    def linear(name, x):
        kernel, bias = weights[name]
        return x @ kernel + bias

    def relu(x):
        return np.maximum(x, 0.0)

    what = linear("w2", relu(linear("w1", patches.reshape(3, 4))))
    where = linear("w4", relu(linear("w3", location)))
    found = network(tf.constant(patches, tf.float32), tf.constant(location, tf.float32))
    np.testing.assert_allclose(found, relu(what + where), rtol=1e-4, atol=1e-5)


def test_the_gated_glimpse_network_multiplies_what_with_where():
    network = GatedGlimpseNetwork((4, 4, 2), (2, 3, 3), 5)
    patches = tf.constant(np.random.default_rng(0).uniform(size=[3, 4, 4, 2]), tf.float32)
    location = tf.constant([[0.1, -0.4], [0.0, 0.0], [1.0, 1.0]])
    found = network(patches, location)
    assert found.shape == (3, 5)
    product = network.image_network(patches) * network.location_network(location)
    np.testing.assert_allclose(found, product)
    # At first the location leaves a glimpse in the middle as it is.
    np.testing.assert_allclose(found[1], network.image_network(patches)[1])
