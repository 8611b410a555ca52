"""Several devices and processes, behind functions that a single process does not notice.

A process that trains by itself is its own chief and agrees with itself, so that each function here
does the plain thing. `--strategy multi_worker` makes the process one of several, the first of which
is the chief: it alone reads and writes the run's folder, captions the dev images and prints; the
others compute their part of every batch and follow its decisions. All of them then call `shared`,
`copy_from_chief`, `heard`, `check_equal` and `barrier` in the same order, and each call waits for
the others.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import keras
import numpy as np
import tensorflow as tf

from sat_tf.util.errors import RunError
from training.data.batches import Shard

if TYPE_CHECKING:
    from training.run.cluster import Workers

T = TypeVar("T")

LISTEN_STEPS = 10
"""Steps between two occasions on which workers tell each other of a signal."""


_joined: Workers | None = None


def join(workers: Workers | None) -> None:
    """Makes this process one of several; None lets it train by itself again."""
    global _joined
    _joined = workers


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
        RunError: Not all processes came.
    """
    if name == "multi_worker":
        from training.run.cluster import Cluster, Workers

        if _joined is None:
            Cluster.read(os.environ.get("TF_CONFIG")).meet()
            join(Workers(tf.distribute.MultiWorkerMirroredStrategy()))
        return _joined.strategy
    gpus = tf.config.list_logical_devices("GPU")
    if name == "none" or (name == "auto" and len(gpus) < 2):
        return None
    devices = gpus or tf.config.list_logical_devices("CPU")
    return mirrored(tuple(device.name for device in devices))


@functools.cache
def mirrored(devices: tuple[str, ...]) -> tf.distribute.MirroredStrategy:
    """Makes the only strategy of this process over these devices.

    A second one would number its collective operations from the start again, and TensorFlow
    rejects a number already used with another shape ("shape mismatch in the collective instance").
    """
    return tf.distribute.MirroredStrategy(list(devices))


def is_chief() -> bool:
    """Returns whether this process reads and writes the run's folder, and prints."""
    return _joined is None or not _joined.index


def on_chief(function: Callable[..., T]) -> Callable[..., T | None]:
    """Decorates a function that the chief alone runs; it returns None on other workers."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> T | None:
        return function(*args, **kwargs) if is_chief() else None

    return run


def chief_callbacks(*callbacks: keras.callbacks.Callback) -> list[keras.callbacks.Callback]:
    """Returns the callbacks on the chief, and none on other workers."""
    return list(callbacks) if is_chief() else []


def shared(value: T) -> T:
    """Returns the chief's value of what JSON can write."""
    if _joined is None:
        return value
    content = json.dumps(value if is_chief() else None).encode("utf-8")
    length = int(_joined.gather([len(content)])[0, 0])
    sent = np.frombuffer(content, np.uint8) if is_chief() else np.zeros(length)
    return json.loads(_joined.gather(sent)[0].astype(np.uint8).tobytes().decode("utf-8"))


def copy_from_chief(variables: Iterable[keras.Variable]) -> None:
    """Gives every worker the chief's values of these variables, bit for bit."""
    for variable in variables if _joined else ():
        value = tf.convert_to_tensor(variable)
        # Collective sums support few integer types; steps and seeds fit into a float64.
        kind = value.dtype if value.dtype.is_floating else tf.float64
        sent = tf.cast(value, kind) if is_chief() else tf.zeros(value.shape, kind)
        variable.assign(tf.cast(_joined.sum(sent), value.dtype))


def distribute(
    make: Callable[[Shard], tf.data.Dataset],
) -> tf.data.Dataset | tf.distribute.DistributedDataset:
    """Returns batches in the form that `fit` takes.

    Args:
        make: Returns the batches of a shard. A single process reads whole batches, which its
            strategy divides among the devices; each of several reads only the parts of its own
            devices.
    """
    if _joined is None:
        return make(Shard())
    replicas = _joined.strategy.num_replicas_in_sync
    devices = replicas // _joined.count
    shard = Shard(_joined.index * devices, devices, replicas)
    return _joined.strategy.distribute_datasets_from_function(lambda _: make(shard))


def heard(signal: int, step: int = 0) -> int:
    """Returns the signal that any worker has received, or 0.

    Args:
        signal: The signal that this worker has received, or 0.
        step: Workers ask each other after every `LISTEN_STEPS` of them; 0 asks at once.
    """
    if _joined is None:
        return signal
    return 0 if step % LISTEN_STEPS else int(_joined.gather([signal]).max())


def check_equal(name: str, content: Callable[[], str]) -> None:
    """Checks that all workers have the same content.

    Raises:
        RunError: On every worker, if one differs from the chief.
    """
    if _joined is None:
        return
    digest = hashlib.sha256(content().encode("utf-8")).digest()
    found = _joined.gather([int.from_bytes(digest[:6])])[:, 0]  # 48 bits: exact in a float64
    others = np.flatnonzero(found != found[0])
    if len(others):
        raise RunError(
            f"Workers differ in their {name}: {', '.join(map(str, others))} from the chief, 0. "
            "Start the same command on all of them, with the same version and data."
        )


def barrier() -> None:
    """Waits until all workers have come here."""
    with explained():
        heard(0)


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Turns TensorFlow's errors in the middle of training into messages of one line.

    Raises:
        RunError: Another worker is gone.
        OSError: Any other error of TensorFlow, such as a file that has vanished.
    """
    lost = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.DeadlineExceededError)
    try:
        yield
    except tf.errors.OpError as error:
        gone = isinstance(error, lost) or "Collective ops is aborted" in error.message
        if _joined is None or not gone:
            raise OSError(f"training stopped: {error.message}") from error
        raise RunError(
            f"Another worker has ended or cannot be reached any more, so worker {_joined.index} "
            "ends too. Start the same command again on all of them to resume from the last "
            "checkpoint."
        ) from error
