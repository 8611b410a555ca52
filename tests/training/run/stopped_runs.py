"""Runs that are stopped: how to stop one, and what two of them have to agree in."""

import contextlib
import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import tensorflow as tf
from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer


class Killed(BaseException):
    """Stands for SIGKILL."""


def die_after(patch, owner, name: str, call: int) -> None:
    """Training ends as soon as this function has been called so often."""
    original, calls = getattr(owner, name), itertools.count(1)

    def die(*args, **kwargs):
        original(*args, **kwargs)
        if next(calls) == call:
            raise Killed

    patch.setattr(owner, name, die)


HOLD = """
import sys, filelock
with filelock.FileLock(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def lock_holder(lock: Path) -> Iterator[subprocess.Popen]:
    """A process that holds a lock until it is killed, at the latest at the end of the `with`."""
    command = [sys.executable, "-c", HOLD, str(lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        yield holder
        holder.kill()


def assert_same(one: dict, other: dict, equal=np.testing.assert_equal) -> None:
    """Tests if two dictionaries hold the same, arrays bit for bit."""
    assert one.keys() == other.keys() and one
    for name in one:
        equal(one[name], other[name], err_msg=name)


def last_checkpoint(run: Path) -> tuple[dict[str, np.ndarray], dict]:
    """Variables and state of a run's only checkpoint."""
    (folder,) = (run / "checkpoints").iterdir()
    reader = tf.train.load_checkpoint(str(folder / "variables"))
    names = reader.get_variable_to_shape_map()
    values = {name: reader.get_tensor(name) for name in names if "OBJECT_GRAPH" not in name}
    return values, json.loads((folder / "state.json").read_text("utf-8"))


def weights_of(run: Path) -> dict[str, np.ndarray]:
    """The best weights."""
    found = {}

    def add(name, item):
        if isinstance(item, h5py.Dataset):
            found[name] = item[()]

    with h5py.File(run / "best.weights.h5") as file:
        file.visititems(add)
    return found


def logs_of(run: Path) -> dict[str, list]:
    """Every point of every curve, and the figures, as TensorBoard reads them."""
    found = {}
    events = EventMultiplexer().AddRunsFromDirectory(str(run / "logs")).Reload()
    for part, kinds in events.Runs().items():
        for tag in kinds["tensors"]:
            points = [
                (p.step, p.tensor_proto.SerializeToString()) for p in events.Tensors(part, tag)
            ]
            # Files that one process begins within a second have no order among themselves.
            found[f"{part} {tag}"] = sorted(points)
    return found


def assert_same_runs(run: Path, other: Path) -> None:
    """Tests if two runs ended alike: state, weights and logs; all but the time it took."""
    (values, state), (other_values, other_state) = last_checkpoint(run), last_checkpoint(other)
    assert state.pop("seconds") > 0 and other_state.pop("seconds") > 0
    assert_same(state, other_state)
    assert_same(values, other_values)
    assert_same(weights_of(run), weights_of(other))
    assert_same(logs_of(run), logs_of(other))


def evaluation_of(run: Path) -> dict:
    """Report and captions of a run on dev, but for what took how long."""
    folder = run / "evaluation" / "dev"
    report = json.loads((folder / "report.json").read_text("utf-8"))
    del report["seconds"]
    return report | {"captions": json.loads((folder / "captions.json").read_text("utf-8"))}
