"""The processes that train one run together: who leads, what each reads, how they agree."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence

import keras
import numpy as np
import tensorflow as tf

from sat_tf.runs import RunError
from training.cluster import Cluster
from training.datasets.batches import Share


class Workers:
    """The processes of a strategy: one, unless it is a `MultiWorkerMirroredStrategy`.

    The first is the chief. It alone reads and writes the run's folder, captions the dev pictures
    and prints; the others compute their share of every batch and follow its decisions. Whatever
    is agreed on here is asked by all of them in the same order, and each waits for the others.

    Args:
        strategy: Of the run; None for one device.

    Attributes:
        count: Processes.
        index: Of this one; 0 is the chief.
    """

    def __init__(self, strategy: tf.distribute.Strategy | None = None) -> None:
        self._strategy = strategy
        self.count, self.index = 1, 0
        if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
            cluster = Cluster.read(os.environ.get("TF_CONFIG"))
            self.count, self.index = len(cluster.addresses), cluster.index

    @property
    def chief(self) -> bool:
        """Whether this process leads."""
        return self.index == 0

    def distribute(
        self, make: Callable[[Share], tf.data.Dataset]
    ) -> tf.data.Dataset | tf.distribute.DistributedDataset:
        """Batches as `fit` takes them.

        Args:
            make: Gives the batches of a share. One process takes all of each batch, and its
                strategy divides them among its devices; of several, each reads only what its own
                devices need.
        """
        if self.count == 1:
            return make(Share())
        replicas = self._strategy.num_replicas_in_sync
        devices = replicas // self.count
        share = Share(self.index * devices, devices, replicas)
        return self._strategy.distribute_datasets_from_function(lambda _: make(share))

    def everyones(self, values: Sequence[float]) -> np.ndarray:
        """float64 `[workers, n]`: the `n` values of each worker."""
        rows = np.zeros([self.count, len(values)])
        rows[self.index] = values
        return self._sum(tf.constant(rows)).numpy()

    def highest(self, value: float) -> float:
        """The highest value of any worker; nobody goes on before all have asked."""
        return float(self.everyones([value]).max())

    def wait(self) -> None:
        """Go on when all the others have come here as well."""
        self.highest(0.0)

    def of_chief(self, value: float) -> float:
        """The chief's value."""
        return float(self.everyones([value])[0, 0])

    def text_of_chief(self, text: str) -> str:
        """The chief's text."""
        content = text.encode("utf-8")
        length = int(self.of_chief(len(content)))
        sent = np.frombuffer(content, np.uint8) if self.chief else np.zeros(length)
        return self.everyones(sent)[0].astype(np.uint8).tobytes().decode("utf-8")

    def spread(self, variables: Iterable[keras.Variable]) -> None:
        """Gives every worker the chief's values of these variables, bit for bit.

        So nobody but the chief needs its checkpoints, nor the same weights files.
        """
        if self.count == 1:
            return
        for variable in variables:
            value = tf.convert_to_tensor(variable)
            # Collective sums know few integers; steps and seeds fit into a float64.
            kind = value.dtype if value.dtype.is_floating else tf.float64
            sent = tf.cast(value, kind) if self.chief else tf.zeros(value.shape, kind)
            variable.assign(tf.cast(self._sum(sent), value.dtype))

    def compare(self, what: str, content: Callable[[], str]) -> None:
        """See that all workers have the same; what differs would train on without a sign of it.

        Args:
            what: Its name, for the message.
            content: Gives it as text; not asked where there is one worker.

        Raises:
            RunError: On every worker, if one has something else than the chief.
        """
        if self.count == 1:
            return
        digest = hashlib.sha256(content().encode("utf-8")).digest()
        found = self.everyones([int.from_bytes(digest[:6])])[:, 0]  # 48 bits: exact in a float64
        others = np.flatnonzero(found != found[0])
        if len(others):
            raise RunError(
                f"Workers differ in their {what}: {', '.join(map(str, others))} from the chief, 0. "
                "Start the same command everywhere, with the same version and on the same data."
            )

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        """Says what TensorFlow's error means when another worker is gone.

        Raises:
            RunError: In its place.
        """
        try:
            yield
        except tf.errors.OpError as error:
            if self.count == 1 or not _is_lost(error):
                raise
            raise RunError(
                f"Another worker has ended, or cannot be reached any more. Worker {self.index} "
                "ends too; start the same command again on all of them to go on from the last "
                "checkpoint."
            ) from error

    def _sum(self, value: tf.Tensor) -> tf.Tensor:
        return value if self.count == 1 else self._strategy.reduce("SUM", value, axis=None)


def _is_lost(error: tf.errors.OpError) -> bool:
    lost = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.DeadlineExceededError)
    return isinstance(error, lost) or "Collective ops is aborted" in error.message
