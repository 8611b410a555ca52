"""Two processes train as one does, end together, and resume together; devices."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.util import tensor_util

from sat_tf.util.errors import RunError
from tests.serving.processes import free_ports
from tests.training.run.stopped_runs import Killed, last_checkpoint, logs_of
from tests.training.run.worker_command import Record
from tests.training.small_runs import exit_of, train
from training import inputs
from training.run import checkpoints
from training.run import strategy as workers
from training.run.cluster import Cluster, Workers
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
    folder: Path, flags: Sequence[str], moments: Sequence[tuple] = (NEVER, NEVER)
) -> list[Ended]:
    """Two processes of `worker_command.py`, to their end; none is left over.

    Args:
        folder: Takes a run of each, of which only the chief's comes to be, and `INDEX.npz`.
        flags: Of both workers.
        moments: Of each worker.
    """
    folder.mkdir(exist_ok=True)
    driver = str(Path(__file__).with_name("worker_command.py"))
    environment = {**os.environ, "PATH": "", "JAVA_HOME": "", "PYTHONPATH": str(ROOT)}
    environment["CUDA_VISIBLE_DEVICES"] = "-1"
    processes: list[subprocess.Popen] = []
    try:
        for index, tf_config in enumerate(tf_configs(2)):
            command = [sys.executable, driver, folder / f"{index}.npz", *map(str, moments[index])]
            command += [*flags, "--strategy", "multi_worker", "--run-dir", folder / f"run{index}"]
            command += ["--cache-dir", folder / f"cache{index}"]
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
LOST = "Error: Another worker has ended or cannot be reached any more, so worker {} ends too"


@pytest.fixture(scope="module")
def flags(tiny, fine_tuned) -> tuple[str, ...]:
    """Of a run of two epochs, on augmented images, batches of unequal halves among them."""
    return (*tiny, *fine_tuned, *TWO_EPOCHS)


@pytest.fixture(scope="module")
def whole(tmp_path_factory, flags) -> Path:
    """The folder of a run that two workers took to its end; beside it, one of this process."""
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
    assert logs.shape == (2, 5)
    np.testing.assert_array_equal(logs, others)
    logs, one = result(whole / "0.npz")[0], result(whole / "one.npz")[0]
    np.testing.assert_allclose(logs, one, rtol=1e-4, atol=1e-4)
    assert_near(whole / "0.npz", whole / "one.npz", atol=2e-3)
    assert (whole / "run0" / "evaluation" / "dev" / "report.json").exists()
    assert not (whole / "run1").exists()


@pytest.mark.slow
def test_hard_attention_on_stored_annotations_in_bfloat16_keeps_the_workers_equal(tmp_path, tiny):
    flags = (*tiny, "--recipe", "scenes_hard", "--encoder.trainable", "False")
    flags += ("--fit.precision", "bfloat16", "--decoder.output_dropout", "0.3")
    for ended in run_workers(tmp_path, flags, moments=(TRAINED, TRAINED)):
        assert ended.status == 0, ended.said
    assert_near(tmp_path / "0.npz", tmp_path / "1.npz", atol=0.0)


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
    assert LOST.format(1) in other.said and "Traceback" not in other.said
    # The end is that of an unbroken run.
    for ended in run_workers(tmp_path, flags, moments=(TRAINED, TRAINED)):
        assert ended.status == 0, ended.said
    assert_near(tmp_path / "0.npz", tmp_path / "1.npz", atol=0.0)
    assert_near(tmp_path / "0.npz", whole / "0.npz", atol=1e-3)
    loss, unbroken = (losses_of(at / "run0") for at in (tmp_path, whole))
    np.testing.assert_allclose(loss, unbroken, rtol=1e-3)
    state, other_state = (last_checkpoint(at / "run0")[1] for at in (tmp_path, whole))
    assert (state["epoch"], state["best_epoch"]) == (2, other_state["best_epoch"])


@pytest.mark.parametrize(
    ("index", "told"),
    [
        (0, r"Error: Not all workers were there within 0 s; missing: 1 \(.*\)"),
        (1, "Error: Worker 1 waited 0 s for the chief at"),
    ],
)
def test_a_worker_alone_gives_up(tmp_path, flags, monkeypatch, capsys, index, told):
    monkeypatch.setenv("TF_CONFIG", tf_configs(2)[index])
    monkeypatch.setattr(Cluster.meet, "__defaults__", (0.2,))
    run_dir = tmp_path / "run"
    status, said = exit_of(capsys, main, *flags, "--run-dir", run_dir, "--strategy", "multi_worker")
    assert status == 2 and re.search(told, said) and not run_dir.exists()


# Of one process.


def test_one_process_is_its_own_chief_and_agrees_with_itself():
    callback = keras.callbacks.Callback()
    assert workers.is_chief() and workers.on_chief(divmod)(7, 2) == (3, 1)
    assert workers.chief_callbacks(callback) == [callback]
    assert workers.shared("gr\u00fcn") == "gr\u00fcn" and workers.heard(15, step=1) == 15
    workers.check_equal("captions", lambda: pytest.fail("asked"))
    workers.barrier()


def test_a_worker_stores_the_annotations_of_the_chief_s_encoder(tmp_path, tiny, monkeypatch):
    def other_weights(variables):
        for variable in variables:
            if tf.as_dtype(variable.dtype).is_floating:
                variable.assign(tf.fill(variable.shape, 0.02))

    def stop(model, data, cache_dir, teachers):
        opened.append((model.encoder, data, open_inputs(model, data, cache_dir, teachers)))
        raise Killed

    opened, open_inputs = [], inputs.open_inputs
    monkeypatch.setattr(checkpoints, "copy_from_chief", other_weights)
    monkeypatch.setattr(inputs, "open_inputs", stop)
    with pytest.raises(Killed):
        train(tmp_path / "run", *tiny, "--encoder.trainable", "False", "--data.limit", "3")
    ((encoder, data, found),) = opened
    np.testing.assert_allclose(encoder.weights[0], 0.02)
    pixels = np.stack([example.image for example in data.dev.examples])
    wanted = encoder(pixels.astype(np.float32))
    np.testing.assert_allclose(found.dev.read(np.arange(3)), wanted, rtol=2e-3)


@pytest.fixture
def worker(monkeypatch):
    """Makes this process the second of two workers, whose collectives are not run."""
    monkeypatch.setenv("TF_CONFIG", tf_configs(2)[1])
    workers.join(Workers(tf.distribute.get_strategy()))
    yield
    workers.join(None)


def test_a_worker_leaves_to_the_chief_what_is_the_chief_s(worker):
    assert not workers.is_chief() and workers.on_chief(pytest.fail)("called") is None
    assert workers.chief_callbacks(keras.callbacks.Callback()) == []


def test_workers_that_differ_are_named(worker, monkeypatch):
    def gather(self, values):
        return np.array([np.add(values, index == 0) for index in range(3)], np.float64)

    monkeypatch.setattr(Workers, "gather", gather)
    with pytest.raises(RunError, match="Workers differ in their data: 1, 2 from the chief, 0"):
        workers.check_equal("data", lambda: "other")


def explained(error: tf.errors.OpError) -> None:
    with workers.explained():
        raise error


def test_an_error_of_tensorflow_is_told_in_a_line():
    with pytest.raises(OSError, match="training stopped: gone"):
        explained(tf.errors.UnavailableError(None, None, "gone"))


def test_an_error_of_tensorflow_is_a_lost_worker_only_where_there_are_several(worker):
    with pytest.raises(RunError, match="so worker 1 ends too"):
        explained(tf.errors.UnavailableError(None, None, "gone"))
    with pytest.raises(OSError, match="training stopped: no file"):
        explained(tf.errors.NotFoundError(None, None, "no file"))


# Devices of a strategy.


def pretend_gpus(monkeypatch, count: int) -> list[str]:
    """CPUs in the place of GPUs; the names a strategy is made with."""
    devices = tf.config.list_logical_devices("CPU")
    monkeypatch.setattr(
        tf.config,
        "list_logical_devices",
        lambda kind: devices[:count] if kind == "GPU" else devices,
    )
    taken: list[str] = []
    monkeypatch.setattr(workers, "mirrored", taken.extend)
    return taken


@pytest.mark.parametrize("gpus", [0, 1])
def test_auto_is_one_device_where_there_are_not_two_gpus(monkeypatch, gpus):
    pretend_gpus(monkeypatch, gpus)
    assert make_strategy("auto") is None


def test_auto_takes_all_of_several_gpus(monkeypatch):
    taken = pretend_gpus(monkeypatch, 2)
    make_strategy("auto")
    assert len(taken) == 2


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
