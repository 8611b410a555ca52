"""Which devices share the work, of one machine or of several."""

from __future__ import annotations

import functools
import json
import os
from dataclasses import dataclass

import tensorflow as tf

_EXAMPLE = (
    '{"cluster": {"worker": ["host1:12345", "host2:12345"]}, '
    '"task": {"type": "worker", "index": 0}}'
)


def make_strategy(name: str) -> tf.distribute.Strategy | None:
    """The strategy of this name.

    Args:
        name: `auto` (mirrored when there is more than one GPU), `mirrored` (over all GPUs, or
            over the logical CPUs where there is no GPU), `multi_worker` (over the GPUs, or the
            CPU, of every process that `TF_CONFIG` names; waits until they are all there) or
            `none`.

    Returns:
        A strategy, the same one each time it is asked for; None for one device.

    Raises:
        ValueError: `multi_worker` without a `TF_CONFIG` that says who works together.
    """
    if name == "multi_worker":
        Cluster.read(os.environ.get("TF_CONFIG"))
        return multi_worker()
    gpus = tf.config.list_logical_devices("GPU")
    if name == "none" or (name == "auto" and len(gpus) < 2):
        return None
    devices = gpus or tf.config.list_logical_devices("CPU")
    return mirrored(tuple(device.name for device in devices))


@functools.cache
def mirrored(devices: tuple[str, ...]) -> tf.distribute.MirroredStrategy:
    """The one strategy of this process over these devices.

    A second one would number its collective operations from the start again, and TensorFlow
    refuses a number that has been used with another shape ("shape mismatch in the collective
    instance").
    """
    return tf.distribute.MirroredStrategy(list(devices))


@functools.cache
def multi_worker() -> tf.distribute.MultiWorkerMirroredStrategy:
    """The one strategy of this process over all of `TF_CONFIG`; before any other operation."""
    return tf.distribute.MultiWorkerMirroredStrategy()


@dataclass(frozen=True)
class Cluster:
    """The processes that train together.

    Attributes:
        addresses: HOST:PORT of each, the chief's first.
        index: Which of them this process is.
    """

    addresses: tuple[str, ...]
    index: int

    @classmethod
    def read(cls, text: str | None) -> Cluster:
        """From the environment variable `TF_CONFIG`, in TensorFlow's form.

        Args:
            text: JSON with `cluster` (`worker`, and `chief` if the first worker is not it: lists
                of HOST:PORT) and `task` (`type` and `index`); None if the variable is not set.

        Raises:
            ValueError: It is missing, or says something else.
        """
        if not text:
            raise _invalid("a description of the workers", "nothing: it is not set")
        try:
            found = json.loads(text)
            jobs, task = dict(found["cluster"]), dict(found["task"])
            kind, index = task["type"], int(task["index"])
        except (ValueError, TypeError, KeyError) as error:
            raise _invalid("JSON with `cluster` and `task`", f"{text!r} ({error!r})") from error
        if not jobs or not set(jobs) <= {"chief", "worker"}:
            raise _invalid("`cluster` to hold `worker`, and `chief` at most", repr(sorted(jobs)))
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
    return bool(host) and port.isdecimal()


def _invalid(expected: str, got: str) -> ValueError:
    return ValueError(
        "Received an invalid value for environment variable `TF_CONFIG`, which `--strategy "
        f"multi_worker` reads: expected {expected}, such as {_EXAMPLE}; got {got}."
    )
