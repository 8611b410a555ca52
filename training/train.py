"""Train a captioner or a digit system: `python -m training.train --recipe scenes_soft`.

`train` is one run from top to bottom: data, model, inputs, the state of the last checkpoint if
there is one, epochs. Three things are elsewhere:

    training.config             every setting
    training.run_state.resume   what is saved within an epoch, and how the rest of it is trained
    training.distributed        several processes; the functions used here do nothing special in one

SIGTERM and Ctrl-C wait for the end of the step under way (`training.run_state.signals`); the state
is saved, and the same command, started again, ends like a run that was never stopped.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from digits import hand_over
from sat_tf.commands import command_line, loading, run_process
from sat_tf.errors import invalid_value
from sat_tf.files import default_cache_dir
from sat_tf.run_folder import RunFolder
from training import little_data
from training.cli import (
    DEFAULT_RECIPE,
    HELP,
    Settings,
    check_data_dir,
    check_init_from,
    check_optimizer,
    parse_settings,
    peek_flag,
)
from training.config import (
    RunConfig,
    check_available,
    read_run_config,
    settled,
)
from training.data.dataset import Dataset
from training.limits import learn_familiarity
from training.recipes import RECIPES
from training.run_state.signals import Interrupts, exit_status

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

    from sat_tf.trained.captioning import TrainedCaptioner


@dataclass(frozen=True)
class Arguments:
    """Train a captioner; any key of the configuration is a flag."""

    config: Settings
    """The recipe's settings."""
    data_dir: Path | None = None
    """Your copy of the data set; drawn data needs none."""
    run_dir: Path | None = None
    """Folder of the run, new or to be resumed; runs/RECIPE by default."""
    cache_dir: Path | None = None
    """Feature stores; $SAT_TF_CACHE, $XDG_CACHE_HOME/sat_tf or ~/.cache/sat_tf by default."""
    strategy: Literal["auto", "none", "mirrored", "multi_worker"] = "auto"
    """auto mirrors the model over the GPUs if there are several; multi_worker reads TF_CONFIG."""
    deterministic: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """The same bits every time, resumed or not, on one kind of device; slower on a GPU."""
    boxes: Path | None = None
    """The same as --attention.teacher, of boxes."""
    locator: Path | None = None
    """The same as --attention.teacher, of a word locator."""
    predictions: Path | None = None
    """The same as --fit.predictions."""

    def settings(self) -> RunConfig:
        """Returns the configuration with the files that teach, once all of it is checked.

        Raises:
            ValueError: The message names the key.
        """
        config = self.config
        attention, fit = config.attention, config.fit
        check_optimizer(config.optimizer, RECIPES[config.recipe].optimizer)
        if self.boxes is not None and self.locator is not None:
            raise invalid_value("--locator", "none with `--boxes`", str(self.locator), "key")
        if teacher := self.boxes or self.locator:
            attention = dataclasses.replace(attention, teacher=str(teacher))
        if self.predictions is not None:
            fit = dataclasses.replace(fit, predictions=str(self.predictions))
        config = dataclasses.replace(config, attention=attention, fit=fit)
        check_available(config)
        if self.strategy == "multi_worker" and fit.precision == "auto":
            expected = "float32 or bfloat16 with `--strategy multi_worker`"
            raise invalid_value("--fit.precision", expected, "auto", "key")
        if self.strategy == "multi_worker" and fit.jit_compile:
            expected = "False with `--strategy multi_worker`"
            raise invalid_value("--fit.jit_compile", expected, True, "key")
        return config


def parse(argv: Sequence[str]) -> Arguments:
    """Reads the command line; the recipe gives what no flag does."""
    purpose = "Train a captioner or a digit system."
    known = peek_flag("--recipe", [*argv], DEFAULT_RECIPE) in RECIPES and not HELP & {*argv}
    recipes = RECIPES if known else RECIPES | hand_over.recipes()
    arguments = parse_settings(Arguments, [*argv], "training.train", purpose, recipes)
    return dataclasses.replace(arguments, config=arguments.settings())


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    given = sys.argv[1:] if argv is None else argv
    recipe = peek_flag("--recipe", given, DEFAULT_RECIPE)
    if recipe not in RECIPES and recipe in hand_over.recipes():
        return exit_status(lambda interrupts: hand_over.train(given, interrupts))
    return exit_status(lambda interrupts: run(parse(given), interrupts))


def run(arguments: Arguments, interrupts: Interrupts) -> None:
    """Trains, then evaluates the best weights on dev."""
    config, data_dir = arguments.config, arguments.data_dir
    run_dir = arguments.run_dir or Path("runs") / config.recipe
    check_data_dir(config, data_dir)
    config = settled(config, run_dir, data_dir)
    cache_dir = arguments.cache_dir or default_cache_dir()
    if not os.environ.get("TF_CONFIG"):  # one of several workers: the chief knows if it resumes
        check_init_from(config, run_dir)
    with loading():  # TensorFlow takes seconds: a wrong flag was answered before
        import tensorflow as tf

        from training.distributed import barrier, explained, make_strategy, on_chief
        from training.model import resolve_precision
        from training.run_state.ownership import check_run_dir, exclusive_lock
    config = resolve_precision(config)
    if arguments.deterministic:
        tf.config.experimental.enable_op_determinism()
    warnings.formatwarning = lambda message, *_: f"Warning: {message}\n"
    strategy = make_strategy(arguments.strategy)
    interrupts.listen()  # a strategy may have replaced the handlers
    check_run_dir(run_dir, config, read_run_config)
    with exclusive_lock(run_dir):
        with explained():
            captioner = train(config, run_dir, cache_dir, data_dir, strategy, interrupts)
        from training.evaluate.evaluation import Request, evaluate_run

        if captioner is not None:  # the chief's
            config = read_run_config(run_dir)
        out = RunFolder(run_dir).evaluation("dev")
        of_dev = Request(out, "dev", data_dir, cache_dir, learn_confidence=True)
        on_chief(evaluate_run)(captioner, config, of_dev)
        command = command_line("training.caption", "--run-dir", run_dir)
        on_chief(print)(f"Caption with it: {command} PHOTO")
        if captioner is not None:
            print(*little_data.after_training(RunFolder(run_dir), config, data_dir), sep="\n")
        barrier()  # the others would take a worker that ends early for a lost one


def train(
    config: RunConfig,
    run_dir: Path,
    cache_dir: Path | None = None,
    data_dir: Path | None = None,
    strategy: tf.distribute.Strategy | None = None,
    interrupts: Interrupts | None = None,
    say: Callable[[str], Any] = print,
    callbacks: Sequence[keras.callbacks.Callback] = (),
) -> TrainedCaptioner | None:
    """Trains a run to its end, resuming from its last checkpoint if it has one.

    Args:
        config: The run's configuration, `training.config.settled`.
        run_dir: Everything the run leaves behind.
        cache_dir: Feature stores, shared by runs; None for the default.
        data_dir: The user's copy of the data set; None for drawn data.
        strategy: Distributes work over devices; None for one device.
        interrupts: Signals that end the run once its state is saved; None ignores them.
        say: Receives the messages.
        callbacks: Called last.

    Returns:
        The captioner with the best weights; None on a worker that is not the chief.

    Raises:
        ValueError: The data, a file that the configuration names or the run's folder cannot be
            used, or training has diverged.
    """
    import keras

    from sat_tf.trained.runs import TrainedCaptioner, load_captioner
    from training.distributed import check_equal, chief_callbacks, on_chief, shared
    from training.inputs import batches_of, describe_inputs, load_data, open_inputs
    from training.model import compile_model, describe_model, first_model
    from training.run_state import logs, ownership
    from training.run_state.checkpoints import Checkpoints, restore_layers
    from training.run_state.resume import CheckpointAndStop, best_epoch, outlook, train_epochs
    from training.teach.rewards import reward_objective
    from training.validation import AttentionCollapseWarning, Validation

    folder, say, interrupts = RunFolder(run_dir), on_chief(say), interrupts or Interrupts()
    ownership.check_run_dir(run_dir, config, read_run_config)
    say(f"Recipe {config.recipe}, seed {config.seed}, in {run_dir}.")
    keras.utils.set_random_seed(config.seed)
    kept = ownership.kept_words(config, run_dir)
    cache_dir = cache_dir or default_cache_dir()
    dataset = Dataset.open(config.data, data_dir, cache_dir, folder.dataset)
    data = load_data(config.data, data_dir, kept, dataset)
    config = config.split_at(data.train.held_out)
    check_equal("configuration or data", lambda: f"{config.without_files()} {data.fingerprint()}")

    model = first_model(config, data, shared(folder.has_checkpoint()), strategy, say)
    if not model.encoder.trainable:  # its weights are final before its annotations are stored
        restore_layers(folder.checkpoints, model, [model.encoder])

    inputs = open_inputs(config, model.encoder, data, cache_dir)
    check_equal("readable images", lambda: repr(inputs.contents))
    ownership.begin_run(folder, config, data, inputs, dataset, data_dir)
    for line in describe_inputs(config, data, inputs, folder):
        say(line)
    steps, batches_from = batches_of(config, data.table, inputs)

    with model.distribute_strategy.scope():
        compile_model(model, config, steps, reward_objective(config, data.table, data.vocabulary))
    say(describe_model(model, config.fit.batch_size))
    state = Checkpoints(folder.checkpoints, model)
    progress = state.restore()
    done = lambda: progress.epoch * steps + progress.step  # noqa: E731
    logs.remove_from(folder.logs, progress.epoch, done())
    dev = Validation(TrainedCaptioner(model, data.vocabulary), config, data, inputs)
    all_callbacks = [
        logs.Validate(dev.scores),  # first, as the others read the scores
        *chief_callbacks(
            AttentionCollapseWarning(),
            logs.LearningRate(),
            logs.TensorBoardScalars(folder.logs),
            logs.TensorBoardSteps(folder.logs, done),
            logs.TensorBoardFigures(dev.figures, folder.logs),
            logs.EpochProgress(config.fit.epochs, steps),
            logs.NoteUnreadable(inputs.of(data), folder.skipped, say),
        ),
        CheckpointAndStop(state, progress, config.fit, steps, folder.best_weights, interrupts),
        *callbacks,
    ]
    say(outlook(progress, config.fit.epochs, steps))
    train_epochs(model, batches_from, config.fit.epochs, steps, progress, all_callbacks)
    say(best_epoch(progress, config.fit.monitor))
    return learn_familiarity(on_chief(load_captioner)(run_dir), inputs.of(data))


if __name__ == "__main__":
    run_process(main)
