"""`training.train` in a process that ends at a moment: MOMENT CALL SECONDS, then its flags.

The process gets SIGKILL so many seconds after so many calls of what MOMENT names; `signal` sends
it the signal with that number instead of seconds, at once.
"""

import itertools
import os
import signal
import sys
import threading
from collections.abc import Callable

from sat_tf.inference import weights
from training.data import feature_store as features
from training.evaluation import evaluation as run_evaluation
from training.run import logs as event_files
from training.run.checkpoints import Checkpoints
from training.run.logs import Validate
from training.run.resume import CheckpointAndStop
from training.train import main

MOMENTS = {
    "store": (features, "fill"),
    "notes": (features, "write_notes"),
    "step": (CheckpointAndStop, "on_train_batch_end"),
    "signal": (CheckpointAndStop, "on_train_batch_end"),
    "checkpoint": (Checkpoints, "save"),
    "validate": (Validate, "on_epoch_end"),
    "best": (weights, "save_weights"),
    "log": (event_files.TensorBoard, "on_epoch_end"),
    "evaluate": (run_evaluation, "evaluate"),
    "report": (run_evaluation, "write_evaluation"),
}


def at_call(owner: object, name: str, call: int, act: Callable[[], None]) -> None:
    """Lets `act` happen when this function is called for that time."""
    original, calls = getattr(owner, name), itertools.count(1)

    def counted(*args, **kwargs):
        if next(calls) == call:
            act()
        return original(*args, **kwargs)

    setattr(owner, name, counted)


if __name__ == "__main__":
    # A shell's background job, tests in one included, ignores Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    moment, call, seconds, *flags = sys.argv[1:]
    kill = threading.Timer(float(seconds), os.kill, (os.getpid(), signal.SIGKILL))
    kill.daemon = True
    if moment == "signal":
        at_call(*MOMENTS[moment], int(call), lambda: os.kill(os.getpid(), int(seconds)))
    elif moment in MOMENTS:
        at_call(*MOMENTS[moment], int(call), kill.start)
    status = main(flags)
    if kill.is_alive():
        kill.join()  # the command was faster
    sys.exit(status)
