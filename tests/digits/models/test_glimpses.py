"""Glimpses: the sensor against NumPy slices, the policy, the networks that read, given places."""

import numpy as np
import pytest
import tensorflow as tf

from digits.models.glimpses import (
    GatedGlimpseNetwork,
    GlimpseNetwork,
    GlimpseSensor,
    LocationNetwork,
    gaussian,
)

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
        middle = 8 // block
        whole = images.reshape(3, 2 * middle, block, 2 * middle, block).mean(axis=(2, 4))
        expected = whole[:, middle - 1 : middle + 1, middle - 1 : middle + 1]
        np.testing.assert_allclose(seen[..., k], expected, atol=1e-5)


def test_a_patch_beyond_the_border_is_zero_there():
    images = make_images()
    seen = glimpse(images, (-0.5, 15.5), size=4, scales=2)
    np.testing.assert_allclose(seen[:, :2, 2:, 0], images[:, 14:, :2, 0], atol=1e-5)
    assert not seen[:, 2:, :, 0].any() and not seen[:, :, :2, 0].any()
    assert seen[:, :2, 2:, 1].any() and not seen[:, 2:, :, 1].any()


def policy(std=0.2, state_dim=4):
    network = LocationNetwork(state_dim, 8, std)
    network.mean_layer.kernel.assign(tf.random.stateless_normal([8, 2], [1, 2]))
    return network


def states(batch=1000):
    return tf.random.stateless_normal([batch, 4], [3, 4])


def test_samples_are_clipped_and_their_log_probability_is_not():
    network, std = policy(std=2.0), 2.0
    with tf.GradientTape() as tape:
        aim = network(states(), tf.constant([0, 1]))
    assert np.abs(aim.location).max() == 1.0
    drawn = gaussian(aim.mean, std).sample(seed=tf.constant([0, 1]))
    squares = (((drawn - aim.mean) / std) ** 2).numpy().sum(axis=-1)
    log_prob = -0.5 * squares - 2 * np.log(std * np.sqrt(2 * np.pi))
    np.testing.assert_allclose(aim.log_prob, log_prob, rtol=1e-4)
    score = (drawn - aim.mean) / std**2
    np.testing.assert_allclose(tape.gradient(aim.log_prob, aim.mean), score, rtol=1e-4)
    clipped = gaussian(aim.mean, std).log_prob(aim.location)
    assert np.abs(aim.log_prob - clipped).max() > 0.1


@pytest.mark.parametrize("seed", [None, [0, 1]])
def test_no_gradient_flows_through_a_location(seed):
    network, hidden = policy(), states()
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(hidden)
        aim = network(hidden, None if seed is None else tf.constant(seed))
    assert tape.gradient(aim.location, [hidden, *network.trainable_variables]) == [None] * 5


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
    network = GatedGlimpseNetwork((4, 4, 2), 2, 5)
    patches = tf.constant(np.random.default_rng(0).uniform(size=[3, 4, 4, 2]), tf.float32)
    location = tf.constant([[0.1, -0.4], [0.0, 0.0], [1.0, 1.0]])
    found = network(patches, location)
    assert found.shape == (3, 5)
    product = network.image_network(patches) * network.location_network(location)
    np.testing.assert_allclose(found, product)
    # At first the location leaves a glimpse in the middle as it is.
    np.testing.assert_allclose(found[1], network.image_network(patches)[1])
