"""`training.train` in one of several processes: OUT MOMENT CALL SIGNAL, then its flags.

OUT gets the losses and the weights the process ends with. The process gets SIGNAL when what
`killed_command.py` calls MOMENT is called for that time.
"""

import os
import sys

import keras
import numpy as np

from tests.training.run_state.killed_command import MOMENTS, at_call
from training.cluster import Cluster
from training.run_state import resume
from training.train import main

LOGS = ("loss", "nll", "gradient_norm", "alpha_entropy", "val_nll")


class Record(keras.callbacks.Callback):
    """The logs of every epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.epochs: list[list[float]] = []

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        self.epochs.append([float(logs[name]) for name in LOGS])


def recorded(out: str) -> None:
    """Lets `fit` write what it ends with."""
    train_epochs = resume.train_epochs

    def train(model, *arguments):
        *before, callbacks = arguments
        record = Record()
        train_epochs(model, *before, [*callbacks[:-1], record, callbacks[-1]])
        weights = {f"weight_{n:03d}": np.asarray(v) for n, v in enumerate(model.variables)}
        np.savez(out, epochs=np.array(record.epochs), **weights)

    resume.train_epochs = train


if __name__ == "__main__":
    out, moment, call, number, *flags = sys.argv[1:]
    Cluster.meet.__defaults__ = (float(os.environ["MEETING_SECONDS"]),)
    recorded(out)
    if moment in MOMENTS:  # `never` is none
        at_call(*MOMENTS[moment], int(call), lambda: os.kill(os.getpid(), int(number)))
    sys.exit(main(flags))
