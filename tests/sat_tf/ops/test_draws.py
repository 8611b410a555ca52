"""Dropout by seeds: rate, masks, and the places where the decoder applies it; seeds of steps."""

import numpy as np
import pytest
import tensorflow as tf

from sat_tf.config import AttentionConfig
from sat_tf.objectives.hard import HardObjective
from sat_tf.ops.draws import dropout, step_seeds, uniform
from tests.sat_tf.layers.decoder_numpy import SEED, make_batch, make_decoder


@pytest.mark.parametrize(
    ("rate", "share"),
    [(0.3, 77 / 256), (0.2, 51 / 256), (0.1, 0.1), (0.0123, 0.0123), (0.996, 255 / 256)],
)
def test_a_rate_is_met_to_a_hundredth_or_to_one_draw_in_65536(rate, share):
    size = 2e6
    outputs = dropout(tf.ones([2000, 1000]), rate, SEED, 0).numpy()
    assert abs((outputs == 0.0).mean() - share) < 5 * (share * (1 - share) / size) ** 0.5
    # The scale is that of the share really dropped.
    np.testing.assert_allclose(np.unique(outputs), [0.0, 1.0 / (1.0 - share)], rtol=2e-4)


def test_dropout_masks_are_fixed_by_seed_and_salt():
    def mask(seed, salt):
        return dropout(tf.ones([200]), 0.5, tf.constant(seed), salt).numpy()

    np.testing.assert_array_equal(mask([1, 2], 0), mask([1, 2], 0))
    assert np.any(mask([1, 2], 0) != mask([1, 3], 0))
    assert np.any(mask([1, 2], 0) != mask([1, 2], 1))
    inputs = tf.ones([3])
    assert dropout(inputs, 0.5, None, 0) is inputs
    assert dropout(inputs, 0.0, SEED, 0) is inputs


def test_a_shared_axis_has_one_mask():
    outputs = dropout(tf.ones([4, 3, 50]), 0.5, SEED, 0, shared_axis=1).numpy()
    # The one that a single row would have.
    one = dropout(tf.ones([4, 1, 50]), 0.5, SEED, 0)
    np.testing.assert_array_equal(outputs, np.repeat(one, 3, axis=1))


DROPOUTS = (
    "annotation_dropout",
    "initial_dropout",
    "embedding_dropout",
    "hidden_dropout",
    "output_dropout",
)


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


def test_uniform_draws_are_those_of_tensorflow():
    np.testing.assert_array_equal(uniform([5000], SEED), tf.random.stateless_uniform([5000], SEED))


def test_no_two_dropouts_share_random_numbers_nor_do_the_samples(monkeypatch):
    """Two draws from one seed would begin with the same random numbers."""
    seeds = []

    def spy(inputs, rate, seed, salt, shared_axis=None):
        if rate:
            seeds.append(tf.random.experimental.stateless_fold_in(seed, salt))
        return inputs

    for module in ("decoder", "deep_output", "lstm"):
        monkeypatch.setattr(f"sat_tf.layers.{module}.dropout", spy)
    decoder = make_decoder(initial_layers=3, **dict.fromkeys(DROPOUTS, 0.5))
    decoder(*make_batch(), seed=SEED, training=True)
    assert len(seeds) == 2 * 2 + 4
    seeds += list(step_seeds(SEED, 50))
    assert len({tuple(seed.numpy()) for seed in seeds}) == len(seeds)
