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
import select
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import keras
import numpy as np
import tensorflow as tf

from sat_tf.errors import RunError
from training.data.batches import Shard

T = TypeVar("T")

MEETING_SECONDS = 600.0
"""Seconds that the processes wait for each other at the start."""
LISTEN_STEPS = 10
"""Steps between two occasions on which workers tell each other of a signal."""
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
