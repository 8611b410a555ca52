"""Logs of a run: TensorBoard's files, without a point twice or missing, and lines in the terminal.

Callbacks that add to the logs of an epoch precede those that write them.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from sat_tf.objectives.likelihood import ATTENTION_MEANS
from sat_tf.util.commands import counted, progress_bar
from sat_tf.util.files import sync, write_json
from training.data.examples import Split
from training.data.image_loader import InputSource
from training.run.strategy import on_chief

UNIFORM_ENTROPY = 0.98
"""Attention counts as uniform if its entropy exceeds this share of log L."""
CONSTANT_VARIATION = 0.005
"""Attention counts as constant if `alpha_variation` is below this."""

_ON_THE_BAR = ("loss", "nll", "beta")  # of captioners; digit systems have others
_MOST_ON_THE_BAR = 3
_GROUPS = {
    "optimizer": ("learning_rate", "gradient_norm"),
    "attention": ("beta", *ATTENTION_MEANS),
    "scores": ("bleu_4", "cider", "distinct", "error", "accuracy"),
}


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


class TensorBoard(keras.callbacks.Callback):
    """Writes the logs of each epoch, grouped, those of dev under `validation`; then figures.

    All is flushed before the next checkpoint is written: Keras' own callback flushes at the end of
    training alone, and knows no groups.

    Args:
        log_dir: Folder of the files.
        draw: Returns figures of the model, images or texts, by tag.
    """

    def __init__(self, log_dir: Path, draw: Callable[[], Mapping[str, np.ndarray | str]]) -> None:
        super().__init__()
        self._folder, self._draw = log_dir, draw

    def on_train_begin(self, logs: dict | None = None) -> None:
        paths = {part: str(self._folder / part) for part in ("train", "validation", "figures")}
        self._writers = {k: tf.summary.create_file_writer(path) for k, path in paths.items()}

    def on_train_end(self, logs: dict | None = None) -> None:
        for writer in self._writers.values():
            writer.close()

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        for name, value in logs.items():
            part, bare = ("validation", name[4:]) if name.startswith("val_") else ("train", name)
            group = next((group for group, names in _GROUPS.items() if bare in names), "objective")
            with self._writers[part].as_default(step=epoch):
                tf.summary.scalar(f"{group}/{bare}", value)
        with self._writers["figures"].as_default(step=epoch):
            for tag, figure in self._draw().items():
                if isinstance(figure, str):
                    tf.summary.text(tag, figure)
                else:
                    tf.summary.image(tag, figure[np.newaxis])
        for writer in self._writers.values():
            writer.flush()


@on_chief
def remove_from(log_dir: Path, epoch: int) -> None:
    """Removes the records of `epoch` (from 0) and later ones, which are about to be logged again.

    A process may be killed between logging an epoch and saving its checkpoint. Half-written records
    are removed as well.
    """
    for path in sorted(log_dir.rglob("*tfevents*")):
        kept, late = [], False
        with contextlib.suppress(tf.errors.DataLossError):
            for record in tf.data.TFRecordDataset(str(path)):
                event = tf.compat.v1.Event.FromString(record.numpy())
                late = late or (event.HasField("summary") and event.step >= epoch)
                kept += [] if late else [record.numpy()]
        temporary = path.with_name(".writing-events")
        with tf.io.TFRecordWriter(str(temporary)) as writer:
            for record in kept:
                writer.write(record)
        sync(temporary)
        os.replace(temporary, path)


class NoteUnreadable(keras.callbacks.Callback):
    """Names images that turned out to be unreadable, once per epoch that finds some.

    Args:
        sources: Split -> its inputs.
        path: Returns the file of a split's name, which then has all images left out, with reasons.
        say: Receives the messages.
    """

    def __init__(
        self,
        sources: Mapping[Split, InputSource],
        path: Callable[[str], Path],
        say: Callable[[str], Any],
    ) -> None:
        super().__init__()
        self._sources, self._path, self._say = sources, path, say
        self._told = {split.name: len(source.known) for split, source in sources.items()}

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        for split, source in self._sources.items():
            count, path = len(source.found), self._path(split.name)
            if count > self._told[split.name]:
                self._told[split.name] = count
                write_json(path, split.unusable(source.found))
                images = counted(count, "image")
                self._say(f"Warning: skipped {images} of the {split.name} split, see {path}.")


class EpochProgress(keras.callbacks.Callback):
    """Shows a bar with three metrics, and a line of all scores after each epoch.

    Keras' own bar shows all metrics, which wraps in a terminal of 100 columns.

    Args:
        epochs: Epochs of the run.
        steps: Steps of a whole epoch.
        images: Dev images that are captioned after each epoch, named next to their CIDEr.
    """

    def __init__(self, epochs: int, steps: int, images: int | None = None) -> None:
        super().__init__()
        self._epochs, self._steps, self._images = epochs, steps, images

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
        names = {"val_cider": f"CIDEr (of {self._images:,})"} if self._images else {}
        scores = [
            f"{names.get(name, name)} {_short(value)}"
            for name, value in logs.items()
            if float(value) != 0.0 or name.startswith("val_")
        ]
        seconds = time.monotonic() - self._begun
        print(f"{self._title}: {seconds:.0f} s, {', '.join(scores)}", flush=True)

    def _set_metrics(self, logs: Mapping[str, float]) -> None:
        first = [name for name in _ON_THE_BAR if name in logs] or list(logs)
        shown = {name: f"{float(logs[name]):.2f}" for name in first[:_MOST_ON_THE_BAR]}
        self._bar.set_postfix(shown, refresh=False)


def _short(value: float) -> str:
    """Formats a metric; learning rates and the like keep two digits, other small values are 0."""
    if math.isnan(value):
        return "undefined"
    return f"{value:.3g}" if 1e-8 < abs(value) < 0.01 else f"{value:.2f}"


class AttentionCollapseWarning(keras.callbacks.Callback):
    """Warns if attention is uniform, or the same at every word.

    Uniform: the entropy of alpha exceeds `UNIFORM_ENTROPY` of log L. Constant: `alpha_variation` is
    below `CONSTANT_VARIATION`. Both are means over the training captions of the epoch.
    """

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        entropy, variation = logs.get("alpha_entropy", 0.0), logs.get("alpha_variation", 1.0)
        if entropy > UNIFORM_ENTROPY:
            collapse = f"uniform (entropy is {entropy:.3f} of log L)"
        elif variation < CONSTANT_VARIATION:
            collapse = f"constant over time (alpha_variation is {variation:.4f})"
        else:
            return
        warnings.warn(
            f"Epoch {epoch + 1}: attention has collapsed, it is {collapse}.", stacklevel=2
        )
