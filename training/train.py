"""Train a captioner or a digit system: `python -m training.train --recipe scenes_soft`."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

import tyro

from sat_tf.commands import loading
from sat_tf.errors import invalid_value
from sat_tf.files import default_cache_dir
from training.cli import (
    DEFAULT_RECIPE,
    check_data_dir,
    check_init_from,
    find_recipe,
    parse_settings,
    peek_flag,
)
from training.config import BaseOptimizerConfig, RunConfig, check_files
from training.recipes.captioning import RECIPES
from training.recipes.digits import RECIPES as DIGIT_RECIPES
from training.run_state.preemption import Interrupts, exit_status
from training.tasks.base import Places
from training.tasks.registry import stages

C = TypeVar("C")


@dataclass(frozen=True)
class Arguments(Generic[C]):
    """Train a captioner or a digit system; any key of the configuration is a flag."""

    config: Annotated[C, tyro.conf.arg(name=""), tyro.conf.FlagConversionOff]
    """The recipe's settings."""
    data_dir: Path | None = None
    """Your copy of the data set; drawn data needs none, and MNIST can be downloaded."""
    run_dir: Path | None = None
    """Folder of the run, new or to be resumed; runs/RECIPE by default."""
    strategy: Literal["auto", "none", "mirrored"] = "auto"
    """auto mirrors the model over the GPUs if there are several."""
    deterministic: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """The same bits every time, resumed or not, on one kind of device; slower on a GPU."""

    def places(self) -> Places:
        """Returns the run's folders."""
        return Places(self.run_dir or Path("runs") / self.config.recipe, None, self.data_dir)


@dataclass(frozen=True)
class CaptioningArguments(Arguments[RunConfig]):
    """Train a captioner; any key of the configuration is a flag."""

    cache_dir: Path | None = None
    """Feature stores; $SAT_TF_CACHE, $XDG_CACHE_HOME/sat_tf or ~/.cache/sat_tf by default."""
    strategy: Literal["auto", "none", "mirrored", "multi_worker"] = "auto"
    """auto mirrors the model over the GPUs if there are several; multi_worker reads TF_CONFIG."""
    boxes: Path | None = None
    """The same as --attention.teacher, of boxes."""
    locator: Path | None = None
    """The same as --attention.teacher, of a word locator."""
    predictions: Path | None = None
    """The same as --fit.predictions."""

    def __post_init__(self) -> None:
        if self.strategy == "multi_worker" and self.config.fit.precision == "auto":
            expected = "float32 or bfloat16 with `--strategy multi_worker`"
            raise invalid_value("--fit.precision", expected, "auto", "key")
        if self.strategy == "multi_worker" and self.config.fit.jit_compile:
            expected = "False with `--strategy multi_worker`"
            raise invalid_value("--fit.jit_compile", expected, True, "key")

    def places(self) -> Places:
        """Returns the run's folders."""
        run_dir = self.run_dir or Path("runs") / self.config.recipe
        cache_dir = self.cache_dir or default_cache_dir()
        return Places(run_dir, cache_dir, self.data_dir)


def with_teachers(arguments: CaptioningArguments) -> CaptioningArguments:
    """Puts the files of `--boxes`, `--locator` and `--predictions` into the configuration.

    Raises:
        ValueError: There are two files for one thing.
    """
    config = arguments.config
    attention, fit = config.attention, config.fit
    given = {"--boxes": arguments.boxes, "--locator": arguments.locator}
    given = {flag: str(path) for flag, path in given.items() if path is not None}
    if len(given) > 1:
        raise invalid_value("--locator", "none with `--boxes`", given["--locator"], "key")
    for path in given.values():
        attention = dataclasses.replace(attention, teacher=path)
    if arguments.predictions is not None:
        fit = dataclasses.replace(fit, predictions=str(arguments.predictions))
    config = dataclasses.replace(config, attention=attention, fit=fit)
    check_files(config)
    return dataclasses.replace(arguments, config=config)


def check_optimizer(config: BaseOptimizerConfig, base: BaseOptimizerConfig) -> None:
    """Checks that weight decay, unless it is the recipe's, goes with an optimizer that has it.

    Raises:
        ValueError: The optimizer has no weight decay.
    """
    if config.weight_decay not in (0.0, base.weight_decay) and config.name != "adamw":
        expected = f"none with `--optimizer.name {config.name}`, as only adamw supports it"
        raise invalid_value("--optimizer.weight_decay", expected, config.weight_decay, "key")


def parse(argv: list[str]) -> Arguments[Any]:
    """Reads the command line; the recipe decides which flags there are."""
    recipes = RECIPES | DIGIT_RECIPES
    config = find_recipe(recipes, peek_flag("--recipe", argv, DEFAULT_RECIPE))
    kind = CaptioningArguments if isinstance(config, RunConfig) else Arguments[type(config)]
    purpose = "Train a captioner or a digit system."
    arguments = parse_settings(kind, argv, "training.train", purpose, recipes)
    check_optimizer(arguments.config.optimizer, config.optimizer)
    return with_teachers(arguments) if isinstance(config, RunConfig) else arguments


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    given = sys.argv[1:] if argv is None else argv
    return exit_status(lambda interrupts: run(parse(given), interrupts))


def run(arguments: Arguments[Any], interrupts: Interrupts) -> None:
    """Trains, then evaluates the best weights on dev."""
    check_data_dir(arguments.config, arguments.data_dir)
    if not os.environ.get("TF_CONFIG"):  # one of several workers: the chief knows if it resumes
        check_init_from(arguments.config, arguments.places().run_dir)
    # TensorFlow takes seconds to load: a wrong flag is answered before.
    with loading():
        import keras  # noqa: F401
        import tensorflow as tf

        from training.distributed.collectives import worker_group
        from training.distributed.strategies import make_strategy
        from training.loop.fit import fit
        from training.precision import resolve_precision
        from training.run_state.ownership import check_run_dir, exclusive_lock

        config, places = arguments.config, arguments.places()
        if isinstance(config, RunConfig):
            config = resolve_precision(config, places.run_dir)
        runs = stages(config, places)
    if arguments.deterministic:
        tf.config.experimental.enable_op_determinism()
    warnings.formatwarning = lambda message, *_: f"Warning: {message}\n"
    # Before any operation, as several processes need it.
    group = worker_group(make_strategy(arguments.strategy))
    interrupts.listen()
    with contextlib.ExitStack() as locks:
        for task in reversed(runs):
            group.on_chief(check_run_dir, task)
            group.on_chief(locks.enter_context, exclusive_lock(task.places.run_dir))
        for task in runs:
            with group.explained():
                trained = fit(task, group, interrupts=interrupts)
        group.on_chief(task.evaluate, trained)
        with group.explained():
            group.barrier()  # the others would take a worker that ends early for a lost one


if __name__ == "__main__":
    sys.exit(main())
