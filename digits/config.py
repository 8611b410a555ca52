"""Configuration of a run of a digit system: its data set, model, optimizer and training."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from digits import SYSTEM_KEY, system_of
from digits.models.config import DRAMConfig, PortionsConfig, RAMConfig, STNConfig, Target
from sat_tf.inference.run_folder import RunFolder, read_object
from sat_tf.util.errors import invalid_value, other_version
from sat_tf.util.fields import (
    NonNegativeInt,
    Positive,
    PositiveInt,
    Range,
    check_fields,
    flat,
    from_dict,
    to_dict,
)
from training.run.config import BaseFitConfig, BaseOptimizerConfig


@dataclass(frozen=True)
class DigitData:
    """The digits used."""

    dev_digits: PositiveInt = 5000
    """Digits at the end of x_train that make up the dev split."""
    limit: PositiveInt | None = None
    """Use only the first digits of each split, to try something out."""

    digits_per_example: ClassVar[int] = 1

    def __post_init__(self) -> None:
        check_fields(self, "data")


@dataclass(frozen=True)
class JitteredData(DigitData):
    """Digits that are shifted and turned a little in training."""

    shift: Annotated[int, Range(0, 27)] = 0
    """Training digits are shifted by up to this many pixels each way, within their 28 x 28."""
    turn: Annotated[float, Range(0, 180)] = 0.0
    """Training digits are turned by up to this many degrees, either way."""


@dataclass(frozen=True)
class StripsData(JitteredData):
    """Digits side by side."""

    portions: PositiveInt = 5
    """Digits per strip."""

    @property
    def digits_per_example(self) -> int:
        """Digits per strip."""
        return self.portions


@dataclass(frozen=True)
class CanvasData(JitteredData):
    """One digit, turned, resized, moved and hidden among scraps of others."""

    size: Annotated[int, Range(28)] = 28
    """Side of the canvas, pixels; a digit is anywhere on a larger one."""
    rotation: Annotated[float, Range(0, 180)] = 0.0
    """Digits are turned by up to this many degrees, either way, in all splits."""
    scale_from: Positive = 1.0
    """Smallest size of a digit, as a factor."""
    scale_to: Positive = 1.0
    """Largest size of a digit, as a factor."""
    clutter: NonNegativeInt = 0
    """Scraps of other digits laid on the canvas."""
    clutter_size: Annotated[int, Range(1, 28)] = 8
    """Side of a scrap, pixels."""

    target: ClassVar[Target] = "digit"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scale_from > self.scale_to:
            expected = f"at most `--data.scale_to`, {self.scale_to}"
            raise invalid_value("--data.scale_from", expected, self.scale_from, "key")


@dataclass(frozen=True)
class PairData(DigitData):
    """Two digits on a canvas, at least 20 pixels from one another along an axis."""

    # A smaller canvas has no room for two digits 20 pixels apart.
    size: Annotated[int, Range(48)] = 60
    """Side of the canvas, pixels."""
    target: Literal["pair", "sum"] = "pair"
    """The question: which two digits, in any order (55 classes), or their sum (19 classes)."""

    digits_per_example: ClassVar[int] = 2


@dataclass(frozen=True)
class DigitFitConfig(BaseFitConfig):
    """The training loop."""

    monitor: ClassVar[str] = "error"
    # Only `ConvolutionFitConfig` makes this a key.
    precision: ClassVar[str] = "float32"


@dataclass(frozen=True)
class ConvolutionFitConfig(DigitFitConfig):
    """The training loop of a model that consists mostly of convolutions."""

    precision: Literal["float32", "bfloat16"] = "float32"
    """Precision of the 5 x 5 convolutions; weights and all else are always float32."""


@dataclass(frozen=True)
class DigitRunConfig:
    """Everything that defines a run: two runs with equal configurations are the same.

    Each of `SYSTEMS` is a subclass with its data set and its model.
    """

    recipe: str
    """Recipe whose settings to start from."""
    seed: NonNegativeInt = 0
    """Seed of the weights, the order of the data and every random draw."""
    init_from: str | None = None
    """Folder of a finished digit run whose best weights initialize the layers that fit."""
    data: DigitData = field(default_factory=DigitData)
    model: Any = None
    optimizer: BaseOptimizerConfig = field(default_factory=BaseOptimizerConfig)
    fit: DigitFitConfig = field(default_factory=DigitFitConfig)

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def system(self) -> str:
        """Name of the system."""
        return next(name for name, kind in SYSTEMS.items() if kind is type(self))

    def resumed_as(self, wanted: DigitRunConfig) -> DigitRunConfig:
        """Returns the configuration with what may change on resume as in another one."""
        return dataclasses.replace(self, fit=self.fit.resumed_as(wanted.fit))


@dataclass(frozen=True)
class PairsRun(DigitRunConfig):
    """A run on pairs of digits that can learn from single ones first."""

    single_epochs: NonNegativeInt = 0
    """Epochs on single digits first, in a separate run beside this one (RUN_single) that
    initializes it; none with `--init-from`."""


def _run(
    data: type[DigitData],
    model: type,
    fit: type[DigitFitConfig] = DigitFitConfig,
    base: type[DigitRunConfig] = DigitRunConfig,
) -> type[DigitRunConfig]:
    """Makes the configuration of a system's runs: `base` with a data set, a model and a loop."""
    groups = {"data": data, "model": model, "fit": fit}
    fields = [(name, kind, field(default_factory=kind)) for name, kind in groups.items()]
    return dataclasses.make_dataclass("DigitRun", fields, bases=(base,), frozen=True)


SYSTEMS: dict[str, type[DigitRunConfig]] = {
    "portions": _run(StripsData, PortionsConfig),
    "stn": _run(CanvasData, STNConfig, ConvolutionFitConfig),
    "ram": _run(CanvasData, RAMConfig),
    "dram": _run(CanvasData, DRAMConfig),
    "pairs_dram": _run(PairData, DRAMConfig, base=PairsRun),
    "pairs_ram": _run(PairData, RAMConfig, base=PairsRun),
    "pairs_stn": _run(PairData, STNConfig, ConvolutionFitConfig),
}
"""Configuration of the runs of each system, by its name in config.json."""


def to_text(config: DigitRunConfig) -> str:
    """Returns the content of config.json."""
    return json.dumps({SYSTEM_KEY: config.system, **to_dict(config)}, indent=2)


def read_digit_config(run_dir: Path) -> DigitRunConfig:
    """Reads the configuration that a digit system was trained with.

    Raises:
        ValueError: The folder is not a digit run, or comes from another version.
    """
    path = RunFolder(run_dir).config
    kind = SYSTEMS.get(system_of(run_dir))
    if kind is None:
        raise ValueError(
            f"{run_dir} is not a run of a digit system: expected `{SYSTEM_KEY}` in its "
            f"{path.name} to be one of {', '.join(SYSTEMS)}, got {system_of(run_dir)!r}."
        )
    values = read_object(path)
    del values[SYSTEM_KEY]
    try:
        return from_dict(kind, values)
    except (TypeError, ValueError) as error:
        raise other_version(path, error) from error


def changed_flags(config: DigitRunConfig, base: DigitRunConfig) -> list[str]:
    """Returns the flags that turn `base` into `config`."""
    values, usual = flat(to_dict(config)), flat(to_dict(base))
    changed = [(f"--{key}", str(value)) for key, value in values.items() if value != usual[key]]
    return [word for flag in changed for word in flag]
