"""Exact resume: state saved within epochs, and the epochs that a run has left.

A run that is stopped, at whatever moment, ends like one that was not, bit for bit: batches and
draws follow from (seed, epoch, step), and a checkpoint has all else.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from sat_tf.util.commands import counted
from sat_tf.util.errors import RunError
from training.run.checkpoints import Checkpoints, Progress
from training.run.config import BaseFitConfig
from training.run.signals import SIGNALS, Interrupts
from training.run.strategy import heard, of_chief, on_chief

_LOWER_IS_BETTER = ("nll", "error")


def monitors(monitor: str) -> tuple[str, ...]:
    """Returns the dev scores that decide about an epoch, the first that is defined.

    An earlier score decides against a later one: the nll chooses among epochs only while no epoch
    has a BLEU or CIDEr above 0.
    """
    return tuple(dict.fromkeys((monitor, "cider", "nll")))


def monitored(logs: Mapping[str, float], monitor: str) -> tuple[int, float]:
    """Returns the place in `monitors` and the value of the score that decides about an epoch.

    The value is made so that higher is better; NaN if no score is defined. A BLEU or CIDEr of 0
    matches nothing: it is not defined.
    """
    for rank, name in enumerate(monitors(monitor)):
        value = float(logs.get(f"val_{name}", np.nan))
        if name in _LOWER_IS_BETTER and not np.isnan(value):
            return rank, -value
        if value > 0.0:
            return rank, value
    return 0, np.nan


class CheckpointAndStop(keras.callbacks.Callback):
    """Keeps the best weights and the last state, and stops early, for the monitored dev score.

    It saves the state every `checkpoint_steps` steps, after the last step of an epoch and after
    its validation. The best weights are written before that last checkpoint: a process killed
    between the two validates again and writes them again. A signal waits for the end of the step
    under way, after which the state is saved and `Interrupted` raised. Of several workers the chief
    alone writes, and its score decides for all.

    Args:
        checkpoints: The run's.
        progress: The place in the run; it moves.
        config: The training loop.
        steps: Steps of a whole epoch.
        best_weights: The file of the best weights.
        interrupts: Signals that end the run.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        progress: Progress,
        config: BaseFitConfig,
        steps: int,
        best_weights: Path,
        interrupts: Interrupts,
    ) -> None:
        super().__init__()
        self._checkpoints, self._progress, self._interrupts = checkpoints, progress, interrupts
        self._config, self._steps, self._best_weights = config, steps, best_weights

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        self._begun = time.monotonic()
        self._first = self._progress.step
        if self._first:  # Keras has just reset the running means.
            for variable, value in zip(self._means(), self._progress.means, strict=True):
                variable.assign(value)

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        self._interrupts.hold()
        step = self._progress.step = self._first + batch + 1
        due = step % self._config.checkpoint_steps == 0 or step == self._steps
        if due or self._is_told_to_stop(step):
            self._progress.means = [np.asarray(variable).tolist() for variable in self._means()]
            self._save()

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        self._interrupts.hold()
        loss, progress = float(logs.get("loss", 0.0)), self._progress
        if not np.isfinite(loss):  # before these weights count as the best
            raise ValueError(
                f"The loss of epoch {epoch + 1} is {loss}: training has diverged. Start a new run "
                "with a lower `--optimizer.learning-rate`; if that does not help, look for values "
                "that are not finite in the data."
            )
        scores = {**logs, "val_last": epoch + 1.0}
        rank, score = of_chief(monitored(scores, self._config.monitor))  # only it has them all
        if progress.end_epoch(score, int(rank)):
            from sat_tf.inference import weights

            on_chief(weights.save_weights)(self.model, self._best_weights)
        progress.stopped = progress.waited >= self._config.patience
        # The rest of an interrupted epoch has a `fit` call of its own, as all epochs of one call
        # have the same number of steps.
        if progress.stopped or self._first:
            self.model.stop_training = True
        self._save()

    def _save(self) -> None:
        now = time.monotonic()
        self._progress.seconds += now - self._begun
        self._begun = now
        self._checkpoints.save(self._progress)
        self._is_told_to_stop(step=0)  # no worker continues or ends before the state is saved
        self._interrupts.release(f"The state at {self._progress.where} is saved.")

    def _is_told_to_stop(self, step: int) -> bool:
        """Learns of a signal that any worker has received: all of them save and end together."""
        number = heard(self._interrupts.waiting, SIGNALS, step)
        self._interrupts.waiting = number or self._interrupts.waiting
        return number is not None

    def _means(self) -> list[keras.Variable]:
        return [variable for metric in self.model.metrics for variable in metric.variables]


def outlook(progress: Progress, epochs: int, steps: int) -> str:
    """Describes the training ahead of a run of so many epochs of so many steps."""
    if progress.finished(epochs):
        return f"Finished before, after {counted(progress.epoch, 'epoch')}: nothing left to train."
    if progress.epoch or progress.step:
        return f"Resuming at {progress.where}."
    return f"Training {counted(epochs, 'epoch')} of {counted(steps, 'step')}."


def train_epochs(
    model: keras.Model,
    batches_from: Callable[[int, int], tf.data.Dataset | tf.distribute.DistributedDataset],
    epochs: int,
    steps: int,
    progress: Progress,
    callbacks: Sequence[keras.callbacks.Callback],
) -> None:
    """Trains the rest of an interrupted epoch, then the remaining epochs.

    No batch is read any more once it has returned.

    Args:
        model: Compiled, in the state of the last checkpoint.
        batches_from: Returns the endless batches from an epoch and a step of it on.
        epochs: Epochs of the run.
        steps: Steps of a whole epoch.
        progress: The place in the run; a `CheckpointAndStop` among the callbacks moves it.
        callbacks: Run in their order.

    Raises:
        RunError: The interrupted epoch now has fewer steps than were done.
    """
    if progress.step > steps:
        raise RunError(
            f"The run stopped at {progress.where}, but an epoch now has {steps} steps: its data "
            "have shrunk. Restore the data it was started with, or choose another `--run-dir`."
        )
    try:
        while not progress.finished(epochs):
            epoch, left = progress.epoch, steps - progress.step
            if left:
                model.fit(
                    batches_from(epoch, progress.step),
                    epochs=epochs,
                    initial_epoch=epoch,
                    steps_per_epoch=left,
                    callbacks=callbacks,
                    shuffle=False,
                    verbose=0,
                )
                continue
            # It was interrupted during validation: the epoch ends as `fit` ends it.
            ending = keras.callbacks.CallbackList(callbacks, model=model, steps=0)
            ending.on_train_begin()
            ending.on_epoch_begin(epoch)
            ending.on_epoch_end(epoch, model.get_metrics_result())
            ending.on_train_end()
    finally:
        gc.collect()  # Keras' iterators over epochs refer to themselves


def best_epoch(progress: Progress, monitor: str) -> str:
    """Describes the best epoch of a trained run.

    Raises:
        RunError: No epoch had a score that is a number.
    """
    if progress.best_score is None:
        raise RunError(
            f"No weights were saved: the dev score `{monitor}` was never a number, in "
            f"{counted(progress.epoch, 'epoch')}. Training has diverged; try a lower "
            "`--optimizer.learning_rate`, in another `--run-dir`."
        )
    decided, minutes = monitors(monitor)[progress.best_rank], progress.seconds / 60
    if decided == "last":
        return f"Kept epoch {progress.best_epoch}, the last; {minutes:.1f} minutes of training."
    why = "" if decided == monitor else f" `{monitor}` was 0 or undefined in every epoch."
    return (
        f"Best epoch {progress.best_epoch} of {progress.epoch}: {decided} "
        f"{abs(progress.best_score):.2f}; {minutes:.1f} minutes of training.{why}"
    )
