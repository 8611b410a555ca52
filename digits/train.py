"""Train a digit system: `python -m training.train --recipe ram_28`."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from digits import evaluate
from digits.config import DigitRunConfig, read_digit_config, to_text
from digits.data import epoch_steps, load_digits, training_batches
from digits.evaluate import Scorer, evaluate_run
from digits.models.model import DigitModel
from digits.recipes import Arguments, stages
from digits.runs import (
    check_init_from,
    check_learned,
    load,
    new_model,
    start_from,
    write_fingerprint,
)
from sat_tf.inference.run_folder import RunFolder
from sat_tf.util.errors import invalid_value
from training.run.checkpoints import Checkpoints
from training.run.decide import check_data_dir
from training.run.logs import (
    EpochProgress,
    LearningRate,
    TensorBoardFigures,
    TensorBoardScalars,
    Validate,
    remove_from,
)
from training.run.optimizers import make_optimizer
from training.run.ownership import check_run_dir, claim, exclusive_lock
from training.run.resume import CheckpointAndStop, best_epoch, outlook, train_epochs
from training.run.signals import Interrupts
from training.run.strategy import explained, make_strategy


def run(arguments: Arguments[Any], interrupts: Interrupts) -> None:
    """Trains, first on single digits if the recipe says so; then evaluates the best weights."""
    config, data_dir = arguments.config, arguments.data_dir
    run_dir = arguments.run_dir or Path("runs") / config.recipe
    check_data_dir(config, data_dir)
    resumed = RunFolder(run_dir).has_checkpoint()
    if config.init_from is not None and not resumed and not Path(config.init_from).is_dir():
        raise invalid_value("--init-from", "the folder of a finished run", config.init_from, "key")
    if arguments.deterministic:
        tf.config.experimental.enable_op_determinism()
    warnings.formatwarning = lambda message, *_: f"Warning: {message}\n"
    strategy = make_strategy(arguments.strategy)
    runs = stages(config, run_dir)
    with contextlib.ExitStack() as locks, explained():
        for config, folder in reversed(runs):
            check_run_dir(folder, config, read_digit_config)
            locks.enter_context(exclusive_lock(folder))
        for config, folder in runs:
            model = train(config, folder, data_dir, strategy, interrupts)
        evaluate_run(model, config, evaluate.Arguments(run_dir, config.model, data_dir))


def train(
    config: DigitRunConfig,
    run_dir: Path,
    data_dir: Path | None = None,
    strategy: tf.distribute.Strategy | None = None,
    interrupts: Interrupts | None = None,
    say: Callable[[str], Any] = print,
) -> DigitModel:
    """Trains a run to its end, resuming from its last checkpoint if it has one.

    Args:
        config: The run's configuration.
        run_dir: Its folder, which is this process' own.
        data_dir: Folder of `mnist.npz`; None for TensorFlow Datasets.
        strategy: Distributes work over devices; None for one device.
        interrupts: Signals that end the run at the next checkpoint; None ignores them.
        say: Receives the messages.

    Returns:
        The model with the best weights.
    """
    folder, data, fit = RunFolder(run_dir), config.data, config.fit
    strategy = strategy or tf.distribute.get_strategy()
    say(f"Recipe {config.recipe}, seed {config.seed}, in {run_dir}.")
    keras.utils.set_random_seed(config.seed)
    digits = load_digits("train", data, data_dir)
    dev = load_digits("dev", data, data_dir)
    steps = epoch_steps(digits, fit.batch_size)

    with strategy.scope():
        model = new_model(config)
    if config.init_from is not None and not folder.has_checkpoint():
        other = Path(config.init_from)
        taken = start_from(other, model)
        check_init_from(other, data, data_dir)
        say(f"Initialized with weights of {other}: {', '.join(taken)}.")
    check_learned(run_dir, digits, data_dir, "another `--run-dir`")
    claim(run_dir, to_text(config), config.init_from)
    write_fingerprint(run_dir, digits)
    with strategy.scope():
        model.compile(
            optimizer=make_optimizer(config.optimizer, steps, fit.epochs),
            clip_norm=config.optimizer.clip_norm,
            seed=config.seed,
            jit_compile=fit.jit_compile,
        )
    checkpoints = Checkpoints(folder.checkpoints, model)
    progress = checkpoints.restore()

    weights = sum(int(tf.size(v)) for v in model.trainable_variables)
    say(f"Data: {len(digits)} digits to train on, {len(dev)} dev digits.")
    say(f"System: {config.system}, {weights / 1e6:.2f} M weights.")
    say(f"Batches of {fit.batch_size} examples.")
    say(outlook(progress, fit.epochs, steps))
    if not progress.finished(fit.epochs):
        remove_from(folder.logs, progress.epoch)
        scorer = Scorer(model, data, dev, "dev")

        def draw_figures() -> dict[str, np.ndarray]:
            drawn = scorer.figures(fit.figures).values()
            return {f"attention/{number}": figure for number, figure in enumerate(drawn)}

        callbacks = [
            Validate(scorer.scores),
            LearningRate(),
            TensorBoardScalars(folder.logs),
            TensorBoardFigures(draw_figures, folder.logs),
            EpochProgress(fit.epochs, steps),
            CheckpointAndStop(
                checkpoints, progress, fit, steps, folder.best_weights, interrupts or Interrupts()
            ),
        ]

        def batches_from(epoch: int, step: int) -> tf.data.Dataset:
            return training_batches(digits, data, fit.batch_size, config.seed, epoch, step)

        train_epochs(model, batches_from, fit.epochs, steps, progress, callbacks)
    say(best_epoch(progress, fit.monitor))
    return load(config, run_dir)
