"""Configuration of a published digit model: all that reading a drawing needs. No TensorFlow."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sat_tf.config import SYSTEM_KEY
from sat_tf.digits.config import DRAMConfig, RAMConfig, STNConfig, Target, answer_names
from sat_tf.errors import other_version
from sat_tf.fields import Positive, PositiveInt, check_fields, from_dict, to_dict
from sat_tf.run_folder import RunFolder

MODELS = {"ram": RAMConfig, "dram": DRAMConfig, "stn": STNConfig}
"""Configuration of each kind of model that is published."""


@dataclass(frozen=True)
class ReaderConfig:
    """Kind of a digit model, and the look of its images."""

    system: Literal["ram", "dram", "stn"]
    """Kind of the model."""
    recipe: str
    """Recipe it was trained by."""
    target: Target
    """The question about an image."""
    image_size: PositiveInt
    """Side of the square images, pixels."""
    ink_from: Positive
    """Length of the shortest digits of training, pixels."""
    ink_to: Positive
    """Length of the longest."""
    model: RAMConfig | DRAMConfig | STNConfig
    """Of the model."""

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def answers(self) -> tuple[str, ...]:
        """Names of the classes."""
        return answer_names(self.target)

    @property
    def digits(self) -> int:
        """Digits per image."""
        return 1 if self.target == "digit" else 2

    def to_text(self) -> str:
        """Returns the content of the configuration's file."""
        return json.dumps(to_dict(self), indent=1) + "\n"


def read_reader_config(folder: Path) -> ReaderConfig:
    """Reads the configuration of a published digit model.

    Raises:
        RunError: It is damaged, or of another version.
    """
    path = RunFolder(folder).config
    try:
        values = json.loads(path.read_text("utf-8"))
        model = from_dict(MODELS[values[SYSTEM_KEY]], values.pop("model"))
        hints = {field.name for field in dataclasses.fields(ReaderConfig)} - {"model"}
        if values.keys() != hints:
            raise ValueError(f"expected the keys {', '.join(sorted(hints))}.")
        return from_dict(ReaderConfig, {**values, "model": model})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise other_version(path, error) from error
