"""Draws from seeds, and batches without rows."""

import numpy as np
import pytest
import tensorflow as tf

from sat_tf.config import AttentionConfig
from sat_tf.layers.attention import additive_scores
from sat_tf.objectives.hard import HardObjective
from sat_tf.ops import at_least_one_row, dropout, uniform
from tests.sat_tf.layers.decoder_numpy import SEED
from training.run.strategy import make_strategy


@pytest.mark.parametrize("rate", [0.3, 0.0123, 0.996])
def test_a_share_of_the_inputs_is_dropped_and_the_rest_scaled(rate):
    outputs = dropout(tf.ones([2000, 1000]), rate, SEED, 0).numpy()
    assert abs((outputs == 0.0).mean() - rate) < 5 * (rate * (1 - rate) / 2e6) ** 0.5
    np.testing.assert_allclose(np.unique(outputs), [0.0, 1.0 / (1.0 - rate)], rtol=1e-5)


def test_dropout_masks_are_fixed_by_seed_and_salt():
    def mask(seed, salt):
        return dropout(tf.ones([200]), 0.5, tf.constant(seed), salt).numpy()

    np.testing.assert_array_equal(mask([1, 2], 0), mask([1, 2], 0))
    assert np.any(mask([1, 2], 0) != mask([1, 3], 0))
    assert np.any(mask([1, 2], 0) != mask([1, 2], 1))
    inputs = tf.ones([3])
    assert dropout(inputs, 0.5, None, 0) is inputs
    assert dropout(inputs, 0.0, SEED, 0) is inputs


@pytest.mark.parametrize(
    "draw",
    [
        lambda seed: uniform([50, 70], seed),
        lambda seed: dropout(tf.ones([50, 70]), 0.5, seed, 0),
        lambda seed: HardObjective(AttentionConfig("hard")).draw_expectation(seed, 90),
    ],
)
def test_draws_are_the_same_with_xla(draw):
    plain, compiled = (tf.function(draw, jit_compile=jit)(SEED) for jit in (False, True))
    np.testing.assert_array_equal(plain, compiled)
    assert len(np.unique(plain)) > 1


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


@pytest.mark.parametrize("rows", [1, 4])
def test_scores_are_no_product_of_four_axes(rows):
    """TensorFlow 2.21 corrupts memory in those (issue 117700) where oneDNN has AVX-512."""
    rng = np.random.default_rng(0)
    shapes = [3, rows, 6], [3, 5, 6], [6]
    factors = [tf.constant(rng.normal(size=shape), tf.float32) for shape in shapes]

    @tf.function
    def gradient(queries, keys, vector):
        with tf.GradientTape() as tape:
            tape.watch(queries)
            found = additive_scores(queries, keys, vector)
        return tape.gradient(found, queries)

    operations = gradient.get_concrete_function(*factors).graph.get_operations()
    products = [operation for operation in operations if "MatMul" in operation.type]
    assert products
    for product in products:
        assert all(axes.shape.rank == 2 for axes in product.inputs), product.name
