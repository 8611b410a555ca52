"""The epochs that a run has left, wherever it was interrupted."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import keras
import tensorflow as tf

from sat_tf.runs import RunError
from training.config import monitors
from training.distributed.collectives import SingleProcess
from training.loop.epoch_progress import EpochProgress
from training.messages import counted
from training.run_state.checkpoints import Progress


def train_epochs(
    model: keras.Model,
    batches_from: Callable[[int, int], tf.data.Dataset | tf.distribute.DistributedDataset],
    epochs: int,
    steps: int,
    progress: Progress,
    callbacks: Sequence[keras.callbacks.Callback],
    group: SingleProcess,
) -> None:
    """Trains the rest of an interrupted epoch, then the remaining epochs.

    Raises:
        RunError: The interrupted epoch now has fewer steps than were done.
    """
    if progress.step > steps:
        raise RunError(
            f"The run stopped at {progress.where}, but an epoch now has {steps} steps: its data "
            "have shrunk. Restore the data it was started with, or choose another `--run-dir`."
        )
    shown = group.chief_only(EpochProgress(epochs, steps))
    callbacks = [*callbacks, shown]
    while not progress.finished(epochs):
        epoch, left = progress.epoch, steps - progress.step
        if not left:
            _end_epoch(model, callbacks, epoch)
            continue
        model.fit(
            batches_from(epoch, progress.step),
            epochs=epochs,
            initial_epoch=epoch,
            steps_per_epoch=left,
            callbacks=callbacks,
            shuffle=False,
            verbose=0,
        )


def _end_epoch(
    model: keras.Model, callbacks: Sequence[keras.callbacks.Callback], epoch: int
) -> None:
    """Ends an epoch as `fit` does, for a run that was interrupted during validation."""
    called = keras.callbacks.CallbackList(list(callbacks), model=model, steps=0)
    called.on_train_begin()
    called.on_epoch_begin(epoch)
    called.on_epoch_end(epoch, model.get_metrics_result())
    called.on_train_end()


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
    decided = monitors(monitor)[progress.best_rank]
    why = "" if decided == monitor else f" `{monitor}` was 0 or undefined in every epoch."
    return (
        f"Best epoch {progress.best_epoch} of {progress.epoch}: {decided} "
        f"{abs(progress.best_score):.2f}; {progress.seconds / 60:.1f} minutes of training.{why}"
    )
