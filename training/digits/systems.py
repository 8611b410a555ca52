"""What the fit and the evaluation need to know of each digit system."""

from __future__ import annotations

import functools
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


def _stn(pairs: bool) -> System:
    from sat_tf.models.stn import STN

    return System(lambda config: _sized(STN, config), _canvases(pairs))


def _ram(pairs: bool) -> System:
    from sat_tf.models.ram import RAM

    return System(lambda config: _sized(RAM, config), _canvases(pairs))


def _dram() -> System:
    from sat_tf.models.dram import DRAM

    return System(lambda config: _sized(DRAM, config), _canvases(pairs=True))


def _sized(kind: type[DigitModel], config: DigitRunConfig) -> DigitModel:
    """A model for the run's canvas and the answers that there are."""
    return kind(config.model, config.data.size, config.data.classes)


def _canvases(pairs: bool) -> Draw:
    from training.digits import canvases

    return canvases.draw_pairs if pairs else canvases.draw_canvases


_SYSTEMS: dict[str, Callable[[], System]] = {
    "portions": _portions,
    "stn": functools.partial(_stn, pairs=False),
    "ram": functools.partial(_ram, pairs=False),
    "pairs_stn": functools.partial(_stn, pairs=True),
    "pairs_ram": functools.partial(_ram, pairs=True),
    "pairs_dram": _dram,
}
