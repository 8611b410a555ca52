"""What the fit and the evaluation need to know of each digit system."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from training.digits.config import DigitRunConfig
from training.digits.mnist import Digits

if TYPE_CHECKING:
    from sat_tf.models.digit_model import DigitModel

Draw = Callable[[Digits, np.ndarray, np.random.Generator, Any], dict[str, np.ndarray]]
"""`(digits, rows [B, k], rng, configuration of the data) -> arrays [B, ...]`.

`images` among them are uint8 `[B, H, W]`.
"""


@dataclass(frozen=True)
class System:
    """A model of digits and the data set it is trained on.

    Attributes:
        make_model: Gives the model of a run's configuration, with new weights, not compiled.
        draw: Makes examples of digits; see `Draw`.
    """

    make_model: Callable[[DigitRunConfig], DigitModel]
    draw: Draw


def system(config: DigitRunConfig) -> System:
    """The system of a run."""
    return _SYSTEMS[config.system]()


def _portions() -> System:
    from sat_tf.models.portions import Portions
    from training.digits.strips import draw

    return System(lambda config: Portions(config.model, config.data.portions), draw)


_SYSTEMS: dict[str, Callable[[], System]] = {"portions": _portions}
