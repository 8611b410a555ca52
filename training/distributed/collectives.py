"""Agreement among the processes that train one run together."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import keras
import numpy as np
import tensorflow as tf

from sat_tf.runs import RunError
from training.data.bucketing import Shard
from training.distributed.rendezvous import Cluster

T = TypeVar("T")

LISTEN_STEPS = 10
"""Steps between two occasions on which workers tell each other of a signal."""


class SingleProcess:
    """A process that trains by itself: its own chief, in agreement with itself.

    `WorkerGroup` has the same interface for several processes, so code that trains asks neither
    how many there are nor which of them it is.

    Args:
        strategy: Distributes work over the devices; None for one device.
    """

    count, index = 1, 0

    def __init__(self, strategy: tf.distribute.Strategy | None = None) -> None:
        self.strategy = strategy or tf.distribute.get_strategy()

    def on_chief(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T | None:
        """Calls a function on the chief and returns its result; None on other workers."""
        return function(*args, **kwargs)

    def chief_only(self, callback: keras.callbacks.Callback) -> keras.callbacks.Callback:
        """Returns the callback on the chief, and one that does nothing on other workers."""
        return callback

    def distribute(
        self, make: Callable[[Shard], tf.data.Dataset]
    ) -> tf.data.Dataset | tf.distribute.DistributedDataset:
        """Returns batches in the form that `fit` takes.

        Args:
            make: Returns the batches of a shard. A single process reads whole batches, which its
                strategy divides among the devices; each of several reads only the parts of its
                own devices.
        """
        return make(Shard())

    def all_gather(self, values: Sequence[float]) -> np.ndarray:
        """Returns the `n` values of each worker, float64 `[workers, n]`."""
        return np.array([values], np.float64)

    def barrier(self) -> None:
        """Waits until all workers have come here."""
        self.all_gather([0.0])

    def broadcast_scalar(self, value: float) -> float:
        """Returns the chief's value."""
        return float(self.all_gather([value])[0, 0])

    def broadcast_text(self, text: str) -> str:
        """Returns the chief's text."""
        return text

    def broadcast(self, variables: Iterable[keras.Variable]) -> None:
        """Gives every worker the chief's values of these variables, bit for bit."""

    def heard(self, signal: int, step: int) -> int:
        """Returns the signal that any worker has received, or 0.

        Args:
            signal: The signal that this worker has received, or 0.
            step: Workers ask each other after every `LISTEN_STEPS` of them; 0 asks at once.
        """
        return signal

    def check_equal(self, name: str, content: Callable[[], str]) -> None:
        """Checks that all workers have the same content.

        Raises:
            RunError: On every worker, if one differs from the chief.
        """

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        """Turns TensorFlow's errors in the middle of training into messages of one line.

        Raises:
            RunError: Another worker is gone.
            OSError: Any other error of TensorFlow, such as a file that has vanished.
        """
        try:
            yield
        except tf.errors.OpError as error:
            raise self._explanation(error) from error

    def _explanation(self, error: tf.errors.OpError) -> Exception:
        return OSError(f"training stopped: {error.message}")


class WorkerGroup(SingleProcess):
    """The processes of a `MultiWorkerMirroredStrategy`; the first is the chief.

    The chief alone reads and writes the run's folder, captions the dev images and prints; the
    others compute their part of every batch and follow its decisions. All workers call the
    collective methods in the same order, and each call waits for the others.

    Args:
        strategy: The strategy.

    Attributes:
        count: Number of processes.
        index: Index of this one; 0 is the chief.
    """

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        super().__init__(strategy)
        cluster = Cluster.read(os.environ.get("TF_CONFIG"))
        self.count, self.index = len(cluster.addresses), cluster.index

    def on_chief(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T | None:
        return None if self.index else function(*args, **kwargs)

    def chief_only(self, callback: keras.callbacks.Callback) -> keras.callbacks.Callback:
        return keras.callbacks.Callback() if self.index else callback

    def distribute(self, make: Callable[[Shard], tf.data.Dataset]) -> Any:
        replicas = self.strategy.num_replicas_in_sync
        devices = replicas // self.count
        shard = Shard(self.index * devices, devices, replicas)
        return self.strategy.distribute_datasets_from_function(lambda _: make(shard))

    def all_gather(self, values: Sequence[float]) -> np.ndarray:
        rows = np.zeros([self.count, len(values)])
        rows[self.index] = values
        return self._sum(tf.constant(rows)).numpy()

    def broadcast_text(self, text: str) -> str:
        content = text.encode("utf-8")
        length = int(self.broadcast_scalar(len(content)))
        sent = np.zeros(length) if self.index else np.frombuffer(content, np.uint8)
        return self.all_gather(sent)[0].astype(np.uint8).tobytes().decode("utf-8")

    def broadcast(self, variables: Iterable[keras.Variable]) -> None:
        for variable in variables:
            value = tf.convert_to_tensor(variable)
            # Collective sums support few integer types; steps and seeds fit into a float64.
            kind = value.dtype if value.dtype.is_floating else tf.float64
            sent = tf.zeros(value.shape, kind) if self.index else tf.cast(value, kind)
            variable.assign(tf.cast(self._sum(sent), value.dtype))

    def heard(self, signal: int, step: int) -> int:
        return 0 if step % LISTEN_STEPS else int(self.all_gather([signal]).max())

    def check_equal(self, name: str, content: Callable[[], str]) -> None:
        digest = hashlib.sha256(content().encode("utf-8")).digest()
        found = self.all_gather([int.from_bytes(digest[:6])])[:, 0]  # 48 bits: exact in a float64
        others = np.flatnonzero(found != found[0])
        if len(others):
            raise RunError(
                f"Workers differ in their {name}: {', '.join(map(str, others))} from the chief, 0. "
                "Start the same command on all of them, with the same version and data."
            )

    def _explanation(self, error: tf.errors.OpError) -> Exception:
        if not _is_lost(error):
            return super()._explanation(error)
        return RunError(
            f"Another worker has ended or cannot be reached any more, so worker {self.index} ends "
            "too. Start the same command again on all of them to resume from the last checkpoint."
        )

    def _sum(self, value: tf.Tensor) -> tf.Tensor:
        return self.strategy.reduce("SUM", value, axis=None)


def worker_group(strategy: tf.distribute.Strategy | None = None) -> SingleProcess:
    """Returns the processes of a strategy; None is one process with one device."""
    if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return WorkerGroup(strategy)
    return SingleProcess(strategy)


def _is_lost(error: tf.errors.OpError) -> bool:
    lost = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.DeadlineExceededError)
    return isinstance(error, lost) or "Collective ops is aborted" in error.message
