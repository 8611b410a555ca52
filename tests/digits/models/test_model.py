"""The weights of a digit system: all of them in layers that are its attributes."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from digits.models.config import DRAMConfig, PortionsConfig, RAMConfig, STNConfig
from digits.models.model import DigitModel
from digits.models.portions import Portions
from digits.models.recurrent_attention import DRAM, RAM
from digits.models.stn import STN
from tests.digits.models.small_models import terms_of
from training.distributed import make_strategy

LOOKS = {"glimpses": 2, "glimpse_size": 4, "glimpse_dim": 8, "hidden_dim": 6}
MODELS = {
    "ram": lambda: RAM(RAMConfig(**LOOKS, core="lstm", baseline="learned"), 12, classes=7),
    "dram": lambda: DRAM(DRAMConfig(**LOOKS, glimpse_filters=2, context_filters=2), 12, 7),
    "stn": lambda: STN(STNConfig(output_size=8, filters=2, hidden_dim=4), 12, classes=7),
    "mask": lambda: STN(STNConfig(attention="mask", filters=2, hidden_dim=4), 12, classes=7),
    "portions": lambda: Portions(
        PortionsConfig(filters=1, annotation_dim=4, attention="hard", baseline="moving_average"), 2
    ),
}
"""Constructors of small models."""


def make_batch(name: str, count: int = 4) -> dict[str, np.ndarray]:
    """Images of noise that a model of `MODELS` takes, with labels."""
    rng = np.random.default_rng(0)
    strips = name == "portions"
    images = rng.uniform(size=[count, *((28, 56) if strips else (12, 12)), 1])
    labels = rng.integers(0, 7, [count, 2] if strips else [count])
    return {"images": images.astype(np.float32), "labels": labels.astype(np.int32)}


class Line(DigitModel):
    """A model of one layer."""

    def __init__(self) -> None:
        super().__init__(None)
        self.dense = keras.layers.Dense(1)
        self.dense.build((None, 3))
        self.built = True


class Loose(Line):
    """A model with a layer in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.more = [keras.layers.Dense(1)]
        self.more[0].build((None, 3))


def test_the_layers_that_are_saved_hold_every_weight():
    assert set(Line().saved_layers()) == {"dense"}
    with pytest.raises(TypeError, match="Loose in a layer"):
        Loose().saved_layers()


@pytest.mark.parametrize("name", ["stn", "mask", "portions"])
def test_a_batch_without_images_adds_no_gradient(name: str):
    model = MODELS[name]()
    with tf.GradientTape() as tape:
        loss, _ = terms_of(model, make_batch(name, 0))
        share = tf.math.multiply_no_nan(loss, 0.0)  # as in the train step
    gradients = tape.gradient(share, model.trainable_variables)
    known = [tf.convert_to_tensor(gradient) for gradient in gradients if gradient is not None]
    assert known and not any(np.any(gradient) for gradient in known)


@pytest.mark.slow
def test_two_replicas_of_which_one_gets_no_images_train_as_one_device_does():
    make = lambda: STN(STNConfig(output_size=8, filters=2, hidden_dim=4, dropout=0.0), 12)  # noqa: E731
    one = make()
    with make_strategy("mirrored").scope():
        two = make()
        two.set_weights(one.get_weights())
        two.compile(keras.optimizers.SGD(0.1), jit_compile=False)
    one.compile(keras.optimizers.SGD(0.1), jit_compile=False)
    data = tf.data.Dataset.from_tensor_slices(make_batch("stn", 3)).batch(2)
    ours, theirs = (model.fit(data, shuffle=False, verbose=0).history for model in (one, two))
    np.testing.assert_allclose(theirs["loss"], ours["loss"], rtol=1e-5)
    for ours, theirs in zip(one.weights, two.weights, strict=True):
        np.testing.assert_allclose(theirs, ours, rtol=1e-4, atol=1e-6)
