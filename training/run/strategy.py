"""Several devices and processes, behind functions that a single process does not notice.

`--strategy multi_worker` is TensorFlow's `MultiWorkerMirroredStrategy`, with `TF_CONFIG` as its
documentation has it: the same command on every machine, with a run folder that all of them see.
The first worker is the chief: it alone writes that folder, captions the dev images and prints. A
worker that is missing or dies ends the others on timeout of TensorFlow's coordination service.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import tensorflow as tf

from sat_tf.util.errors import RunError
from training.data.batches import Shard

T = TypeVar("T")

LISTEN_STEPS = 10
"""Steps between two exchanges of signals among workers."""

_workers: tf.distribute.MultiWorkerMirroredStrategy | None = None


def make_strategy(name: str) -> tf.distribute.Strategy | None:
    """Makes the strategy of this name.

    Args:
        name: `auto` (mirrored if there is more than one GPU), `mirrored` (over all GPUs, or over
            the logical CPUs if there is none), `multi_worker` (over the GPUs, or the CPU, of each
            process that `TF_CONFIG` names; waits for all of them, before any other operation) or
            `none`.

    Returns:
        The strategy, the same object each time; None for one device.

    Raises:
        ValueError: `multi_worker` without a valid `TF_CONFIG`.
    """
    global _workers
    if name == "multi_worker":
        if _workers is None:
            try:
                json.loads(os.environ["TF_CONFIG"])[
                    "cluster"
                ]  # without one, TensorFlow takes one worker
                _workers = tf.distribute.MultiWorkerMirroredStrategy()
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                raise ValueError(
                    "`--strategy multi_worker` reads the environment variable `TF_CONFIG`, JSON "
                    "with `cluster` and `task` as TensorFlow's guide to multi-worker training has "
                    f"them; got {os.environ.get('TF_CONFIG')!r} ({error!r})."
                ) from error
        return _workers
    gpus = tf.config.list_logical_devices("GPU")
    if name == "none" or (name == "auto" and len(gpus) < 2):
        return None
    devices = gpus or tf.config.list_logical_devices("CPU")
    return mirrored(tuple(device.name for device in devices))


# A second strategy over the same devices would number its collective operations from the start
# again, and TensorFlow rejects a number already used with another shape.
@functools.cache
def mirrored(devices: tuple[str, ...]) -> tf.distribute.MirroredStrategy:
    """Makes the only strategy of this process over these devices."""
    return tf.distribute.MirroredStrategy(list(devices))


def is_chief() -> bool:
    """Returns whether this process writes the run's folder, and prints."""
    if _workers is None:
        return True
    resolver = _workers.cluster_resolver
    alone = "chief" not in resolver.cluster_spec().jobs
    return resolver.task_type == "chief" or (alone and not resolver.task_id)


def on_chief(function: Callable[..., T]) -> Callable[..., T | None]:
    """Decorates a function that the chief alone runs; it returns None on other workers."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> T | None:
        return function(*args, **kwargs) if is_chief() else None

    return run


def summed(values: Sequence[float]) -> list[float]:
    """Sums numbers over the workers, which wait for each other."""
    if _workers is None:
        return [*values]
    return _workers.reduce("SUM", tf.constant(values, tf.float64), axis=None).numpy().tolist()


def of_chief(values: Sequence[float]) -> list[float]:
    """Returns the chief's numbers, which decide for all workers."""
    return summed(values if is_chief() else [0.0] * len(values))


def heard(signal: int | None, signals: Iterable[int], step: int = 0) -> int | None:
    """Returns the signal that any worker has received, if any.

    Args:
        signal: The signal that this worker has received, if any.
        signals: Those that it may be.
        step: Workers ask each other after every `LISTEN_STEPS` of them; 0 asks at once.
    """
    if _workers is None:
        return signal
    if step % LISTEN_STEPS:
        return None
    counts = summed([float(signal == one) for one in signals])
    return next((one for one, count in zip(signals, counts, strict=True) if count), None)


def distribute(
    make: Callable[[Shard], tf.data.Dataset],
) -> tf.data.Dataset | tf.distribute.DistributedDataset:
    """Returns batches in the form that `fit` takes.

    Args:
        make: Returns the batches of a shard. A single process reads whole batches, which its
            strategy divides among the devices; each of several reads only the parts of its own
            devices.
    """
    if _workers is None:
        return make(Shard())

    def own(context: tf.distribute.InputContext) -> tf.data.Dataset:
        replicas = context.num_replicas_in_sync
        devices = replicas // context.num_input_pipelines
        return make(Shard(context.input_pipeline_id * devices, devices, replicas))

    return _workers.distribute_datasets_from_function(own)


def check_equal(name: str, content: Callable[[], str]) -> None:
    """Checks that all workers have the same content.

    Raises:
        RunError: On every worker, if one differs from the chief.
    """
    if _workers is None:
        return
    digest = hashlib.sha256(content().encode("utf-8")).digest()
    own = int.from_bytes(digest[:6])  # 48 bits: exact in a float64
    if summed([float(own != of_chief([own])[0])])[0]:
        raise RunError(
            f"Workers differ in their {name}. Start the same command on all of them, with the same "
            "version and data and a run folder that all of them see."
        )


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Turns TensorFlow's errors in the middle of training into messages of one line.

    Raises:
        OSError: An error of TensorFlow, such as a file that has vanished or a lost worker.
    """
    try:
        yield
    except tf.errors.OpError as error:
        again = "start the same command again on all of them to resume from the last checkpoint."
        others = "" if _workers is None else f" If another worker has ended, {again}"
        raise OSError(f"training stopped: {error.message}{others}") from error
