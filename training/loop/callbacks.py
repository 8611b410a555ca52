"""Callbacks of every run: dev scores, figures, checkpoints and early stopping."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from sat_tf import runs
from training.config import LOWER_IS_BETTER, BaseFitConfig, monitors
from training.distributed.collectives import SingleProcess
from training.run_state.checkpoints import Checkpoints, Progress
from training.run_state.preemption import Interrupts


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


def monitored(logs: Mapping[str, float], monitor: str) -> tuple[int, float]:
    """Chooses the dev score that decides about an epoch.

    Returns:
        Its place in `monitors`, the first that is defined, and its value, made so that higher is
        better; NaN if none is defined. A BLEU or CIDEr of 0 matches nothing: it is not defined.
    """
    for rank, name in enumerate(monitors(monitor)):
        value = float(logs.get(f"val_{name}", np.nan))
        if name in LOWER_IS_BETTER and not np.isnan(value):
            return rank, -value
        if value > 0.0:
            return rank, value
    return 0, np.nan


class CheckpointAndStop(keras.callbacks.Callback):
    """Keeps the best weights and the last state, and stops early, by the monitored dev score.

    It saves the state every `checkpoint_steps` steps, after the last step of an epoch and after
    its validation. The best weights are written before that last checkpoint: a process killed
    between the two validates again and writes them again. Of several workers the chief alone
    writes, and its score decides for all.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        progress: Progress,
        config: BaseFitConfig,
        steps: int,
        best_weights: Path,
        interrupts: Interrupts,
        group: SingleProcess | None = None,
    ) -> None:
        super().__init__()
        self._checkpoints, self._progress, self._interrupts = checkpoints, progress, interrupts
        self._group = group or SingleProcess()
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
        _check_finite(float(logs.get("loss", 0.0)), epoch)
        progress, group = self._progress, self._group
        # Only the chief has all scores.
        rank, score = monitored(logs, self._config.monitor)
        rank, score = int(group.broadcast_scalar(rank)), group.broadcast_scalar(score)
        if progress.end_epoch(score, rank):
            group.on_chief(runs.save_weights, self.model, self._best_weights)
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
        self._group.on_chief(self._checkpoints.save, self._progress)
        self._is_told_to_stop(step=0)  # No worker continues or ends before the state is saved.
        self._interrupts.release(f"The state at {self._progress.where} is saved.")

    def _is_told_to_stop(self, step: int) -> bool:
        """Hears of a signal that any worker has received: all of them save and end together."""
        number = self._group.heard(self._interrupts.waiting or 0, step)
        if number:
            self._interrupts.tell(number)
        return bool(number)

    def _means(self) -> list[keras.Variable]:
        return [variable for metric in self.model.metrics for variable in metric.variables]


def _check_finite(loss: float, epoch: int) -> None:
    """Stops a run whose weights are lost, before they count as its best.

    Raises:
        ValueError: The loss is NaN or infinite.
    """
    if not np.isfinite(loss):
        raise ValueError(
            f"The loss of epoch {epoch + 1} is {loss}: training has diverged. Start a new run with "
            "a lower `--optimizer.learning-rate`; if that does not help, look for values that are "
            "not finite in what the run was given."
        )
