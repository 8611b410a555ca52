"""Configuration of a run of a digit system; each system has a class of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from sat_tf.config import SYSTEM_KEY
from sat_tf.digits.config import DRAMConfig, PortionsConfig, RAMConfig, STNConfig
from sat_tf.errors import RunError, other_version
from sat_tf.fields import NonNegativeInt, check_fields, to_dict
from sat_tf.run_folder import RunFolder, read_object
from training.config import BaseFitConfig, BaseOptimizerConfig, read_saved
from training.data.digits.config import CanvasData, DigitData, PairData, StripsData


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

    Each system has a subclass with its name, its data set and its model.
    """

    system: ClassVar[str]

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


@dataclass(frozen=True)
class PortionsRun(DigitRunConfig):
    """A run of `sat_tf.digits.models.portions`."""

    system: ClassVar[str] = "portions"

    data: StripsData = field(default_factory=StripsData)
    model: PortionsConfig = field(default_factory=PortionsConfig)


@dataclass(frozen=True)
class STNRun(DigitRunConfig):
    """A run of `sat_tf.digits.models.stn` on single digits."""

    system: ClassVar[str] = "stn"

    data: CanvasData = field(default_factory=CanvasData)
    model: STNConfig = field(default_factory=STNConfig)
    fit: ConvolutionFitConfig = field(default_factory=ConvolutionFitConfig)


@dataclass(frozen=True)
class RAMRun(DigitRunConfig):
    """A run of `sat_tf.digits.models.ram` on single digits."""

    system: ClassVar[str] = "ram"

    data: CanvasData = field(default_factory=CanvasData)
    model: RAMConfig = field(default_factory=RAMConfig)


@dataclass(frozen=True)
class DRAMRun(DigitRunConfig):
    """A run of `sat_tf.digits.models.dram` on single digits."""

    system: ClassVar[str] = "dram"

    data: CanvasData = field(default_factory=CanvasData)
    model: DRAMConfig = field(default_factory=DRAMConfig)


@dataclass(frozen=True)
class PairsRun(DigitRunConfig):
    """A run on pairs of digits that can learn from single ones first."""

    single_recipe: ClassVar[str]
    """The recipe that trains such a model on single digits."""

    data: PairData = field(default_factory=PairData)
    single_epochs: NonNegativeInt = 0
    """Epochs on single digits first, in a separate run beside this one (RUN_single) that
    initializes it; none with `--init-from`."""


@dataclass(frozen=True)
class PairsDRAMRun(PairsRun):
    """A run of `sat_tf.digits.models.dram` on pairs of digits."""

    system: ClassVar[str] = "pairs_dram"
    single_recipe: ClassVar[str] = "dram_digit"

    model: DRAMConfig = field(default_factory=DRAMConfig)


@dataclass(frozen=True)
class PairsRAMRun(PairsRun):
    """A run of `sat_tf.digits.models.ram` on pairs of digits."""

    system: ClassVar[str] = "pairs_ram"
    single_recipe: ClassVar[str] = "ram_digit"

    model: RAMConfig = field(default_factory=RAMConfig)


@dataclass(frozen=True)
class PairsSTNRun(DigitRunConfig):
    """A run of `sat_tf.digits.models.stn`, or of its classifier alone, on pairs of digits."""

    system: ClassVar[str] = "pairs_stn"

    data: PairData = field(default_factory=PairData)
    model: STNConfig = field(default_factory=STNConfig)
    fit: ConvolutionFitConfig = field(default_factory=ConvolutionFitConfig)


_RUNS = (PortionsRun, STNRun, RAMRun, DRAMRun, PairsDRAMRun, PairsRAMRun, PairsSTNRun)
SYSTEMS: dict[str, type[DigitRunConfig]] = {kind.system: kind for kind in _RUNS}


def to_text(config: DigitRunConfig) -> str:
    """Returns the content of config.json."""
    return json.dumps({SYSTEM_KEY: config.system, **to_dict(config)}, indent=2)


def system_of(run_dir: Path) -> str | None:
    """Returns the digit system of a run; None for a captioner or a folder without a run."""
    try:
        return read_object(RunFolder(run_dir).config).get(SYSTEM_KEY)
    except RunError:
        return None


def read_digit_config(run_dir: Path) -> DigitRunConfig:
    """Reads the configuration that a digit system was trained with.

    Raises:
        ValueError: The folder is not a digit run, or comes from another version.
    """
    path = RunFolder(run_dir).config
    kind = SYSTEMS.get(system_of(run_dir))
    if kind is None:
        raise ValueError(
            f"{run_dir} is no run of a digit system: expected `{SYSTEM_KEY}` in its "
            f"{path.name} to be one of {', '.join(SYSTEMS)}, got {system_of(run_dir)!r}."
        )
    values = read_object(path)
    del values[SYSTEM_KEY]
    try:
        return read_saved(kind, values)
    except (TypeError, ValueError) as error:
        raise other_version(path, error) from error


def changed_flags(config: DigitRunConfig, base: DigitRunConfig) -> list[str]:
    """Returns the flags that turn `base` into `config`."""
    return list(_changed(to_dict(config), to_dict(base)))


def _changed(values: dict, base: dict, prefix: str = "") -> Iterator[str]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _changed(value, base[key], f"{prefix}{key}.")
        elif value != base[key]:
            yield from (f"--{prefix}{key}", str(value))
