"""The first state, the cell and the loop over time against plain NumPy."""

import itertools
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from sat_tf.layers import AttentionLSTMCell, InitialState
from sat_tf.layers.lstm import State, unroll
from tests.sat_tf.layers.decoder_numpy import (
    B,
    D,
    M,
    N,
    T,
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


class Both(NamedTuple):
    state: tf.Tensor
    total: tf.Tensor


SPEC = Both(tf.TensorSpec([None, N], tf.float32), tf.TensorSpec([None], tf.float32))


def inputs(steps=T):
    rng = np.random.default_rng(0)
    return {
        "x": rng.normal(size=[steps, B, N]).astype(np.float32),
        "scale": rng.normal(size=[steps]).astype(np.float32),
    }


def step(inputs_t, state):
    (hidden, time) = state
    hidden = tf.tanh(hidden + inputs_t["scale"] * inputs_t["x"])
    time += 1.0
    return Both(hidden, tf.reduce_sum(hidden, axis=-1) * time[:, 0]), (hidden, time)


def by_hand(values):
    hidden, outputs, totals = np.zeros([B, N]), [], []
    for time, (x, scale) in enumerate(zip(values["x"], values["scale"], strict=True), start=1):
        hidden = np.tanh(hidden + scale * x)
        outputs.append(hidden)
        totals.append(hidden.sum(-1) * time)
    return np.stack(outputs), np.stack(totals)


def run(values):
    return unroll(step, (tf.zeros([B, N]), tf.zeros([B, 1])), values, SPEC)


@pytest.mark.parametrize("wrap", [lambda f: f, tf.function], ids=["eager", "graph"])
def test_unroll_equals_a_python_loop(wrap):
    outputs, (hidden, time) = wrap(run)(inputs())
    states, totals = by_hand(inputs())
    assert isinstance(outputs, Both)
    np.testing.assert_allclose(outputs.state, states, rtol=1e-5)
    np.testing.assert_allclose(outputs.total, totals, rtol=1e-5)
    np.testing.assert_allclose(hidden, states[-1], rtol=1e-5)
    np.testing.assert_array_equal(time, np.full([B, 1], T))
