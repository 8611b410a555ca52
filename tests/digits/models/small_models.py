"""A RAM of a few units with a batch for it; losses outside a train step."""

import numpy as np
import tensorflow as tf

from digits.config import RAMConfig
from digits.models.recurrent_attention import RAM
from sat_tf.ops import replica_seed

STEP_SEED = tf.constant([3, 5])
SEED = replica_seed(STEP_SEED)
"""The seed of the only replica."""


def terms_of(model, batch):
    """Returns the loss and the means that are logged."""
    terms = model.objective(model, batch, STEP_SEED)
    return terms.loss, {name: mean for name, (mean, _) in terms.means.items()}


B, T, SIZE = 4, 3, 12


def make(image_size=SIZE, **settings):
    sizes = {"glimpse_hidden_dim": 8, "glimpse_dim": 12, "hidden_dim": 12, "location_hidden_dim": 8}
    sizes |= {"glimpses": T, "glimpse_size": 4}
    return spread(RAM(RAMConfig(**sizes | settings), image_size))


def spread(model):
    """Gives the policy means well apart from the middle, where an untrained one looks."""
    kernel = model.locator.mean_layer.kernel
    kernel.assign(tf.random.stateless_normal(kernel.shape, [1, 2]))
    return model


def batch(size=B, image_size=SIZE):
    rng = np.random.default_rng(0)
    return {
        "images": tf.constant(rng.uniform(size=[size, image_size, image_size, 1]), tf.float32),
        "labels": tf.constant(rng.integers(0, 10, size), tf.int32),
    }
