"""The optimiser asked for, its schedule, and two learning rates in one."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from sat_tf.train_step import Terms, TrainableModel
from training.run.config import OptimizerConfig
from training.run.optimizers import SummedGradients, make_optimizer, make_schedule
from training.run.strategy import make_strategy

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
    own_rate = config.encoder_learning_rate
    optimizer = make_optimizer(config, STEPS, 1, [variables[index] for index in own], own_rate)
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


class Squares:
    """Mean of the outputs' squares."""

    log_names = ()

    def __call__(self, model, batch, seed, global_size):
        return Terms(tf.reduce_mean(model.layer(batch["images"]) ** 2), {})


class Parabola(TrainableModel):
    """A train step with next to no model."""

    def __init__(self):
        super().__init__()
        self.layer = keras.layers.Dense(3)
        self.layer.build([None, 1])
        self.objective = Squares()
        self.built = True


def kernel_after_a_step(optimizer, strategy) -> np.ndarray:
    """After a step on a batch that the replicas share."""
    with strategy.scope():
        keras.utils.set_random_seed(0)
        model = Parabola()
        model.compile(optimizer=optimizer(), clip_norm=0.5)
    images = np.random.default_rng(0).normal(size=[8, 1]).astype(np.float32)
    batches = tf.data.Dataset.from_tensor_slices({"images": images}).batch(8)
    model.fit(batches, shuffle=False, verbose=0)
    return model.layer.kernel.numpy()


@pytest.mark.parametrize("ours", [True, False])
def test_gradients_are_sent_around_once_and_come_to_the_same(ours, monkeypatch):
    sent, theirs = [], keras.optimizers.SGD
    all_reduce = tf.distribute.ReplicaContext.all_reduce

    def counted(context, op, value, options=None):
        sent.append([int(np.prod(part.shape)) for part in tf.nest.flatten(value)])
        return all_reduce(context, op, value, options)

    monkeypatch.setattr(tf.distribute.ReplicaContext, "all_reduce", counted)
    # Of plain gradient descent: Adam's steps are the same whatever its gradients are multiplied by.
    kind = type("Ours", (SummedGradients, theirs), {}) if ours else theirs
    found = kernel_after_a_step(lambda: kind(0.1), make_strategy("mirrored"))
    # Kernel and bias, by each of the replicas; with Keras' own optimiser twice.
    assert sent.count([3, 3]) == (2 if ours else 4)
    monkeypatch.undo()
    wanted = kernel_after_a_step(lambda: theirs(0.1), tf.distribute.get_strategy())
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
