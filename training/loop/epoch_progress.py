"""Progress of the epochs: a bar that fits the terminal, and a line of scores per epoch."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping

import keras

from sat_tf.progress import progress_bar

_ON_THE_BAR = ("loss", "nll", "beta")  # of captioners; digit systems have others
_MOST = 3


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
        shown = {name: f"{float(logs[name]):.2f}" for name in first[:_MOST]}
        self._bar.set_postfix(shown, refresh=False)


def _short(value: float) -> str:
    """Formats a metric; learning rates and the like keep two digits, other small values are 0."""
    if math.isnan(value):
        return "undefined"
    return f"{value:.3g}" if 1e-8 < abs(value) < 0.01 else f"{value:.2f}"
