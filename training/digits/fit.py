"""A digit system's run, from its configuration to its best weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from sat_tf.models.digit_model import DigitModel
from training.callbacks import Keep, LearningRate
from training.checkpoints import Checkpoints, Progress
from training.digits import origin
from training.digits.batches import epoch_steps, training_batches
from training.digits.config import DigitRunConfig, read_digit_config, to_text
from training.digits.evaluation import Scorer
from training.digits.mnist import Digits, load_digits
from training.digits.systems import load, new_model
from training.digits.warm_start import start_from
from training.epochs import best_epoch, train_epochs
from training.event_files import Scalars, forget_from
from training.interrupts import Interrupts
from training.optimizers import make_optimizer
from training.run_folder import check_free, claim_with


class Validate(keras.callbacks.Callback):
    """Adds the figures of the dev split to the logs: `val_error` and the others.

    Args:
        scorer: Of the model being trained.
    """

    def __init__(self, scorer: Scorer) -> None:
        super().__init__()
        self._scorer = scorer

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        logs |= {f"val_{name}": value for name, value in self._scorer.figures().items()}


class Pictures(keras.callbacks.Callback):
    """What attention does to the first dev examples, in TensorBoard, each epoch.

    Args:
        scorer: Of the model being trained.
        count: Pictures shown.
        log_dir: TensorBoard's folder.
    """

    def __init__(self, scorer: Scorer, count: int, log_dir: Path) -> None:
        super().__init__()
        self._scorer, self._count, self._log_dir = scorer, count, str(log_dir / "pictures")

    def on_train_begin(self, logs: dict | None = None) -> None:
        self._writer = tf.summary.create_file_writer(self._log_dir)

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        with self._writer.as_default(step=epoch):
            for number, picture in enumerate(self._scorer.pictures(self._count)):
                tf.summary.image(f"attention/{number}", picture[np.newaxis])
        self._writer.flush()

    def on_train_end(self, logs: dict | None = None) -> None:
        self._writer.close()


def fit(
    config: DigitRunConfig,
    run_dir: Path,
    data_dir: Path | None = None,
    strategy: tf.distribute.Strategy | None = None,
    say: Callable[[str], None] = print,
    interrupts: Interrupts | None = None,
) -> DigitModel:
    """Train, going on from the run's last checkpoint if it has one.

    Args:
        config: What to train.
        run_dir: Where everything goes.
        data_dir: Folder of `mnist.npz`; None for TensorFlow Datasets.
        strategy: None for one device.
        say: Where messages go.
        interrupts: Signals that end the run once its state is kept; None for none.

    Returns:
        The model with the run's best weights.
    """
    check_run_dir(config, run_dir)
    keras.utils.set_random_seed(config.seed)
    train, dev = (
        load_digits(split, data_dir, config.data.dev_digits, config.data.limit)
        for split in ("train", "dev")
    )
    steps = epoch_steps(train, config)
    strategy = strategy or tf.distribute.get_strategy()
    with strategy.scope():
        model = new_model(config)
    if config.init_from is not None:
        other = Path(config.init_from)
        taken = start_from(other, model)
        origin.check_init_from(other, read_digit_config(other).data, config.data, data_dir)
        say(f"From {config.init_from}: {', '.join(taken)}.")
    claim(config, train, run_dir)
    with strategy.scope():
        compile_model(model, config, steps)
    checkpoints = Checkpoints(run_dir / "checkpoints", model)
    progress = checkpoints.restore() or Progress()
    describe(config, model, train, dev, steps, progress, say)
    if progress.epoch < config.fit.epochs and not progress.stopped:
        forget_from(run_dir / "logs", progress.epoch)
        hooks = callbacks(config, run_dir, Scorer(model, config, dev, "dev"))
        interrupts = interrupts or Interrupts()
        hooks.append(Keep(checkpoints, progress, config.fit, steps, run_dir, interrupts))

        def from_step(epoch: int, step: int) -> tf.data.Dataset:
            return training_batches(train, config, epoch, step)

        train_epochs(model, from_step, config.fit.epochs, steps, progress, hooks)
    say(best_epoch(progress, "error in percent"))
    return load(config, run_dir)


def check_run_dir(config: DigitRunConfig, run_dir: Path) -> None:
    """`check_free` for the run of a digit system."""
    check_free(config, run_dir, read_digit_config)


def claim(config: DigitRunConfig, train: Digits, run_dir: Path) -> None:
    """Make the run's folder its own.

    Raises:
        DataError: The run was started with other digits.
    """
    origin.check_own(run_dir, train)
    claim_with(run_dir, to_text(config))
    origin.keep(run_dir, train)


def compile_model(model: DigitModel, config: DigitRunConfig, steps: int) -> None:
    """Give the model its optimiser and the constants of its train step."""
    model.compile(
        optimizer=make_optimizer(config.optimizer, steps, config.fit.epochs),
        clip_norm=config.optimizer.clip_norm,
        seed=config.seed,
        jit_compile=config.fit.jit_compile,
    )


def callbacks(
    config: DigitRunConfig, run_dir: Path, scorer: Scorer
) -> list[keras.callbacks.Callback]:
    """All but `Keep`, in the order they run: figures first, so that the others find them."""
    log_dir = run_dir / "logs"
    return [
        Validate(scorer),
        LearningRate(),
        Scalars(str(log_dir), write_graph=False),
        Pictures(scorer, config.fit.pictures, log_dir),
    ]


def describe(
    config: DigitRunConfig,
    model: DigitModel,
    train: Digits,
    dev: Digits,
    steps: int,
    progress: Progress,
    say: Callable[[str], None],
) -> None:
    """What is about to happen."""
    weights = sum(int(tf.size(v)) for v in model.trainable_variables)
    say(f"Recipe {config.recipe}, seed {config.seed}.")
    say(f"Data: {len(train)} digits to train on, {len(dev)} dev digits.")
    say(f"System: {config.system}, {weights / 1e6:.2f} M weights.")
    if progress.epoch or progress.step:
        say(f"Going on {progress.where}.")
    else:
        say(f"{config.fit.epochs} epochs of {steps} steps of {config.fit.batch_size} examples.")
