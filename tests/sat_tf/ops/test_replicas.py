"""Batches without rows, which a replica may get."""

import numpy as np
import pytest
import tensorflow as tf

import sat_tf
from sat_tf.ops.replicas import at_least_one_row
from training.distributed import make_strategy


@pytest.mark.parametrize("rows", [0, 1, 3])
@pytest.mark.parametrize("known", [True, False])
def test_a_function_sees_a_row_at_least(rows, known):
    seen = []

    def double(batch):
        seen.append(tf.shape(batch)[0])
        return 2.0 * batch

    def run(batch):
        return at_least_one_row(double, batch), seen.pop()

    shape = [rows if known else None, 2]
    compiled = tf.function(run, input_signature=[tf.TensorSpec(shape)], autograph=False)
    strategy = make_strategy("mirrored")
    results, counts = strategy.run(compiled, args=(np.ones([rows, 2], np.float32),))
    for result in strategy.experimental_local_results(results):
        np.testing.assert_array_equal(result, np.full([rows, 2], 2.0))
    assert {int(count) for count in strategy.experimental_local_results(counts)} == {max(rows, 1)}


def test_an_encoder_has_no_annotations_of_no_images():
    encoder = sat_tf.Encoder("scenes_cnn", 16, trainable=True)
    with tf.GradientTape() as tape:
        annotations = encoder(np.zeros([0, 16, 16, 3], np.float32), training=True)
        total = tf.reduce_sum(annotations)
    assert annotations.shape == (0, 4, 32)
    gradients = tape.gradient(total, encoder.trainable_variables)
    assert not any(np.any(gradient) for gradient in gradients)
