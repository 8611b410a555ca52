"""Logs of a run: TensorBoard's files, without a point twice or missing, and lines in the terminal.

Callbacks that add to the logs of an epoch come first: the others write what is there.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from sat_tf.compat import flush_tensorboard
from sat_tf.files import sync
from sat_tf.progress import progress_bar
from training.distributed.workers import on_chief

_ON_THE_BAR = ("loss", "nll", "beta")  # of captioners; digit systems have others
_MOST_ON_THE_BAR = 3


class Validate(keras.callbacks.Callback):
    """Adds the scores of the dev split to the logs, with the prefix `val_`."""

    def __init__(self, scores: Callable[[], Mapping[str, float]]) -> None:
        super().__init__()
        self._scores = scores

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        logs |= {f"val_{name}": value for name, value in self._scores().items()}


class LearningRate(keras.callbacks.Callback):
    """Adds the learning rate of the next step to the logs."""

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        logs["learning_rate"] = float(np.asarray(self.model.optimizer.learning_rate))


class TensorBoardScalars(keras.callbacks.TensorBoard):
    """Keras' callback, which also flushes each epoch before its checkpoint is written."""

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        super().on_epoch_end(epoch, logs)
        flush_tensorboard(self)


class TensorBoardFigures(keras.callbacks.Callback):
    """Writes figures of the model to TensorBoard after each epoch."""

    def __init__(self, draw: Callable[[], Mapping[str, np.ndarray | str]], log_dir: Path) -> None:
        super().__init__()
        self._draw, self._log_dir = draw, str(log_dir / "figures")

    def on_train_begin(self, logs: dict | None = None) -> None:
        self._writer = tf.summary.create_file_writer(self._log_dir)

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        with self._writer.as_default(step=epoch):
            for tag, figure in self._draw().items():
                if isinstance(figure, str):
                    tf.summary.text(tag, figure)
                else:
                    tf.summary.image(tag, figure[np.newaxis])
        self._writer.flush()

    def on_train_end(self, logs: dict | None = None) -> None:
        self._writer.close()


@on_chief
def remove_from(log_dir: Path, epoch: int) -> None:
    """Removes the records of `epoch` (from 0) and later ones, which are about to be logged again.

    A process that was killed between logging an epoch and saving its checkpoint would otherwise
    leave two points there. Half-written records are removed as well.
    """
    for path in sorted(log_dir.rglob("*tfevents*")):
        records, whole = [], True
        try:
            for record in tf.data.TFRecordDataset(str(path)):
                records.append(record.numpy())
        except tf.errors.DataLossError:
            whole = False
        kept = [record for record in records if not _is_late(record, epoch)]
        if len(kept) == len(records) and whole:
            continue
        temporary = path.with_name(".writing-events")
        with tf.io.TFRecordWriter(str(temporary)) as writer:
            for record in kept:
                writer.write(record)
        sync(temporary)
        os.replace(temporary, path)


def _is_late(record: bytes, epoch: int) -> bool:
    event = tf.compat.v1.Event.FromString(record)
    return event.HasField("summary") and event.step >= epoch


class EpochProgress(keras.callbacks.Callback):
    """Shows a bar with three metrics in a terminal, a line every half minute in a log.

    Keras' own bar shows all metrics, which wraps in a terminal of 100 columns, and shows nothing in
    a log before the end of an epoch.

    Args:
        epochs: Epochs of the run.
        steps: Steps of a whole epoch.
    """

    def __init__(self, epochs: int, steps: int) -> None:
        super().__init__()
        self._epochs, self._steps = epochs, steps

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        self._title, self._begun = f"Epoch {epoch + 1}/{self._epochs}", time.monotonic()
        self._bar = progress_bar(
            self._steps, self._title, "steps", done=self._steps - self.params["steps"]
        )

    def on_train_batch_end(self, batch: int, logs: Mapping[str, float] | None = None) -> None:
        # Reading a metric waits for the device: only when the bar was just drawn.
        if self._bar.update(1):
            self._set_metrics(logs)

    def on_epoch_end(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        self._set_metrics(logs)
        self._bar.close()
        scores = ", ".join(f"{name} {_short(float(value))}" for name, value in logs.items())
        print(f"{self._title}: {time.monotonic() - self._begun:.0f} s, {scores}", flush=True)

    def _set_metrics(self, logs: Mapping[str, float]) -> None:
        first = [name for name in _ON_THE_BAR if name in logs] or list(logs)
        shown = {name: f"{float(logs[name]):.2f}" for name in first[:_MOST_ON_THE_BAR]}
        self._bar.set_postfix(shown, refresh=False)


def _short(value: float) -> str:
    """Formats a metric; learning rates and the like keep two digits, other small values are 0."""
    if math.isnan(value):
        return "undefined"
    return f"{value:.3g}" if 1e-8 < abs(value) < 0.01 else f"{value:.2f}"
