"""Baselines with a state: the moving average by its equation, the learned one by what it moves."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from sat_tf.objectives.estimators import LearnedBaseline, MovingAverageBaseline


@pytest.mark.parametrize("decay", [0.9, 0.5])
def test_the_moving_average_follows_its_equation_after_the_first_value(decay):
    baseline = MovingAverageBaseline(decay)
    update, use = tf.function(baseline.update), tf.function(baseline)
    expected = -8.0
    for mean_return in (-8.0, -6.0, -7.0, 3.0):
        # The baseline of a batch is that of the batches before, or of the first itself.
        np.testing.assert_allclose(use(tf.constant(mean_return)), expected, rtol=1e-6)
        update(tf.constant(mean_return))
        expected = decay * expected + (1 - decay) * mean_return
        np.testing.assert_allclose(baseline.value, expected, rtol=1e-6)


def test_the_moving_average_is_saved_and_restored_with_its_start():
    baseline = MovingAverageBaseline()
    baseline.update(-8.0)
    copy = MovingAverageBaseline.from_config(baseline.get_config())
    copy.set_weights(baseline.get_weights())
    np.testing.assert_allclose(copy(tf.constant(-6.0)), -8.0)
    copy.update(-6.0)
    np.testing.assert_allclose(copy.value, -0.9 * 8.0 - 0.1 * 6.0, rtol=1e-6)
    assert not copy.trainable_weights
    name = keras.saving.get_registered_name(MovingAverageBaseline)
    assert keras.saving.get_registered_object(name) is MovingAverageBaseline


def test_the_learned_baseline_starts_at_nought_and_is_restored():
    baseline = LearnedBaseline(3, 5)
    hidden = np.random.default_rng(0).normal(size=[2, 4, 3]).astype(np.float32)
    np.testing.assert_array_equal(baseline(hidden), np.zeros([2, 4]))
    baseline.set_weights([np.ones(w.shape) for w in baseline.weights])
    registered = keras.saving.get_registered_object("sat_tf>LearnedBaseline")
    copy = registered.from_config(baseline.get_config())
    copy.set_weights(baseline.get_weights())
    expected = np.tanh(hidden.sum(-1, keepdims=True) + 1) * np.ones(5)
    np.testing.assert_allclose(copy(hidden), expected.sum(-1) + 1, rtol=1e-5)
    scale = np.arange(4.0, dtype=np.float32)
    np.testing.assert_allclose(copy(hidden, scale), scale * copy(hidden), rtol=1e-6)


def test_the_learned_baseline_gives_the_state_no_gradient():
    baseline = LearnedBaseline(3)
    baseline.set_weights([np.ones(w.shape) for w in baseline.weights])
    hidden = tf.ones([2, 3])
    with tf.GradientTape() as tape:
        tape.watch(hidden)
        loss = tf.reduce_sum(baseline(hidden))
    gradients = tape.gradient(loss, [hidden, *baseline.trainable_variables])
    assert gradients[0] is None
    assert all(np.abs(gradient).max() > 0.0 for gradient in gradients[1:])
