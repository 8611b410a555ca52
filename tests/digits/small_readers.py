"""Published digit models of a few random weights, and a drawing for them."""

from pathlib import Path

import keras
import numpy as np

import digits
from digits.models.config import DRAMConfig, RAMConfig, ReaderConfig, STNConfig
from digits.reader import build
from sat_tf.inference import published
from sat_tf.inference.packing import pack
from sat_tf.inference.weights import weight_arrays

GLIMPSES = {"glimpse_size": 8, "glimpse_dim": 8, "hidden_dim": 8, "location_hidden_dim": 8}
CONFIGS = {
    "ram": ReaderConfig(
        *("ram", "ram_28", "digit", 28, 20.0, 20.0),
        RAMConfig(glimpses=3, first_location="random", glimpse_hidden_dim=8, **GLIMPSES),
    ),
    "dram": ReaderConfig(
        *("dram", "dram_pairs", "pair", 60, 20.0, 20.0),
        DRAMConfig(glimpses=2, scales=3, glimpse_filters=2, context_filters=2, **GLIMPSES),
    ),
    "stn": ReaderConfig(
        *("stn", "stn_rts", "digit", 42, 14.0, 24.0),
        STNConfig(filters=2, localisation_filters=2, localisation_dim=4, hidden_dim=8),
    ),
}


def drawing(side: int = 200) -> np.ndarray:
    """Two bars, one beside the other."""
    pixels = np.zeros([side, side], np.uint8)
    pixels[side // 4 : 3 * side // 4, side // 4 : side // 4 + 12] = 255
    pixels[side // 3 : 3 * side // 4, 3 * side // 5 : 3 * side // 5 + 12] = 255
    return pixels


def write_reader(folder: Path, system: str) -> Path:
    """Publishes a model of a system."""
    config = CONFIGS[system]
    keras.utils.set_random_seed(2)
    model = build(config.model, config.image_size, config.answers)
    contents = {
        published.CONFIG: config.to_text().encode(),
        digits.WEIGHTS: pack(weight_arrays(model)),
    }
    published.write(folder, contents)
    (folder / published.CARD).write_text("# A card\n", "utf-8")
    return folder
