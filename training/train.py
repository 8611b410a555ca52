"""Train a captioner or a digit system: `python -m training.train --recipe scenes_soft`."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

import tyro

from sat_tf.cache import default_cache_dir
from sat_tf.commands import loading
from sat_tf.errors import invalid_value
from training.cli import (
    DEFAULT_RECIPE,
    check_data_dir,
    check_init_from,
    find_recipe,
    parse_settings,
    peek_flag,
)
from training.config import BaseOptimizerConfig, RunConfig
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
    """Boxes of the training captions' phrases, for --attention.supervision-weight: Flickr30k
    Entities (folder, for Flickr8k and Flickr30k), COCO's instances (.json), or JSON lines; see
    docs/data.md."""
    locator: Path | None = None
    """Word locator of training.locate: captions take the place of boxes for
    --attention.supervision-weight."""
    predictions: Path | None = None
    """Predictions of other captioners for the training captions, by training.distill, for
    --fit.distillation-weight."""

    def __post_init__(self) -> None:
        if self.strategy == "multi_worker" and self.config.fit.precision == "auto":
            expected = "float32 or bfloat16 with `--strategy multi_worker`"
            raise invalid_value("--fit.precision", expected, "auto", "key")
        if self.strategy == "multi_worker" and self.config.fit.jit_compile:
            expected = "False with `--strategy multi_worker`"
            raise invalid_value("--fit.jit_compile", expected, True, "key")
        check_supervision(self.config, self.boxes, self.locator)
        check_distillation(self.config, self.predictions)

    def places(self) -> Places:
        """Returns the run's folders."""
        run_dir = self.run_dir or Path("runs") / self.config.recipe
        cache_dir = self.cache_dir or default_cache_dir()
        teaching = self.boxes, self.locator, self.predictions
        return Places(run_dir, cache_dir, self.data_dir, *teaching)


def check_supervision(config: RunConfig, boxes: Path | None, locator: Path | None) -> None:
    """Checks that attention has one teacher if it is supervised, and none if it is not.

    Raises:
        ValueError: The message names the flag.
    """
    given = {"--boxes": boxes, "--locator": locator}
    teachers = [flag for flag, path in given.items() if path is not None]
    if not config.attention.supervision_weight:
        for flag in teachers:
            expected = f"above 0 with `{flag}`"
            raise invalid_value("--attention.supervision_weight", expected, 0.0, "key")
    elif len(teachers) > 1:
        raise invalid_value("--locator", "none with `--boxes`", str(locator), "key")
    elif boxes is not None and not boxes.exists():
        got = f"{boxes}, which does not exist"
        raise invalid_value("--boxes", "a file or folder of boxes", got, "key")
    elif locator is not None and not locator.is_file():
        raise invalid_value("--locator", "a file of training.locate", str(locator), "key")
    elif locator is not None and config.encoder.trainable:
        expected = "none with a trained encoder, whose annotations change"
        raise invalid_value("--locator", expected, str(locator), "key")
    elif not teachers and config.data.name != "scenes":
        expected = "boxes of the training captions' phrases to supervise attention by, or "
        expected += "`--locator FILE` of training.locate, which needs no boxes"
        raise invalid_value("--boxes", expected, None, "key")


def check_distillation(config: RunConfig, predictions: Path | None) -> None:
    """Checks that there are predictions if they are to be learned, and none otherwise.

    Raises:
        ValueError: The message names the flag.
    """
    weight = config.fit.distillation_weight
    if not weight and predictions is not None:
        expected = "above 0 with `--predictions`"
        raise invalid_value("--fit.distillation_weight", expected, weight, "key")
    if weight and (predictions is None or not predictions.is_file()):
        expected = "a file of training.distill"
        raise invalid_value("--predictions", expected, predictions, "key")


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
    return arguments


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
