"""The first state and the cell against plain NumPy."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from sat_tf.layers import AttentionLSTMCell, InitialState
from sat_tf.layers.lstm import State
from tests.sat_tf.layers.decoder_numpy import (
    B,
    D,
    M,
    N,
    build,
    initial,
    lstm,
    random,
    run_both_ways,
)


def test_the_cell_is_equations_1_to_3():
    cell = build(AttentionLSTMCell(N, M), (None, M + D))
    embeddings, context = random(B, M, seed=30), random(B, D, seed=31)
    hidden, cell_state = random(B, N, seed=32), random(B, N, seed=33)
    got = run_both_ways(
        lambda e, z, h, c: cell.step(cell.project_words(e), cell.project_context(z), State(h, c)),
        *(tf.constant(x) for x in (embeddings, context, hidden, cell_state)),
    )
    expected = lstm(cell, embeddings, context, hidden, cell_state)
    np.testing.assert_allclose(got.hidden, expected[0], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(got.cell, expected[1], rtol=1e-4, atol=1e-6)


def test_each_recurrent_gate_starts_orthogonal_and_different():
    cell = AttentionLSTMCell(N, M)
    cell.build((None, M + D))
    gates = np.split(cell.recurrent_projection.kernel.numpy(), 4, axis=-1)
    for gate in gates:
        np.testing.assert_allclose(gate @ gate.T, np.eye(N), atol=1e-5)
    for one, other in itertools.combinations(gates, 2):
        assert np.abs(one - other).max() > 0.1


def test_without_layers_the_initial_state_is_zero_for_every_image():
    layer = InitialState(N, 0)
    layer.build((None, D))
    state = layer(random(B, D, seed=30))
    assert layer.weights == []
    np.testing.assert_array_equal(state.hidden, np.zeros([B, N]))
    np.testing.assert_array_equal(state.cell, np.zeros([B, N]))


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_the_initial_state_is_two_mlps_of_the_mean_annotation(layers):
    layer = build(InitialState(N, layers), (None, D))
    mean = random(B, D, seed=30)
    got = run_both_ways(lambda x: layer(x), mean)
    expected = initial(layer, mean)
    np.testing.assert_allclose(got.hidden, expected[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(got.cell, expected[1], rtol=1e-4, atol=1e-5)
    assert len(layer.weights) == 2 * 2 * layers
    assert np.abs(expected[0] - expected[1]).max() > 1e-2
