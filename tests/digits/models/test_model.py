"""Digit models that are called without images."""

import numpy as np
import pytest
import tensorflow as tf

from digits.config import PortionsConfig, STNConfig
from digits.models.portions import Portions
from digits.models.stn import STN
from tests.digits.models.small_models import terms_of

MODELS = {
    "stn": lambda: STN(STNConfig(output_size=8, filters=2, hidden_dim=4), 12, classes=7),
    "portions": lambda: Portions(PortionsConfig(filters=1, annotation_dim=4, attention="hard"), 2),
}
"""Constructors of small models."""


def make_batch(name: str, count: int) -> dict[str, np.ndarray]:
    """Images of noise that a model of `MODELS` takes, with labels."""
    rng = np.random.default_rng(0)
    strips = name == "portions"
    images = rng.uniform(size=[count, *((28, 56) if strips else (12, 12)), 1])
    labels = rng.integers(0, 7, [count, 2] if strips else [count])
    return {"images": images.astype(np.float32), "labels": labels.astype(np.int32)}


@pytest.mark.parametrize("name", MODELS)
def test_a_batch_without_images_adds_no_gradient(name: str):
    model = MODELS[name]()
    with tf.GradientTape() as tape:
        loss, _ = terms_of(model, make_batch(name, 0))
        share = tf.math.multiply_no_nan(loss, 0.0)  # as in the train step
    gradients = tape.gradient(share, model.trainable_variables)
    known = [tf.convert_to_tensor(gradient) for gradient in gradients if gradient is not None]
    assert known and not any(np.any(gradient) for gradient in known)
