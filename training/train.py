"""Train a captioner: `python -m training.train --recipe scenes_soft`; hands over digit systems."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from sat_tf.commands import loading
from sat_tf.errors import invalid_value
from sat_tf.files import default_cache_dir
from training import digits
from training.cli import (
    DEFAULT_RECIPE,
    Settings,
    check_data_dir,
    check_init_from,
    check_optimizer,
    find_recipe,
    parse_settings,
    peek_flag,
)
from training.config import check_files
from training.recipes.captioning import RECIPES
from training.run_state.preemption import Interrupts, exit_status
from training.tasks.base import Places


@dataclass(frozen=True)
class CaptioningArguments:
    """Train a captioner; any key of the configuration is a flag."""

    config: Settings
    """The recipe's settings."""
    data_dir: Path | None = None
    """Your copy of the data set; drawn data needs none."""
    run_dir: Path | None = None
    """Folder of the run, new or to be resumed; runs/RECIPE by default."""
    deterministic: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """The same bits every time, resumed or not, on one kind of device; slower on a GPU."""
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


def parse(argv: list[str]) -> CaptioningArguments:
    """Reads the command line; the recipe decides which flags there are."""
    recipes = RECIPES | digits.RECIPES
    config = find_recipe(recipes, peek_flag("--recipe", argv, DEFAULT_RECIPE))
    purpose = "Train a captioner or a digit system."
    arguments = parse_settings(CaptioningArguments, argv, "training.train", purpose, recipes)
    check_optimizer(arguments.config.optimizer, config.optimizer)
    return with_teachers(arguments)


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    given = sys.argv[1:] if argv is None else argv
    if peek_flag("--recipe", given) in digits.RECIPES:
        return digits.command("train").main(given)
    return exit_status(lambda interrupts: run(parse(given), interrupts))


def run(arguments: CaptioningArguments, interrupts: Interrupts) -> None:
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
        from training.tasks.captioning.task import CaptioningTask

        config, places = arguments.config, arguments.places()
        task = CaptioningTask(resolve_precision(config, places.run_dir), places)
    if arguments.deterministic:
        tf.config.experimental.enable_op_determinism()
    warnings.formatwarning = lambda message, *_: f"Warning: {message}\n"
    # Before any operation, as several processes need it.
    group = worker_group(make_strategy(arguments.strategy))
    interrupts.listen()
    with contextlib.ExitStack() as locks:
        group.on_chief(check_run_dir, places.run_dir, task.config, task.read_config)
        group.on_chief(locks.enter_context, exclusive_lock(places.run_dir))
        with group.explained():
            trained = fit(task, group, interrupts=interrupts)
        group.on_chief(task.evaluate, trained)
        with group.explained():
            group.barrier()  # the others would take a worker that ends early for a lost one


if __name__ == "__main__":
    sys.exit(main())
