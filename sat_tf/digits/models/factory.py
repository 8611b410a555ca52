"""The model that a configuration asks for."""

from __future__ import annotations

from collections.abc import Sequence

from sat_tf.digits.config import DRAMConfig, RAMConfig, STNConfig
from sat_tf.digits.models.dram import DRAM
from sat_tf.digits.models.ram import RAM
from sat_tf.digits.models.stn import STN
from sat_tf.dtype_policy import default_policy


def build(
    config: RAMConfig | DRAMConfig | STNConfig,
    image_size: int,
    answers: Sequence[str],
    policy: str = "float32",
) -> RAM | DRAM | STN:
    """Builds a model of single images with new weights.

    Args:
        config: Of the model.
        image_size: Side of the square images, pixels.
        answers: Names of the classes.
        policy: Keras' dtype policy; RAM and DRAM are always float32.
    """
    # Only convolutions profit from another precision.
    kinds = {STNConfig: (STN, {"dtype": policy}), RAMConfig: (RAM, {}), DRAMConfig: (DRAM, {})}
    kind, options = kinds[type(config)]
    with default_policy("float32"):
        model = kind(config, image_size, len(answers), **options)
    model.answers = answers
    return model
