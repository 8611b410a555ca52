"""The optimiser asked for, its schedule, and two learning rates in one."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from training.run.build import make_optimizer, make_schedule
from training.run.config import OptimizerConfig

STEPS = 6


def rates(config: OptimizerConfig, steps: int, epochs: int) -> list[float]:
    rate = make_schedule(config, steps, epochs)
    if not callable(rate):
        return [float(rate)] * (steps * epochs + 1)
    return [float(rate(step)) for step in range(steps * epochs + 1)]


def test_cosine_rises_over_the_warmup_and_ends_at_zero():
    found = rates(OptimizerConfig(learning_rate=0.5, schedule="cosine", warmup_epochs=0.5), 10, 4)
    assert found[0] == 0.0 and found[5] == pytest.approx(0.5) == max(found)
    assert found[-1] == pytest.approx(0.0, abs=1e-7)
    assert all(a > b for a, b in zip(found[5:], found[6:], strict=False))


def path_of(variables, config, own=()) -> list[np.ndarray]:
    """Returns the variables after each of a few steps."""
    optimizer = make_optimizer(config, STEPS, 1, [variables[index] for index in own])
    optimizer.build(variables)
    rng, found = np.random.default_rng(0), []
    for _ in range(STEPS):
        gradient = tf.constant(rng.normal(size=3), tf.float32)
        optimizer.apply_gradients([(gradient, variable) for variable in variables])
        found.append([variable.numpy() for variable in variables])
    return list(np.moveaxis(found, 1, 0))


def two() -> list[keras.Variable]:
    return [keras.Variable([1.0, -2.0, 0.5], trainable=True, name=name) for name in "ab"]


def options(name: str, rate: float) -> dict:
    decay = 0.3 if name == "adamw" else 0.0
    shape = {"schedule": "cosine", "warmup_epochs": 0.5, "weight_decay": decay}
    return {"name": name, "learning_rate": rate, **shape}


THEIRS = {
    "adam": keras.optimizers.Adam,
    "adamw": lambda rate: keras.optimizers.AdamW(rate, weight_decay=0.3),
}


@pytest.mark.parametrize("name", THEIRS)
def test_steps_and_decay_are_those_of_keras(name):
    config = OptimizerConfig(**options(name, 0.1))
    theirs, rng = two(), np.random.default_rng(0)
    optimizer = THEIRS[name](make_schedule(config, STEPS, 1))
    for wanted in zip(*path_of(two(), config), strict=True):
        gradient = tf.constant(rng.normal(size=3), tf.float32)
        optimizer.apply_gradients([(gradient, variable) for variable in theirs])
        np.testing.assert_allclose([variable.numpy() for variable in theirs], wanted, rtol=1e-6)


@pytest.mark.parametrize("name", ["adam", "adamw", "rmsprop"])
def test_the_encoder_learns_at_its_own_rate_on_the_same_schedule(name):
    config = OptimizerConfig(**options(name, 0.1), encoder_learning_rate=0.004)
    encoder, decoder = path_of(two(), config, own=[0])
    for found, rate in ((encoder, 0.004), (decoder, 0.1)):
        wanted, _ = path_of(two(), OptimizerConfig(**options(name, rate)))
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-7)
    assert np.abs(encoder[-1] - encoder[0]).min() > 1e-4
