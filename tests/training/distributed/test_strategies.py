"""Which devices a strategy takes."""

from __future__ import annotations

import pytest
import tensorflow as tf

from training.distributed import workers as strategies
from training.distributed.workers import make_strategy


def pretend_gpus(monkeypatch, count: int) -> list[str]:
    """CPUs in the place of GPUs; the names a strategy is made with."""
    devices = tf.config.list_logical_devices("CPU")
    monkeypatch.setattr(
        tf.config,
        "list_logical_devices",
        lambda kind: devices[:count] if kind == "GPU" else devices,
    )
    taken: list[str] = []
    monkeypatch.setattr(strategies, "mirrored", taken.extend)
    return taken


def test_none_is_one_device():
    assert make_strategy("none") is None


@pytest.mark.parametrize("gpus", [0, 1])
def test_auto_is_one_device_where_there_are_not_two_gpus(monkeypatch, gpus):
    pretend_gpus(monkeypatch, gpus)
    assert make_strategy("auto") is None


def test_auto_takes_all_of_several_gpus(monkeypatch):
    taken = pretend_gpus(monkeypatch, 2)
    make_strategy("auto")
    assert len(taken) == 2


def test_mirrored_takes_the_cpus_where_there_is_no_gpu():
    assert make_strategy("mirrored").num_replicas_in_sync == 2


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
