"""The baseline is the same mathematics as sat_tf: same weights, same loss, same gradients."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from benchmarks import models
from benchmarks.baseline import Baseline, keras_gates, train_function
from benchmarks.batches import rotation
from benchmarks.shapes import TOY


@pytest.fixture(scope="module")
def sides():
    """Both sides with the same wide weights, biases among them, and a padded batch."""
    config = models.run_config(TOY)
    model = models.captioner(TOY, config)
    rng = np.random.default_rng(5)
    model.decoder.set_weights([0.4 * rng.normal(size=w.shape) for w in model.decoder.weights])
    baseline = Baseline(TOY, config)
    baseline.copy_weights(model.decoder)
    (batch, *_) = rotation(TOY, 5, bucketed=False, dtype="float32").batches
    return model, baseline, batch


def loss_of(model, batch):
    return model.objective.terms(model(batch), batch["tokens"][:, 1:]).loss


def test_same_weights_same_loss(sides):
    model, baseline, batch = sides
    assert model.objective.label_smoothing and model.objective.penalty_weight
    assert (batch["tokens"].numpy()[:, -1] == 0).any()
    expected = float(loss_of(model, batch))
    assert float(baseline.loss_of(batch)) == pytest.approx(expected, rel=1e-5)


def test_same_weights_same_gradients(sides):
    model, baseline, batch = sides
    cell, theirs = model.decoder.cell, baseline.lstm
    with tf.GradientTape() as tape:
        loss = loss_of(model, batch)
    kernels = (cell.recurrent_projection.kernel, model.decoder.attention.key_projection.kernel)
    recurrent, keys = tape.gradient(loss, kernels)
    with tf.GradientTape() as tape:
        loss = baseline.loss_of(batch)
    kernels = (theirs.recurrent_kernel, baseline.keys.kernel)
    their_recurrent, their_keys = tape.gradient(loss, kernels)
    np.testing.assert_allclose(their_recurrent, keras_gates(recurrent.numpy()), 1e-3, 1e-5)
    np.testing.assert_allclose(their_keys, keys, 1e-3, 1e-5)


def test_as_many_weights(sides):
    model, baseline, _ = sides
    count = sum(int(tf.size(v)) for v in model.decoder.trainable_variables)
    assert sum(int(tf.size(v)) for v in baseline.trainable_variables) == count


def test_it_drops_in_training_only(sides):
    _, baseline, batch = sides
    losses = {float(baseline.loss_of(batch, training=True)) for _ in range(3)}
    assert len(losses) == 3
    assert float(baseline.loss_of(batch)) == float(baseline.loss_of(batch))


def test_compiled_steps_move_every_weight():
    baseline = Baseline(TOY, models.run_config(TOY))
    (batch, *_) = rotation(TOY, 5, bucketed=False, dtype="float32").batches
    train = train_function(baseline, TOY)
    before = [v.numpy() for v in baseline.trainable_variables]
    # The learning rate of the first step is zero.
    assert np.isfinite([float(train(batch)) for _ in range(2)]).all()
    for old, variable in zip(before, baseline.trainable_variables, strict=True):
        assert not np.array_equal(old, variable), variable.path
