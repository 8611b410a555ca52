"""Every recipe of canvases and pairs: its data fit its model."""

import numpy as np
import pytest
import tensorflow as tf

from digits.config import RECIPES
from digits.data import Digits, scoring_batches
from digits.evaluate import new_model

SEED = tf.constant([3, 5])
CANVASES = [config for config in RECIPES.values() if config.system != "portions"]


@pytest.fixture(scope="module")
def digits():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, [20, 28, 28]).astype(np.uint8)
    return Digits(images, np.arange(20) % 10)


@pytest.mark.parametrize("config", CANVASES, ids=lambda config: config.recipe)
def test_a_recipes_model_reads_its_data(digits, config):
    batch = next(scoring_batches(digits[:2], config.data, "dev"))
    model = new_model(config)
    assert batch["images"].shape == (2, config.data.size, config.data.size, 1)
    assert tf.reduce_max(batch["labels"]) < len(config.data.answers)
    scores = model.scores(batch, SEED)
    assert scores["error"].values.shape == (2,)
    assert np.isfinite(scores["nll"].values).all()
