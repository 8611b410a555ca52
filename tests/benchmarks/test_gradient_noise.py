"""The variance of gradients: hand-made estimates, then those of a small captioner."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from benchmarks.gradient_noise import AttentionGradient, Noise, cosine, noise_of
from sat_tf.config import CaptionerConfig, DecoderConfig, EncoderConfig
from sat_tf.models.captioner import Captioner
from training.recipes.captioning import RECIPES


def test_the_noise_of_two_draws_by_hand():
    draws = np.array([[1.0, 0.0], [3.0, 0.0]])
    # The mean (2, 0) has 4 as its squared norm, half of the variance of a draw among it.
    noise = noise_of(lambda number: draws[number], 2)
    assert (noise.variance, noise.signal, *noise.mean) == (2.0, 3.0, 2.0, 0.0)


def test_an_estimator_of_known_variance():
    rng, mean, deviation = np.random.default_rng(0), np.array([3.0, 0.0, 4.0]), [1.0, 2.0, 5.0]
    noise = noise_of(lambda _: rng.normal(mean, deviation), 20_000)
    assert noise.variance == pytest.approx(30.0, rel=0.02)
    assert noise.signal == pytest.approx(25.0, rel=0.02)
    assert noise.relative == pytest.approx(1.2, rel=0.03)


def test_the_signal_is_not_raised_by_few_draws():
    rng = np.random.default_rng(0)
    found = [noise_of(lambda _: rng.normal([1.0, 0.0], 3.0), 2).signal for _ in range(20_000)]
    assert np.mean(found) == pytest.approx(1.0, abs=0.2)


def test_a_scale_changes_both_and_not_their_ratio():
    draws = np.random.default_rng(0).normal(1.0, 1.0, [8, 3])
    one, ten = (noise_of(lambda n, s=s: s * draws[n], 8) for s in (1.0, 10.0))
    assert ten.variance == pytest.approx(100 * one.variance)
    assert ten.relative == pytest.approx(one.relative)


def test_a_mean_that_noise_hides_has_no_relative_variance():
    noise = noise_of(lambda number: np.array([(-1.0) ** number]), 2)
    assert noise.signal < 0 and noise.relative is None


def test_the_cosine_of_noisy_means_is_that_of_the_means():
    rng, means = np.random.default_rng(0), ([3.0, 4.0], [4.0, 3.0])
    one, other = (noise_of(lambda _, m=m: rng.normal(m, 10.0), 20_000) for m in means)
    assert cosine(one, other) == pytest.approx(0.96, abs=0.03)
    assert cosine(one, Noise(1.0, -0.1, one.mean)) is None


def test_one_draw_is_an_error():
    with pytest.raises(ValueError, match="`draws`: expected 2 or more, got 1"):
        noise_of(lambda _: np.zeros(2), 1)


def captioner(**attention) -> Captioner:
    config = CaptionerConfig(
        EncoderConfig("scenes_cnn", trainable=True, image_size=16),
        DecoderConfig(embedding_dim=4, attention_dim=5, hidden_dim=6),
        dataclasses.replace(RECIPES["scenes_hard"].attention, **attention),
    )
    return Captioner(config, 9)


@pytest.fixture
def batches() -> list[dict]:
    rng = np.random.default_rng(0)
    return [
        {
            "images": rng.integers(0, 256, [4, 16, 16, 3], np.uint8),
            "tokens": np.array([[1, 4, 5, 6, 2]] * 3 + [[1, 7, 8, 2, 0]], np.int32),
        }
        for _ in range(2)
    ]


def test_only_the_draws_differ_and_batches_add_up(batches):
    expected = AttentionGradient(captioner(expectation_probability=1.0), batches).noise(4)
    assert expected.variance == pytest.approx(0.0, abs=1e-6 * expected.signal)
    assert expected.signal > 0
    model = captioner(expectation_probability=0.0)
    drawn = AttentionGradient(model, batches)
    same, again, other = (drawn.noise(4, first) for first in (1, 1, 5))
    np.testing.assert_array_equal(same.mean, again.mean)
    assert np.any(same.mean != other.mean)
    alone = AttentionGradient(model, batches[:1]).noise(4)
    size = sum(np.size(w) for w in model.decoder.attention.trainable_variables)
    assert same.mean.shape == (2 * size,) and alone.mean.shape == (size,)
    assert same.variance > alone.variance > 0


def test_the_moving_average_is_where_it_settles(batches):
    model = captioner()
    AttentionGradient(model, batches)
    # Nine words, none known better than by chance yet.
    assert float(model.baseline.value) == pytest.approx(-3.75 * np.log(9), rel=0.1)
