"""What the fit and the evaluation need to know of each digit system."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sat_tf import runs
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
        make_model: `(configuration, dtype policy) -> model`, with new weights, not compiled. The
            policy is that of the convolutions of an STN; other models are float32.
        draw: Makes examples of digits; see `Draw`.
    """

    make_model: Callable[[DigitRunConfig, str], DigitModel]
    draw: Draw


def system(config: DigitRunConfig) -> System:
    """The system of a run."""
    return _SYSTEMS[config.system]()


def new_model(config: DigitRunConfig) -> DigitModel:
    """The model as it is trained, with new weights, in the run's precision; not compiled."""
    policy = "mixed_bfloat16" if config.fit.precision == "bfloat16" else "float32"
    return system(config).make_model(config, policy)


def load(config: DigitRunConfig, run_dir: Path) -> DigitModel:
    """The model with a run's best weights, in float32.

    Args:
        config: The run's; its model may differ in what has no weights, to evaluate it otherwise.
        run_dir: The run's folder.

    Raises:
        RunError: There are no weights yet, or they do not fit.
    """
    weights = run_dir / runs.WEIGHTS_FILE
    if not weights.is_file():
        raise runs.RunError(
            f"{run_dir} has no {runs.WEIGHTS_FILE}: the run has not finished an epoch yet."
        )
    model = system(config).make_model(config, "float32")
    runs.load_weights(model, weights)
    return model


def _portions() -> System:
    from sat_tf.models.portions import Portions
    from training.digits.strips import draw

    return System(lambda config, _: Portions(config.model, config.data.portions), draw)


def _stn(pairs: bool) -> System:
    from sat_tf.models.stn import STN

    return System(lambda config, policy: _sized(STN, config, dtype=policy), _canvases(pairs))


def _ram(pairs: bool) -> System:
    from sat_tf.models.ram import RAM

    return System(lambda config, _: _sized(RAM, config), _canvases(pairs))


def _dram(pairs: bool) -> System:
    from sat_tf.models.dram import DRAM

    return System(lambda config, _: _sized(DRAM, config), _canvases(pairs))


def _sized(kind: type[DigitModel], config: DigitRunConfig, **kwargs) -> DigitModel:
    """A model for the run's canvas and the answers that there are."""
    model = kind(config.model, config.data.size, len(config.data.answers), **kwargs)
    model.answers = config.data.answers
    return model


def _canvases(pairs: bool) -> Draw:
    from training.digits import canvases

    return canvases.draw_pairs if pairs else canvases.draw_canvases


_SYSTEMS: dict[str, Callable[[], System]] = {
    "portions": _portions,
    "stn": functools.partial(_stn, pairs=False),
    "ram": functools.partial(_ram, pairs=False),
    "dram": functools.partial(_dram, pairs=False),
    "pairs_stn": functools.partial(_stn, pairs=True),
    "pairs_ram": functools.partial(_ram, pairs=True),
    "pairs_dram": functools.partial(_dram, pairs=True),
}
