"""The objective of a digit system, called on a batch outside a train step."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf

from sat_tf.ops.draws import replica_seed

STEP_SEED = tf.constant([3, 5])
SEED = replica_seed(STEP_SEED)
"""The seed of the only replica."""


def terms_of(model, batch):
    """Returns the loss and the means that are logged."""
    size = tf.cast(tf.shape(batch["images"])[0], tf.float32)
    terms = model.objective(model, batch, STEP_SEED, size)
    return terms.loss, {name: mean for name, (mean, _) in terms.means.items()}


def assert_learns(model, batch):
    """Tests if a few steps on a batch lower its loss."""
    model.compile(keras.optimizers.Adam(1e-2), clip_norm=5.0)
    before = np.mean(model.scores(batch, SEED)["nll"].values)
    repeated = tf.data.Dataset.from_tensors(batch).repeat()
    model.fit(repeated, steps_per_epoch=15, shuffle=False, verbose=0)
    assert np.mean(model.scores(batch, SEED)["nll"].values) < 0.7 * before
