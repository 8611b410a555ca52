"""Two processes train as one does, end together, and resume together; devices."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.util import tensor_util

from tests.serving.processes import free_ports
from tests.training.run.stopped_runs import last_checkpoint, logs_of
from tests.training.run.worker_command import Record
from tests.training.small_runs import exit_of, train
from training.run import strategy as workers
from training.run.strategy import make_strategy
from training.train import main

ROOT = Path(__file__).resolve().parents[3]
NEVER = ("never", 1, 0)
"""The moment of a process that is left alone."""
TRAINED = ("trained", 1, 0)
"""The moment of a process that is left alone, but writes no report."""


@dataclass(frozen=True)
class Ended:
    """End of a process: its exit status and all its output."""

    status: int
    said: str


def tf_configs(count: int) -> list[str]:
    """The `TF_CONFIG` of each of several workers on this machine."""
    workers = [f"localhost:{port}" for port in free_ports(count)]
    return [
        json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}})
        for index in range(count)
    ]


def run_workers(
    folder: Path,
    flags: Sequence[str],
    moments: Sequence[tuple] = (NEVER, NEVER),
    more: Sequence[tuple[str, ...]] = ((), ()),
) -> list[Ended]:
    """Two processes of `worker_command.py`, to their end; none is left over.

    Args:
        folder: Takes their run and `INDEX.npz` of each.
        flags: Of both workers.
        moments: Of each worker.
        more: Flags of each worker.
    """
    folder.mkdir(exist_ok=True)
    driver = str(Path(__file__).with_name("worker_command.py"))
    environment = {**os.environ, "PATH": "", "JAVA_HOME": "", "PYTHONPATH": str(ROOT)}
    environment["CUDA_VISIBLE_DEVICES"] = "-1"
    processes: list[subprocess.Popen] = []
    try:
        for index, tf_config in enumerate(tf_configs(2)):
            command = [sys.executable, driver, folder / f"{index}.npz", *map(str, moments[index])]
            command += [*flags, "--strategy", "multi_worker", "--run-dir", folder / "run"]
            command += ["--cache-dir", folder / f"cache{index}", *more[index]]
            options = {"env": environment | {"TF_CONFIG": tf_config}, "text": True}
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
            processes.append(subprocess.Popen(command, **options, **pipes))
        said = [process.communicate(timeout=600)[0] for process in processes]
        return [Ended(p.returncode, text) for p, text in zip(processes, said, strict=True)]
    finally:
        for process in processes:
            process.kill()
            process.wait()


TWO_EPOCHS = ("--fit.epochs", "2", "--fit.checkpoint_steps", "4")
LOST = "If another worker has ended, start the same command again on all of them"


@pytest.fixture(scope="module")
def flags(tiny, fine_tuned) -> tuple[str, ...]:
    """Of a run of two epochs, on augmented images, batches of unequal halves among them."""
    return (*tiny, *fine_tuned, *TWO_EPOCHS)


@pytest.fixture(scope="module")
def whole(tmp_path_factory, flags) -> Path:
    """The folder of a run that two workers finished; next to it, one of this process."""
    folder = tmp_path_factory.mktemp("workers")
    train(folder / "one", *flags, callbacks=(Record(folder / "one.npz"),))
    for ended in run_workers(folder, flags):
        assert ended.status == 0, ended.said
    return folder


def result(path: Path) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The losses and the weights a process ended with."""
    with np.load(path) as file:
        found = dict(file)
    return found.pop("epochs"), found


def losses_of(run: Path) -> list[float]:
    """The training loss of every epoch, as TensorBoard reads it."""
    contents = [content for _, content in logs_of(run)["train objective/loss"]]
    points = [TensorProto.FromString(content) for content in contents]
    return [float(tensor_util.make_ndarray(point)) for point in points]


def assert_near(one: Path, other: Path, atol: float) -> None:
    """Tests if two processes ended with the same weights, but for rounding."""
    weights, others = result(one)[1], result(other)[1]
    assert weights.keys() == others.keys() and weights
    for name, value in weights.items():
        np.testing.assert_allclose(value, others[name], atol=atol, err_msg=name)


@pytest.mark.slow
def test_two_workers_end_with_equal_weights_and_logs_those_of_one_process(whole):
    assert_near(whole / "0.npz", whole / "1.npz", atol=0.0)
    logs, others = result(whole / "0.npz")[0], result(whole / "1.npz")[0]
    assert logs.shape == (2, 4)
    np.testing.assert_array_equal(logs, others)
    logs, one = result(whole / "0.npz")[0], result(whole / "one.npz")[0]
    np.testing.assert_allclose(logs, one, rtol=1e-4, atol=1e-4)
    assert_near(whole / "0.npz", whole / "one.npz", atol=2e-3)
    assert (whole / "run" / "evaluation" / "dev" / "report.json").exists()


@pytest.mark.slow
def test_workers_that_are_stopped_or_die_resume_from_the_checkpoint(whole, tmp_path, flags):
    # Told to stop: both end, after the same step.
    stop = ("step", 2, signal.SIGTERM.value)
    chief, other = run_workers(tmp_path, flags, moments=(NEVER, stop))
    assert (chief.status, other.status) == (143, 143), (chief, other)
    assert "The state at epoch 1, step 4 is saved" in chief.said
    # Killed: the other one says so, and ends.
    kill = ("step", 3, signal.SIGKILL.value)
    chief, other = run_workers(tmp_path, flags, moments=(kill, NEVER))
    assert (chief.status, other.status) == (-signal.SIGKILL, 2), (chief, other)
    assert "Resuming at epoch 1, step 4." in chief.said
    assert LOST in other.said and "Traceback" not in other.said
    # The end is that of an unbroken run.
    for ended in run_workers(tmp_path, flags, moments=(TRAINED, TRAINED)):
        assert ended.status == 0, ended.said
    assert_near(tmp_path / "0.npz", tmp_path / "1.npz", atol=0.0)
    assert_near(tmp_path / "0.npz", whole / "0.npz", atol=1e-3)
    loss, unbroken = (losses_of(at / "run") for at in (tmp_path, whole))
    np.testing.assert_allclose(loss, unbroken, rtol=1e-3)
    state, other_state = (last_checkpoint(at / "run")[1] for at in (tmp_path, whole))
    assert (state["epoch"], state["best_epoch"]) == (2, other_state["best_epoch"])


@pytest.mark.slow
def test_workers_with_other_data_are_refused(tmp_path, tiny):
    ended = run_workers(tmp_path, tiny, more=((), ("--data.seed", "1")))
    assert [one.status for one in ended] == [2, 2], ended
    assert all("Workers differ in their configuration or data" in one.said for one in ended)


@pytest.mark.parametrize("config", [None, "{", "{}"])
def test_a_worker_without_a_valid_cluster_is_refused(monkeypatch, capsys, config):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    if config is not None:
        monkeypatch.setenv("TF_CONFIG", config)
    status, said = exit_of(capsys, main, "--strategy", "multi_worker")
    assert status == 2 and "`TF_CONFIG`, JSON with `cluster` and `task`" in said


# Of one process.


def test_an_error_of_tensorflow_is_told_in_a_line():
    with pytest.raises(OSError, match="training stopped: gone"), workers.explained():
        raise tf.errors.UnavailableError(None, None, "gone")


# Devices of a strategy.


def reduced(size: int) -> list[float]:
    """Sums a vector of so many ones over the replicas."""
    strategy = make_strategy("mirrored")

    @tf.function
    def step():
        return tf.distribute.get_replica_context().all_reduce("sum", tf.ones([size]))

    copies = strategy.experimental_local_results(strategy.run(step))
    return [float(value) for copy in copies for value in copy]


def test_trainings_of_one_process_can_follow_one_another():
    assert reduced(3) == [2.0] * 6
    assert reduced(5) == [2.0] * 10
