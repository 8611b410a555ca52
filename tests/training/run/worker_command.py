"""`training.train` in one of several processes: OUT MOMENT CALL SIGNAL, then its flags.

OUT gets the losses and the weights the process ends with. The process gets SIGNAL when what
`killed_command.py` calls MOMENT is called for that time; `trained` ends it before its report.
"""

import functools
import os
import sys
from pathlib import Path

import keras
import numpy as np

from tests.training.run.killed_command import MOMENTS, at_call
from training import train

LOGS = ("loss", "nll", "gradient_norm", "alpha_entropy")


class Record(keras.callbacks.Callback):
    """Writes the logs of every epoch and the weights at the end."""

    def __init__(self, out: str | Path) -> None:
        super().__init__()
        self._out, self._epochs = out, []

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        self._epochs.append([float(logs[name]) for name in LOGS])

    def on_train_end(self, logs: dict | None = None) -> None:
        weights = {f"weight_{n:03d}": np.asarray(v) for n, v in enumerate(self.model.variables)}
        np.savez(self._out, epochs=np.array(self._epochs), **weights)


if __name__ == "__main__":
    out, moment, call, number, *flags = sys.argv[1:]
    train.train = functools.partial(train.train, callbacks=(Record(out),))
    if moment == "trained":
        train.report = lambda *_: None
    elif moment != "never":
        at_call(*MOMENTS[moment], int(call), lambda: os.kill(os.getpid(), int(number)))
    sys.exit(train.main(flags))
