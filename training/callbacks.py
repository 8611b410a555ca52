"""What is done while a run is fitted: dev captions, checkpoints, early stopping, pictures."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import keras
import numpy as np
import tensorflow as tf

from sat_tf import runs
from sat_tf.config import SearchConfig
from sat_tf.runs import TrainedCaptioner
from training.bounds import Bounds
from training.checkpoints import Checkpoints, Progress
from training.datasets.base import Split
from training.datasets.sources import Source
from training.drawing import picture_of
from training.evaluation import annotations_of, caption_split
from training.interrupts import Interrupts
from training.metrics.captions import quick_bleu, quick_cider
from training.workers import Workers

UNIFORM_ENTROPY = 0.98
"""Attention is called uniform when its entropy is over this share of log L."""
CONSTANT_VARIATION = 0.005
"""Attention is called constant when `alpha_variation` is under this."""
LISTEN_STEPS = 10
"""Steps after which several workers ask each other whether one was told to stop."""
LOWER_IS_BETTER = ("nll", "error")
"""Of the scores that a run can monitor."""


class Watched(Protocol):
    """What `Keep` reads of a run's configuration of the training loop."""

    monitor: str
    patience: int
    checkpoint_steps: int


class Validate(keras.callbacks.Callback):
    """Free-running captions of the dev split, scored: `val_bleu_4`, `val_cider`, `val_distinct`.

    Args:
        captioner: The model being trained, with its vocabulary.
        split: The dev split.
        source: Its pictures or annotations.
        search: How captions are generated.
        images: The most pictures captioned; None for all.
    """

    def __init__(
        self,
        captioner: TrainedCaptioner,
        split: Split,
        source: Source,
        search: SearchConfig,
        images: int | None,
    ) -> None:
        super().__init__()
        self._captioner, self._split, self._source = captioner, split, source
        self._search, self._images = search, images
        self._references = {e.image_id: list(e.captions) for e in split.examples}

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        captions = caption_split(
            self._captioner, self._split, self._source, self._search, count=self._images
        )
        texts = {image_id: caption.text for image_id, caption in captions.items()}
        references = {image_id: self._references[image_id] for image_id in texts}
        unit = self._captioner.vocabulary.unit
        logs["val_bleu_4"] = quick_bleu(texts, references, unit)["bleu_4"]
        logs["val_cider"] = quick_cider(texts, references, unit)
        logs["val_distinct"] = 100.0 * len(set(texts.values())) / len(texts)


class MeasureLikelihood(keras.callbacks.Callback):
    """`val_nll`: all workers together, each on its share of the dev captions.

    Args:
        nll: Gives the teacher-forced dev NLL, nats a token.
    """

    def __init__(self, nll: Callable[[], float]) -> None:
        super().__init__()
        self._nll = nll

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        logs["val_nll"] = self._nll()


class MeasureBounds(keras.callbacks.Callback):
    """Hard attention on a few dev captions: `val_elbo`, `val_nwgm_gap` and the others.

    Args:
        bounds: The captions, with the model being trained.
    """

    def __init__(self, bounds: Bounds) -> None:
        super().__init__()
        self._bounds = bounds

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        logs |= {f"val_{name}": value for name, value in self._bounds.measure().items()}


class Keep(keras.callbacks.Callback):
    """Best weights, checkpoints and early stopping, by the monitored dev score.

    The state is kept every `every` steps, after the last step of an epoch and after its
    validation. The best weights are written before that last one: a process killed between the
    two validates again and writes them again. Of several workers the chief alone writes, and
    its score decides for all.

    Args:
        checkpoints: Where the last state goes.
        progress: Of the run, as restored.
        config: Says what is monitored, the patience and how often the state is kept.
        steps: Steps of an epoch.
        run_dir: Where the best weights go.
        interrupts: Signals to end the run, held back until the state is kept.
        workers: The processes of the run; None for one.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        progress: Progress,
        config: Watched,
        steps: int,
        run_dir: Path,
        interrupts: Interrupts,
        workers: Workers | None = None,
    ) -> None:
        super().__init__()
        self._checkpoints, self._progress, self._interrupts = checkpoints, progress, interrupts
        self._workers = workers or Workers()
        self._monitor, self._patience = f"val_{config.monitor}", config.patience
        self._sign = -1.0 if config.monitor in LOWER_IS_BETTER else 1.0
        self._every, self._steps = config.checkpoint_steps, steps
        self._weights = run_dir / runs.WEIGHTS_FILE

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        self._begun, self._heard = time.monotonic(), False
        self._first = self._progress.step
        if self._first:  # Keras has just set the running means to zero
            for variable, value in zip(self._means(), self._progress.means, strict=True):
                variable.assign(value)

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        self._interrupts.hold()
        step = self._progress.step = self._first + batch + 1
        due = step % self._every == 0 or step == self._steps
        if self._workers.count > 1 and not due and step % LISTEN_STEPS == 0:
            self._listen()
        # A signal of one worker is the others' too, but only once they have heard of it.
        if due or (self._interrupts.waiting and (self._workers.count == 1 or self._heard)):
            self._progress.means = [np.asarray(variable).tolist() for variable in self._means()]
            self._save()

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        self._interrupts.hold()
        progress, score = self._progress, 0.0
        if self._workers.chief:
            score = self._sign * float(logs[self._monitor])
        score = self._workers.of_chief(score)
        progress.epoch, progress.step, progress.means = epoch + 1, 0, []
        progress.waited += 1
        if progress.better(score):
            progress.best_score, progress.best_epoch, progress.waited = score, epoch + 1, 0
            if self._workers.chief:
                runs.save_weights(self.model, self._weights)
        progress.stopped = progress.waited >= self._patience
        # The rest of a broken epoch has a call of `fit` to itself: all epochs of a call have as
        # many steps.
        if progress.stopped or self._first:
            self.model.stop_training = True
        self._save()

    def _save(self) -> None:
        now = time.monotonic()
        self._progress.seconds += now - self._begun
        self._begun = now
        if self._workers.chief:
            self._checkpoints.save(self._progress)
        self._listen()  # so nobody goes on, or ends, before the state is kept
        self._interrupts.release(f"The state {self._progress.where} is kept.")

    def _listen(self) -> None:
        """Take up a signal that any worker got: all keep the state, and end, together."""
        number = self._workers.highest(self._interrupts.waiting or 0)
        self._heard = number > 0
        if number:
            self._interrupts.tell(int(number))

    def _means(self) -> list[keras.Variable]:
        return [variable for metric in self.model.metrics for variable in metric.variables]


class LearningRate(keras.callbacks.Callback):
    """Adds the learning rate to the logs: at an epoch's end, that of the next step."""

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        logs["learning_rate"] = float(np.asarray(self.model.optimizer.learning_rate))


class CollapseAlarm(keras.callbacks.Callback):
    """Warns when attention looks everywhere alike, or never moves.

    Uniform: entropy of alpha over `UNIFORM_ENTROPY` of log L. Constant: `alpha_variation` under
    `CONSTANT_VARIATION`. Means over the epoch's training captions.
    """

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        entropy, variation = logs.get("alpha_entropy"), logs.get("alpha_variation")
        if entropy is None:
            return
        if entropy > UNIFORM_ENTROPY:
            self._warn(epoch, "uniform", f"entropy is {entropy:.3f} of log L")
        elif variation < CONSTANT_VARIATION:
            self._warn(epoch, "constant over time", f"alpha_variation is {variation:.4f}")

    def _warn(self, epoch: int, what: str, figure: str) -> None:
        warnings.warn(
            f"Epoch {epoch + 1}: attention has collapsed, it is {what} ({figure}).", stacklevel=2
        )


class AttentionPictures(keras.callbacks.Callback):
    """Attention under each word of a few dev pictures, in TensorBoard, each epoch.

    Args:
        captioner: The model being trained, with its vocabulary.
        split: The dev split.
        source: Its pictures or annotations.
        count: Pictures shown.
        log_dir: TensorBoard's folder.
    """

    def __init__(
        self,
        captioner: TrainedCaptioner,
        split: Split,
        source: Source,
        count: int,
        log_dir: Path,
    ) -> None:
        super().__init__()
        self._captioner, self._source = captioner, source
        self._indices = np.setdiff1d(np.arange(len(split)), list(source.set_aside))[:count]
        self._examples = [split.examples[index] for index in self._indices]
        self._log_dir = str(log_dir / "pictures")

    def on_train_begin(self, logs: dict | None = None) -> None:
        self._writer = tf.summary.create_file_writer(self._log_dir)

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        if not self._examples:
            return
        annotations = annotations_of(self._captioner, self._source, self._indices)
        found = self._captioner.describe(annotations)
        with self._writer.as_default(step=epoch):
            for example, caption in zip(self._examples, found, strict=True):
                picture = picture_of(self._captioner, example.image, caption)
                tf.summary.image(f"attention/{example.image_id}", picture[None])
                tf.summary.text(f"caption/{example.image_id}", caption.text)
        self._writer.flush()

    def on_train_end(self, logs: dict | None = None) -> None:
        self._writer.close()
