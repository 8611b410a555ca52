"""Everything a run of a digit system can be told; a class of settings for each system."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from sat_tf.config import CONFIG_FILE, SYSTEM_KEY, from_dict, to_dict
from sat_tf.digit_config import PortionsConfig
from sat_tf.glimpse_config import DRAMConfig, RAMConfig, STNConfig
from sat_tf.ranges import Count, Range, Rate, Size, check_ranges
from training.recipes import BaseOptimizerConfig


@dataclass(frozen=True)
class DigitData:
    """Which digits, and how many examples are made of them."""

    dev_digits: Size = 5000
    """The last so many of x_train are the dev split."""
    limit: Size | None = None
    """Use only the first digits of each split, to try something out."""
    examples: Size | None = None
    """Examples of an epoch; None for as many as there are digits."""

    digits_per_example: ClassVar[int] = 1

    def __post_init__(self) -> None:
        check_ranges(self, "data")

    def scored(self) -> DigitData:
        """Of the examples that a model is scored on: the same, without what is for training."""
        return self


@dataclass(frozen=True)
class JitteredData(DigitData):
    """Digits that are moved and turned a little in training."""

    shift: Annotated[int, Range(0, 27)] = 0
    """Training digits are moved by up to so many pixels each way, within their 28 x 28."""
    turn: Annotated[float, Range(0, 180)] = 0.0
    """Training digits are turned by up to so many degrees, either way."""

    def scored(self) -> JitteredData:
        """Digits are scored as they are."""
        return dataclasses.replace(self, shift=0, turn=0.0)


@dataclass(frozen=True)
class StripsData(JitteredData):
    """Digits side by side."""

    portions: Size = 5
    """Digits of a strip."""

    @property
    def digits_per_example(self) -> int:
        """Digits of a strip."""
        return self.portions


@dataclass(frozen=True)
class CanvasData(JitteredData):
    """One digit, turned, resized, moved and hidden among scraps of others."""

    size: Annotated[int, Range(28)] = 28
    """Side of the canvas, pixels; a digit is somewhere on a larger one."""
    rotation: Annotated[float, Range(0, 180)] = 0.0
    """Digits are turned by up to so many degrees, either way, those scored as well."""
    scale_from: Rate = 1.0
    """Smallest size of a digit, as a factor."""
    scale_to: Rate = 1.0
    """Largest size of a digit, as a factor."""
    clutter: Count = 0
    """Scraps of other digits laid on the canvas."""
    clutter_size: Annotated[int, Range(1, 28)] = 8
    """Side of a scrap, pixels."""

    answers: ClassVar[tuple[str, ...]] = tuple(map(str, range(10)))
    """What the classes are called."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scale_from > self.scale_to:
            raise ValueError(
                "Received an invalid value for key `--data.scale_from`: expected at most "
                f"`--data.scale_to`, {self.scale_to}, got {self.scale_from}."
            )


@dataclass(frozen=True)
class PairData(DigitData):
    """Two digits on a canvas, at least 20 pixels from one another along an axis."""

    # On a smaller canvas there is no place for two digits 20 pixels apart.
    size: Annotated[int, Range(48)] = 60
    """Side of the canvas, pixels."""
    target: Literal["pair", "sum"] = "pair"
    """What is asked: which two digits, in no order (55 classes), or their sum (19)."""

    digits_per_example: ClassVar[int] = 2

    @property
    def answers(self) -> tuple[str, ...]:
        """What the classes are called, in the order of their numbers."""
        if self.target == "sum":
            return tuple(map(str, range(19)))
        return tuple(f"{low} and {high}" for low in range(10) for high in range(low, 10))


@dataclass(frozen=True)
class DigitFitConfig:
    """The training loop."""

    epochs: Size = 10
    """Most epochs."""
    batch_size: Size = 64
    """Examples a batch, over all devices."""
    patience: Size = 10
    """Epochs without a lower dev error before training stops."""
    pictures: Count = 4
    """Dev examples whose attention TensorBoard shows after each epoch."""
    jit_compile: bool = False
    """Compile the train step with XLA."""
    checkpoint_steps: Size = 500
    """Steps after which the state is kept; it is after each epoch too. May change in a run."""

    monitor: ClassVar[str] = "error"
    # A key of those fits alone that have a choice: `ConvolutionFitConfig`.
    precision: ClassVar[str] = "float32"

    def __post_init__(self) -> None:
        check_ranges(self, "fit")


@dataclass(frozen=True)
class ConvolutionFitConfig(DigitFitConfig):
    """The training loop of a model that is convolutions above all."""

    precision: Literal["float32", "bfloat16"] = "float32"
    """Of the 5 x 5 convolutions; weights and all else are float32 always."""


@dataclass(frozen=True)
class DigitRunConfig:
    """Everything that makes a run what it is; two runs with equal ones are the same.

    A system has a subclass, with its name, its data set and its model.
    """

    system: ClassVar[str]

    recipe: str
    """Name of the recipe these settings started from."""
    seed: Count = 0
    """Of the weights, the order of the data and every random draw."""
    init_from: str | None = None
    """Folder of a finished digit run; its best weights are taken for the layers that fit."""
    data: DigitData = field(default_factory=DigitData)
    model: Any = None
    optimizer: BaseOptimizerConfig = field(default_factory=BaseOptimizerConfig)
    fit: DigitFitConfig = field(default_factory=DigitFitConfig)

    def __post_init__(self) -> None:
        check_ranges(self)


@dataclass(frozen=True)
class PortionsRun(DigitRunConfig):
    """A run of `sat_tf.models.portions`."""

    system: ClassVar[str] = "portions"

    data: StripsData = field(default_factory=StripsData)
    model: PortionsConfig = field(default_factory=PortionsConfig)


@dataclass(frozen=True)
class STNRun(DigitRunConfig):
    """A run of `sat_tf.models.stn` on one digit."""

    system: ClassVar[str] = "stn"

    data: CanvasData = field(default_factory=CanvasData)
    model: STNConfig = field(default_factory=STNConfig)
    fit: ConvolutionFitConfig = field(default_factory=ConvolutionFitConfig)


@dataclass(frozen=True)
class RAMRun(DigitRunConfig):
    """A run of `sat_tf.models.ram` on one digit."""

    system: ClassVar[str] = "ram"

    data: CanvasData = field(default_factory=CanvasData)
    model: RAMConfig = field(default_factory=RAMConfig)


@dataclass(frozen=True)
class DRAMRun(DigitRunConfig):
    """A run of `sat_tf.models.dram` on one digit."""

    system: ClassVar[str] = "dram"

    data: CanvasData = field(default_factory=CanvasData)
    model: DRAMConfig = field(default_factory=DRAMConfig)


@dataclass(frozen=True)
class PairsRun(DigitRunConfig):
    """A run on two digits that can learn from single ones first."""

    single_recipe: ClassVar[str]
    """The recipe of single digits for such a model."""

    data: PairData = field(default_factory=PairData)
    single_epochs: Count = 0
    """Epochs on single digits first, in a run of its own beside this one (RUN_single), from which
    this one starts; none with `--init-from`."""


@dataclass(frozen=True)
class PairsDRAMRun(PairsRun):
    """A run of `sat_tf.models.dram` on two digits."""

    system: ClassVar[str] = "pairs_dram"
    single_recipe: ClassVar[str] = "dram_digit"

    model: DRAMConfig = field(default_factory=DRAMConfig)


@dataclass(frozen=True)
class PairsRAMRun(PairsRun):
    """A run of `sat_tf.models.ram` on two digits."""

    system: ClassVar[str] = "pairs_ram"
    single_recipe: ClassVar[str] = "ram_digit"

    model: RAMConfig = field(default_factory=RAMConfig)


@dataclass(frozen=True)
class PairsSTNRun(DigitRunConfig):
    """A run of `sat_tf.models.stn`, or of its classifier alone, on two digits."""

    system: ClassVar[str] = "pairs_stn"

    data: PairData = field(default_factory=PairData)
    model: STNConfig = field(default_factory=STNConfig)
    fit: ConvolutionFitConfig = field(default_factory=ConvolutionFitConfig)


_RUNS = (PortionsRun, STNRun, RAMRun, DRAMRun, PairsDRAMRun, PairsRAMRun, PairsSTNRun)
SYSTEMS: dict[str, type[DigitRunConfig]] = {kind.system: kind for kind in _RUNS}


def to_text(config: DigitRunConfig) -> str:
    """What the configuration's file holds."""
    return json.dumps({SYSTEM_KEY: config.system, **to_dict(config)}, indent=2)


def system_of(run_dir: Path) -> str | None:
    """Name of the digit system that a run is of; None for a captioner's, or for no run."""
    try:
        return json.loads((run_dir / CONFIG_FILE).read_text("utf-8")).get(SYSTEM_KEY)
    except (OSError, ValueError, AttributeError):
        return None


def read_digit_config(run_dir: Path) -> DigitRunConfig:
    """The configuration a digit run was trained with.

    Raises:
        ValueError: The folder holds no digit run, or one of another version.
    """
    path = run_dir / CONFIG_FILE
    kind = SYSTEMS.get(system_of(run_dir))
    if kind is None:
        raise ValueError(
            f"{run_dir} is no run of a digit system: expected `{SYSTEM_KEY}` in its "
            f"{CONFIG_FILE} to be one of {', '.join(SYSTEMS)}, got {system_of(run_dir)!r}."
        )
    values = json.loads(path.read_text("utf-8"))
    del values[SYSTEM_KEY]
    try:
        return from_dict(kind, values)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} is not a configuration of this version: {error}") from error


def changed_flags(config: DigitRunConfig, base: DigitRunConfig) -> list[str]:
    """The flags that make `base` what `config` is."""
    return list(_changed(to_dict(config), to_dict(base)))


def _changed(values: dict, base: dict, prefix: str = ""):
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _changed(value, base[key], f"{prefix}{key}.")
        elif value != base[key]:
            yield from (f"--{prefix}{key}", str(value))


def with_model(config: DigitRunConfig, model: Any) -> DigitRunConfig:
    """The same run with another configuration of its model, to evaluate it otherwise."""
    return dataclasses.replace(config, model=model)
