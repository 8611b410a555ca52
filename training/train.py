"""Train a captioner: `python -m training.train --recipe scenes_soft`; hands over digit systems."""

from __future__ import annotations

import contextlib
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
from training.config import RunConfig
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


def parse(argv: list[str]) -> CaptioningArguments:
    """Reads the command line; the recipe decides which flags there are."""
    recipes = RECIPES | digits.RECIPES
    config = find_recipe(recipes, peek_flag("--recipe", argv, DEFAULT_RECIPE))
    purpose = "Train a captioner or a digit system."
    arguments = parse_settings(CaptioningArguments, argv, "training.train", purpose, recipes)
    check_optimizer(arguments.config.optimizer, config.optimizer)
    return arguments


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
