"""The processes that train together: who they are, and what they exchange."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

_EXAMPLE = (
    '{"cluster": {"worker": ["host1:12345", "host2:12345"]}, '
    '"task": {"type": "worker", "index": 0}}'
)


@dataclass(frozen=True)
class Cluster:
    """The processes that train together.

    Attributes:
        addresses: HOST:PORT of each, the chief's first.
        index: Index of this process.
    """

    addresses: tuple[str, ...]
    index: int

    @classmethod
    def read(cls, text: str | None) -> Cluster:
        """Parses the environment variable `TF_CONFIG`, in TensorFlow's form.

        Args:
            text: JSON with `cluster` (`worker` and optionally `chief`: lists of HOST:PORT) and
                `task` (`type` and `index`); None if the variable is not set.

        Raises:
            ValueError: It is missing or invalid.
        """
        if not text:
            raise _invalid("a description of the workers", "nothing: it is not set")
        try:
            found = json.loads(text)
            jobs, task = dict(found["cluster"]), dict(found["task"])
            kind, index = task["type"], int(task["index"])
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            raise _invalid("JSON with `cluster` and `task`", f"{text!r} ({error!r})") from error
        if not jobs or not set(jobs) <= {"chief", "worker"}:
            raise _invalid("`cluster` to hold `worker` and optionally `chief`", repr(sorted(jobs)))
        for job, hosts in jobs.items():
            if not isinstance(hosts, list):
                raise _invalid(f"a list of HOST:PORT as `{job}`", repr(hosts))
        tasks = [(job, n, at) for job in sorted(jobs) for n, at in enumerate(jobs[job])]
        addresses = tuple(address for _, _, address in tasks)
        for address in addresses:
            if not _is_address(address):
                raise _invalid("a HOST:PORT for each worker", repr(address))
        if len(set(addresses)) < len(addresses):
            raise _invalid("another HOST:PORT for each worker", repr(list(addresses)))
        places = [(job, n) for job, n, _ in tasks]
        if (kind, index) not in places:
            raise _invalid("`task` to be one of the `cluster`", f"{kind} {index}")
        return cls(addresses, places.index((kind, index)))


def _is_address(text: object) -> bool:
    host, _, port = text.rpartition(":") if isinstance(text, str) else ("", "", "")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        return False  # the last part of a bare IPv6 address is not a port
    return bool(host) and port.isascii() and port.isdecimal() and 0 < int(port) < 2**16


def _invalid(expected: str, got: str) -> ValueError:
    return ValueError(
        "Received an invalid value for environment variable `TF_CONFIG`, which `--strategy "
        f"multi_worker` reads: expected {expected}, such as {_EXAMPLE}; got {got}."
    )


class Workers:
    """The processes of a `MultiWorkerMirroredStrategy`.

    Attributes:
        strategy: The strategy.
        count: Number of processes.
        index: Index of this one; 0 is the chief.
    """

    def __init__(self, strategy: tf.distribute.Strategy, cluster: Cluster) -> None:
        self.strategy, self.count, self.index = strategy, len(cluster.addresses), cluster.index

    def sum(self, value: tf.Tensor) -> tf.Tensor:
        """Sums a tensor over the workers."""
        return self.strategy.reduce("SUM", value, axis=None)

    def gather(self, values: Sequence[float]) -> np.ndarray:
        """Returns the `n` values of each worker, float64 `[workers, n]`."""
        rows = np.zeros([self.count, len(values)])
        rows[self.index] = values
        return self.sum(tf.constant(rows)).numpy()
