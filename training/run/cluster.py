"""The processes that train together: who they are, how they meet, and what they exchange."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from sat_tf.util.errors import RunError

MEETING_SECONDS = 600.0
"""Seconds that the processes wait for each other at the start."""
_RETRY_SECONDS = 0.2
_HELLO_SECONDS = 5.0  # for a connecting process to identify itself
_GO = b"sat_tf: all there\n"
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

    def meet(self, seconds: float = MEETING_SECONDS) -> None:
        """Returns once all processes are there.

        TensorFlow waits for them too when it makes the strategy, but for an hour and deaf to
        signals.

        The chief listens at its own address, which TensorFlow uses afterwards; the others connect
        and wait for its word. A process that dies meanwhile may be started again.

        Raises:
            RunError: Not all of them came.
            OSError: The chief cannot listen at its port.
        """
        deadline = time.monotonic() + seconds
        if self.index:
            self._call_chief(deadline, seconds)
        elif len(self.addresses) > 1:
            self._gather(deadline, seconds)

    def _gather(self, deadline: float, seconds: float) -> None:
        come: dict[int, socket.socket] = {}
        hellos = {self._hello(index): index for index in range(1, len(self.addresses))}
        port = int(self.addresses[0].rpartition(":")[2])
        with contextlib.ExitStack() as held:
            server = held.enter_context(_listener(port))
            while len(come) < len(hellos):
                server.settimeout(_left(deadline))
                try:
                    connection = held.enter_context(server.accept()[0])
                except TimeoutError as error:
                    missing = sorted(set(hellos.values()) - come.keys())
                    named = ", ".join(f"{n} ({self.addresses[n]})" for n in missing)
                    raise RunError(
                        f"Not all workers were there within {seconds:.0f} s; missing: {named}. "
                        "Start the same command on all of them."
                    ) from error
                said = _line(connection, _HELLO_SECONDS)
                come = {index: other for index, other in come.items() if _waits(other)}
                if said in hellos:
                    come[hellos[said]] = connection
            for connection in come.values():
                with contextlib.suppress(OSError):
                    connection.sendall(_GO)

    def _call_chief(self, deadline: float, seconds: float) -> None:
        host, _, port = self.addresses[0].rpartition(":")
        reason = "not all workers had come"
        while (left := deadline - time.monotonic()) > 0:
            try:
                with socket.create_connection((host.strip("[]"), int(port)), left) as connection:
                    connection.sendall(self._hello(self.index))
                    if _line(connection, _left(deadline)) == _GO:
                        return
            except OSError as error:
                reason = error.strerror or str(error)
            time.sleep(_RETRY_SECONDS)
        raise RunError(
            f"Worker {self.index} waited {seconds:.0f} s for the chief at {self.addresses[0]}: "
            f"{reason}. Start the same command on all workers, and check that they can connect."
        )

    def _hello(self, index: int) -> bytes:
        return f"sat_tf: worker {index} of {len(self.addresses)}\n".encode()


def _listener(port: int) -> socket.socket:
    """Listens on IPv4 and, if the machine has it, IPv6, as a name may stand for either."""
    if not socket.has_dualstack_ipv6():
        return socket.create_server(("", port))
    return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)


def _left(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.001)


def _line(connection: socket.socket, seconds: float) -> bytes:
    """Reads a line, or what has come of it when the time is over."""
    connection.settimeout(seconds)
    said = b""
    with contextlib.suppress(OSError):
        while not said.endswith(b"\n") and len(said) < 64 and (more := connection.recv(1)):
            said += more
    return said


def _waits(connection: socket.socket) -> bool:
    """Returns whether a worker is still connected: it sends no more, so readable means closed."""
    return not select.select([connection], [], [], 0)[0]


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

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        cluster = Cluster.read(os.environ.get("TF_CONFIG"))
        self.strategy, self.count, self.index = strategy, len(cluster.addresses), cluster.index

    def sum(self, value: tf.Tensor) -> tf.Tensor:
        """Sums a tensor over the workers."""
        return self.strategy.reduce("SUM", value, axis=None)

    def gather(self, values: Sequence[float]) -> np.ndarray:
        """Returns the `n` values of each worker, float64 `[workers, n]`."""
        rows = np.zeros([self.count, len(values)])
        rows[self.index] = values
        return self.sum(tf.constant(rows)).numpy()
