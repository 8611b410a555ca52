"""Settings of the digit systems: models, data sets, training, and runs. No TensorFlow."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from sat_tf.inference.run_folder import SYSTEM_KEY, RunFolder, read_object
from sat_tf.util.errors import invalid_value, other_version
from sat_tf.util.fields import (
    Fraction,
    NonNegative,
    NonNegativeInt,
    Positive,
    PositiveInt,
    Range,
    Size,
    check_fields,
    flat,
    from_dict,
    to_dict,
)
from training.run.config import BaseFitConfig, BaseOptimizerConfig

# --- models ---


@dataclass(frozen=True)
class PortionsConfig:
    """Attention over the portions of a strip, which hold one digit each."""

    attention: Literal["soft", "hard"] = "soft"
    """soft or hard attention."""
    queries: Literal["one", "all"] = "one"
    """one: is a 9 there, and where? all: the same for each of the ten labels at once."""
    filters: Size = 16
    """Width of the first convolution; the second has twice as many."""
    dropout: Fraction = 0.0
    """Dropout on the features of a portion, before its annotation vector."""
    annotation_dim: Size = 64
    """Width D of a portion's annotation vector."""
    query_dim: Size = 32
    """Width N of a query's embedding."""
    attention_dim: Size = 64
    """Width of the hidden layer of the attention MLP."""
    hidden_dim: Size = 64
    """Width of the hidden layer that turns query and context into an answer."""
    samples: Annotated[int, Range(2)] = 5
    """M, samples per query of hard attention; each one's baseline is the mean of the others."""
    entropy_weight: NonNegative = 0.0
    """lambda_e, weight of hard attention's entropy term."""

    def __post_init__(self) -> None:
        check_fields(self, "model")


@dataclass(frozen=True)
class STNConfig:
    """A convolutional network behind a Spatial Transformer."""

    output_size: Annotated[int, Range(2)] = 28
    """Side of the rectified image, pixels."""
    localisation_filters: Size = 20
    """Width of the two convolutions of the localisation net."""
    localisation_dim: NonNegativeInt = 50
    """Width of the localisation net's hidden layer, 0 for none."""
    localisation_points: NonNegativeInt = 0
    """Heat maps; the localisation net reads their centres of mass too, or alone."""
    filters: Size = 32
    """Width of the classifier's first convolution; the second has twice as many."""
    hidden_dim: Size = 128
    """Width of the classifier's hidden layer."""
    dropout: Fraction = 0.3
    """Dropout on the classifier's hidden layer."""

    def __post_init__(self) -> None:
        check_fields(self, "model")
        if not self.localisation_dim and not self.localisation_points:
            raise ValueError(
                "Received invalid values for keys `--model.localisation_dim` and "
                "`--model.localisation_points`: expected one of them above 0, got 0 and 0."
            )


@dataclass(frozen=True)
class GlimpseConfig:
    """Settings that RAM and DRAM share."""

    glimpses: Size = 6
    """Glimpses per image."""
    glimpse_size: Size = 8
    """Values along a side of each patch."""
    scales: Size = 1
    """Patches per glimpse, each twice as wide as the one before."""
    first_location: Literal["learned", "random"] = "learned"
    """Location of the first glimpse; learned takes it from the policy like all the others."""
    std: Positive = 0.1
    """Standard deviation of the policy; 1 is half the image."""
    location_hidden_dim: Size = 128
    """Width of the hidden layer of the location network."""
    aim_weight: NonNegative = 0.0
    """Weight of the policy's squared mean before its tanh, which keeps glimpses that make no
    difference from drifting to the border. The papers have no such term."""
    random_steps: NonNegativeInt = 0
    """Steps of the warm-up, over which the share of images with random glimpses falls to zero, so
    that the policy learns from a classifier that knows something."""

    def __post_init__(self) -> None:
        check_fields(self, "model")


@dataclass(frozen=True)
class RAMConfig(GlimpseConfig):
    """The recurrent attention model of Mnih et al. (2014), arXiv:1406.6247."""

    glimpse_hidden_dim: Size = 128
    """Width of the hidden layers of the glimpse network."""
    glimpse_dim: Size = 256
    """Width of a glimpse's features."""
    hidden_dim: Size = 256
    """Width of the core."""


@dataclass(frozen=True)
class DRAMConfig(GlimpseConfig):
    """The deep recurrent attention model of Ba et al. (2014), arXiv:1412.7755."""

    context: bool = True
    """Start the upper LSTM from the coarse image instead of zero."""
    context_block: Size = 4
    """Side of the squares of pixels that are averaged for the coarse image."""
    context_filters: Size = 16
    """Width of the convolutions of the context network."""
    glimpse_filters: Size = 16
    """Width of the glimpse network's first convolution; the other two have twice as many."""
    glimpse_dim: Size = 256
    """Width of a glimpse's features."""
    hidden_dim: Size = 256
    """Width of both LSTMs."""


# --- data sets ---


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

    answers: ClassVar[tuple[str, ...]] = tuple(map(str, range(10)))

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
    answers: ClassVar[tuple[str, ...]] = tuple(
        f"{low} and {high}" for low in range(10) for high in range(low, 10)
    )
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
    """Recipe with the settings to start from."""
    seed: NonNegativeInt = 0
    """Seed of the weights, the order of the data and every random draw."""
    init_from: str | None = None
    """Folder of a finished digit run; its best weights initialize the layers that fit."""
    data: DigitData = field(default_factory=DigitData)
    model: Any = None
    optimizer: BaseOptimizerConfig = field(default_factory=BaseOptimizerConfig)
    fit: DigitFitConfig = field(default_factory=DigitFitConfig)

    def __post_init__(self) -> None:
        check_fields(self)
        if self.optimizer.weight_decay and self.optimizer.name != "adamw":
            expected = f"none with `--optimizer.name {self.optimizer.name}`; only adamw has it"
            got = self.optimizer.weight_decay
            raise invalid_value("--optimizer.weight_decay", expected, got, "key")

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
    """Epochs on single digits first, in a separate run next to this one (RUN_single) that
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
}
"""Configuration of the runs of each system, by name in config.json."""


def to_text(config: DigitRunConfig) -> str:
    """Returns the content of config.json."""
    return json.dumps({SYSTEM_KEY: config.system, **to_dict(config)}, indent=2)


def read_digit_config(run_dir: Path) -> DigitRunConfig:
    """Reads the configuration that a digit system was trained with.

    Raises:
        ValueError: The folder is not a digit run, or one of another version.
    """
    path = RunFolder(run_dir).config
    values = read_object(path)
    system = values.pop(SYSTEM_KEY, None)
    kind = SYSTEMS.get(system)
    if kind is None:
        raise ValueError(
            f"{run_dir} is not a run of a digit system: expected `{SYSTEM_KEY}` in its "
            f"{path.name} to be one of {', '.join(SYSTEMS)}, got {system!r}."
        )
    try:
        return from_dict(kind, values)
    except (TypeError, ValueError) as error:
        raise other_version(path, error) from error


def changed_flags(config: DigitRunConfig, base: DigitRunConfig) -> list[str]:
    """Returns the flags that turn `base` into `config`."""
    values, usual = flat(to_dict(config)), flat(to_dict(base))
    changed = [(f"--{key}", str(value)) for key, value in values.items() if value != usual[key]]
    return [word for flag in changed for word in flag]


# --- recipes ---

# Two CPU cores suffice to train each of them.


def _recipe(
    system: str,
    recipe: str,
    data: DigitData,
    model: Any,
    fit: dict[str, Any],
    learning_rate: float = 1e-3,
    **more: Any,
) -> DigitRunConfig:
    kind = SYSTEMS[system]
    loop = next(group.default_factory for group in dataclasses.fields(kind) if group.name == "fit")
    adam = BaseOptimizerConfig(learning_rate=learning_rate, schedule="cosine", warmup_epochs=0.2)
    return kind(recipe, data=data, model=model, optimizer=adam, fit=loop(**fit), **more)


_STRIPS = StripsData(shift=2, turn=15.0)
# Without the entropy term, attention settles on a wrong portion in four of five runs.
_HARD: dict[str, Any] = {"attention": "hard", "entropy_weight": 0.05, "dropout": 0.5}
# Sixteen scraps of 6 x 6 pixels for the Spatial Transformer, four of 8 x 8 for RAM, as in their
# papers.
_STN_CLUTTERED = CanvasData(size=60, clutter=16, clutter_size=6)
_RAM_CLUTTERED = CanvasData(size=60, clutter=4, clutter_size=8)
# As many pixels as the transformed part has: an output of 28 reads digits at three quarters of
# their resolution, and had nearly twice the errors after as many epochs. With 20 filters and 8 heat
# maps, digits were lost among the scraps a little more often.
_HEAT_MAPS = {
    "output_size": 40,
    "localisation_filters": 32,
    "localisation_dim": 0,
    "localisation_points": 16,
}
# Starting from the middle, or from a learned location, was behind after six epochs, with turned
# digits as well.
_RAM_60: dict[str, Any] = {"glimpse_size": 12, "scales": 3, "first_location": "random"}
_DRAM = DRAMConfig(
    glimpses=4,
    glimpse_size=12,
    scales=3,
    glimpse_dim=128,
    hidden_dim=128,
    # Without it, single digits, for which one glimpse suffices, sent the others to a corner for
    # good: in one of two runs 19 % of pairs were wrong at the end.
    aim_weight=0.02,
    random_steps=600,
)
_DIGIT = CanvasData(size=60), dataclasses.replace(_DRAM, random_steps=300)
_SINGLE_EPOCHS = 6
_PAIR_FIT = {"epochs": 20, "batch_size": 64, "patience": 20}


def _stn(recipe: str, data: CanvasData, epochs: int = 20, **model: Any) -> DigitRunConfig:
    # With batches of 128, up to a quarter more digits were wrong after as many epochs.
    return _recipe("stn", recipe, data, STNConfig(**model), {"epochs": epochs, "batch_size": 64})


def _ram(recipe: str, data: CanvasData, epochs: int, **model: Any) -> DigitRunConfig:
    fit = {"epochs": epochs, "batch_size": 128, "patience": epochs}
    return _recipe("ram", recipe, data, RAMConfig(**model), fit, 2e-3)


def _pairs(recipe: str, **model: Any) -> DigitRunConfig:
    dram, more = dataclasses.replace(_DRAM, **model), {"single_epochs": _SINGLE_EPOCHS}
    return _recipe("pairs_dram", recipe, PairData(size=60), dram, _PAIR_FIT, **more)


def _portions(recipe: str, epochs: int, **model: Any) -> DigitRunConfig:
    fit = {"epochs": epochs, "batch_size": 64}
    return _recipe("portions", recipe, _STRIPS, PortionsConfig(**model), fit, 2e-3)


RECIPES: dict[str, DigitRunConfig] = {
    config.recipe: config
    for config in (
        # With 16 filters and six epochs, one question stayed below 99 % presence on test digits.
        _portions("digits_soft", 8, filters=24, dropout=0.5),
        _portions("digits_hard", 8, filters=24, **_HARD),
        # Ten questions per strip teach faster than one.
        _portions("digits_queries", 4, queries="all", dropout=0.5),
        _portions("digits_queries_hard", 4, queries="all", **_HARD),
        _stn("stn_rotated", CanvasData(size=28, rotation=90.0), 40),
        _stn("stn_rts", CanvasData(size=42, rotation=45.0, scale_from=0.7, scale_to=1.2)),
        _stn("stn_cluttered", _STN_CLUTTERED, filters=16, **_HEAT_MAPS),
        # Without augmentation, and always from the middle, it would memorise the digits.
        _ram("ram_28", CanvasData(size=28, shift=2, turn=15.0), 100),
        _ram("ram_60_translated", CanvasData(size=60), 150, **_RAM_60),
        _ram("ram_60_cluttered", _RAM_CLUTTERED, 150, **_RAM_60),
        _recipe("dram", "dram_digit", *_DIGIT, _PAIR_FIT | {"epochs": _SINGLE_EPOCHS}),
        _pairs("dram_pairs"),
        _pairs("dram_pairs_no_context", context=False),
    )
}
