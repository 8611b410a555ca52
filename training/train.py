"""Train a captioner, or a digit system: `python -m training.train --recipe scenes_soft`."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Generic, Literal, TypeVar

import tyro

from sat_tf.commands import loading
from training.arguments import (
    DEFAULT_RECIPE,
    Settings,
    default_cache_dir,
    named,
    parse_settings,
)
from training.digits.config import DigitRunConfig
from training.digits.recipes import RECIPES as DIGIT_RECIPES
from training.interrupts import Interrupts, exit_status
from training.recipes import RECIPES, BaseOptimizerConfig, RunConfig, choose

if TYPE_CHECKING:
    import tensorflow as tf

C = TypeVar("C", bound=DigitRunConfig)


@dataclass(frozen=True)
class Arguments:
    """Train a captioner; any key of the configuration is a flag."""

    config: Settings
    """The recipe's settings."""
    data_dir: Path | None = None
    """Your copy of the data set; drawn data needs none."""
    run_dir: Path | None = None
    """Where the run goes, and goes on from; runs/RECIPE by default."""
    cache_dir: Path | None = None
    """Feature stores; $SAT_TF_CACHE or ~/.cache/sat_tf by default."""
    strategy: Literal["auto", "none", "mirrored", "multi_worker"] = "auto"
    """auto mirrors the model over the GPUs if there are several; multi_worker reads TF_CONFIG."""
    deterministic: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """The same bits every time, stopped or not, on one device of one kind; slower on a GPU."""

    def __post_init__(self) -> None:
        if self.strategy == "multi_worker" and self.config.fit.jit_compile:
            raise ValueError(
                "Received an invalid value for key `--fit.jit_compile`: expected False with "
                "`--strategy multi_worker`, got True."
            )


@dataclass(frozen=True)
class DigitArguments(Generic[C]):
    """Train a system that reads digits; any key of its configuration is a flag."""

    config: Annotated[C, tyro.conf.arg(name=""), tyro.conf.FlagConversionOff]
    """The recipe's settings."""
    data_dir: Path | None = None
    """Folder of mnist.npz; TensorFlow Datasets by default."""
    run_dir: Path | None = None
    """Where the run goes, and goes on from; runs/RECIPE by default."""
    strategy: Literal["auto", "none", "mirrored"] = "auto"
    """auto mirrors the model over the GPUs when there is more than one."""
    deterministic: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """The same bits every time, stopped or not, on one device of one kind; slower on a GPU."""


def check_optimizer(config: BaseOptimizerConfig, base: BaseOptimizerConfig) -> None:
    """See that the optimiser has what is asked of it, beyond what its recipe has.

    Raises:
        ValueError: It has no weight decay.
    """
    if config.weight_decay not in (0.0, base.weight_decay) and config.name != "adamw":
        raise ValueError(
            "Received an invalid value for key `--optimizer.weight_decay`: expected none with "
            f"`--optimizer.name {config.name}`, as it is adamw's, got {config.weight_decay}."
        )


def parse(argv: list[str]) -> Arguments | DigitArguments:
    """Read the command line: the recipe says which kind of run it is about."""
    recipes = RECIPES | DIGIT_RECIPES
    config = choose(recipes, named("--recipe", argv, DEFAULT_RECIPE))
    kind = Arguments if isinstance(config, RunConfig) else DigitArguments[type(config)]
    purpose = "Train a captioner, or a system that reads digits."
    arguments = parse_settings(kind, argv, "training.train", purpose, recipes)
    check_optimizer(arguments.config.optimizer, config.optimizer)
    return arguments


def main(argv: list[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    given = sys.argv[1:] if argv is None else argv
    return exit_status(lambda interrupts: run(parse(given), interrupts))


def run(arguments: Arguments | DigitArguments, interrupts: Interrupts) -> None:
    """Train, then evaluate the best checkpoint on dev."""
    # TensorFlow takes seconds to load: a wrong flag is answered before.
    with loading():
        import keras  # noqa: F401
        import tensorflow as tf

        from training.strategies import make_strategy

    if arguments.deterministic:
        tf.config.experimental.enable_op_determinism()
    warnings.formatwarning = lambda message, *_: f"Warning: {message}\n"
    # Before any operation, as several processes need it.
    strategy = make_strategy(arguments.strategy)
    interrupts.listen()
    train = train_digits if isinstance(arguments, DigitArguments) else train_captioner
    train(arguments, strategy, interrupts)


@contextlib.contextmanager
def plain_errors() -> Iterator[None]:
    """Turns what TensorFlow raises in the middle of training into an error of one line."""
    import tensorflow as tf

    try:
        yield
    except tf.errors.OpError as error:
        # A file that vanished, say: the reader's own words are in the middle of TensorFlow's.
        raise OSError(f"training stopped: {error.message}") from error


def train_captioner(
    arguments: Arguments, strategy: tf.distribute.Strategy | None, interrupts: Interrupts
) -> None:
    """Train a captioner and evaluate it."""
    from training.evaluate import evaluate_run
    from training.fit import fit
    from training.run_data import Places
    from training.run_folder import alone_in, check_run_dir
    from training.workers import Workers

    config = arguments.config
    places = Places(
        arguments.run_dir or Path("runs") / config.recipe,
        arguments.cache_dir or default_cache_dir(),
        arguments.data_dir,
    )
    workers = Workers(strategy)
    if workers.chief:
        check_run_dir(config, places.run_dir)
    with alone_in(places.run_dir) if workers.chief else contextlib.nullcontext():
        with plain_errors(), workers.explained():
            captioner = fit(config, places, strategy, interrupts=interrupts)
        if workers.chief:
            evaluate_run(captioner, config, places)
        with plain_errors(), workers.explained():
            workers.wait()  # one that ended before the others would look to them like a failure


def train_digits(
    arguments: DigitArguments, strategy: tf.distribute.Strategy | None, interrupts: Interrupts
) -> None:
    """Train a digit system and evaluate it."""
    from training.digits.evaluate import evaluate_run
    from training.digits.fit import check_run_dir, fit
    from training.digits.single_first import single_dir, single_run
    from training.run_folder import alone_in

    config, data_dir = arguments.config, arguments.data_dir
    run_dir = arguments.run_dir or Path("runs") / config.recipe
    first, first_dir = single_run(config), single_dir(run_dir)
    if first is not None:
        config = dataclasses.replace(config, init_from=str(first_dir))
    check_run_dir(config, run_dir)
    with alone_in(run_dir):
        if first is not None:
            print(f"Single digits first, in {first_dir}.")
            check_run_dir(first, first_dir)
            with alone_in(first_dir), plain_errors():
                fit(first, first_dir, data_dir, strategy, interrupts=interrupts)
        with plain_errors():
            model = fit(config, run_dir, data_dir, strategy, interrupts=interrupts)
        evaluate_run(model, config, config, run_dir, data_dir)


if __name__ == "__main__":
    sys.exit(main())
