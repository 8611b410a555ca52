"""A RAM of a few units, a batch for it, and its gradients by weight."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from sat_tf.digits.config import RAMConfig
from sat_tf.digits.recurrent_attention import RAM
from tests.sat_tf.digits.digit_terms import terms_of

B, T, SIZE = 4, 3, 12
SMALL = {"glimpse_hidden_dim": 8, "glimpse_dim": 12, "hidden_dim": 12, "location_hidden_dim": 8}


def make(image_size=SIZE, **settings):
    defaults = SMALL | {"glimpses": T, "glimpse_size": 4}
    model = RAM(RAMConfig(**defaults | settings), image_size)
    # Means well apart from the middle, where an untrained policy looks.
    kernel = model.locator.mean_layer.kernel
    kernel.assign(tf.random.stateless_normal(kernel.shape, [1, 2]))
    return model


def batch(size=B, image_size=SIZE):
    rng = np.random.default_rng(0)
    return {
        "images": tf.constant(rng.uniform(size=[size, image_size, image_size, 1]), tf.float32),
        "labels": tf.constant(rng.integers(0, 10, size), tf.int32),
        "centres": tf.constant(rng.uniform(-1, 1, [size, 1, 2]), tf.float32),
    }


def losses(model, **changed):
    with tf.GradientTape() as tape:
        loss, logs = terms_of(model, batch() | changed)
    variables = named(model)
    return loss, logs, tape.gradient(loss, variables)


def named(model):
    """Weights by the attribute that has them, in the order of the model."""
    layers = model.saved_layers().items()
    return {f"{name}/{v.path}": v for name, layer in layers for v in layer.trainable_variables}
