"""Published digit models of a few random weights, and a drawing for them."""

import dataclasses
from pathlib import Path

import keras
import numpy as np

from digits.config import RECIPES, DigitRunConfig
from digits.evaluate import new_model
from digits.publish import small
from digits.reader import CARD, write_reader

GLIMPSES = {"glimpse_size": 8, "glimpse_dim": 8, "hidden_dim": 8, "location_hidden_dim": 8}
MODELS = {
    "ram": {"glimpses": 3, "first_location": "random", "glimpse_hidden_dim": 8, **GLIMPSES},
    "dram": {"glimpses": 2, "scales": 3, "glimpse_filters": 2, "context_filters": 2, **GLIMPSES},
    "stn": {"filters": 2, "localisation_filters": 2, "localisation_dim": 4, "hidden_dim": 8},
}


def config_of(system: str) -> DigitRunConfig:
    """The configuration of a run of such a model."""
    recipe = RECIPES[{"ram": "ram_28", "dram": "dram_pairs", "stn": "stn_rts"}[system]]
    return dataclasses.replace(recipe, model=dataclasses.replace(recipe.model, **MODELS[system]))


def model_of(system: str):
    """A model of a system, with the same random weights each time."""
    keras.utils.set_random_seed(2)
    return new_model(config_of(system))


def drawing(side: int = 200) -> np.ndarray:
    """Two bars next to each other."""
    pixels = np.zeros([side, side], np.uint8)
    pixels[side // 4 : 3 * side // 4, side // 4 : side // 4 + 12] = 255
    pixels[side // 3 : 3 * side // 4, 3 * side // 5 : 3 * side // 5 + 12] = 255
    return pixels


def publish(folder: Path, system: str) -> Path:
    """Publishes a model of a system."""
    write_reader(folder, *small(model_of(system), config_of(system)))
    (folder / CARD).write_text("# A card\n", "utf-8")
    return folder
