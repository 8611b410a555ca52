"""Attacks on a served export: `python -m benchmarks.serving_fuzz EXPORT_DIR --seconds 60`.

Starts the local server in another process, on the loopback interface alone, and sends it, from
fixed seeds: every format and mode that Pillow writes, animations, bombs, files with flipped, cut
and repeated bytes, requests of odd tensors and filters, mutated protobufs. Good images travel
beside the bad ones, and their answers are compared with those they get alone. Prints statuses, the
slowest answers, and each criterion with `pass` or `FAIL`: no crash, memory within 100 MB of its
start, no neighbour's answer changed, health answered within a second. Ends with 1 if one is missed.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import numpy as np
import tyro
from grpc_health.v1 import health_pb2, health_pb2_grpc

from benchmarks import image_corpus
from benchmarks.peak import resident_megabytes
from benchmarks.serving_load import local_server
from sat_tf.commands import exit_status
from serving.client import protocol

_TIMEOUT = 60.0  # seconds per call
_HEALTH_SECONDS = 1.0  # a health check may take
# Of the neighbours' numbers, for which an export promises 1e-4: a batch of another size rounds
# differently, by up to 2e-6 on a processor without AVX-512.
_TOLERANCE = 1e-5
_GROWTH_MB = 100  # that memory may take beyond what it has after every file was sent once
_OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


@dataclass(frozen=True)
class Arguments:
    """Attack a local server with broken images and requests."""

    export_dir: tyro.conf.Positional[Path]
    """Folder of the version folders."""
    seconds: float = 60.0
    """Length of the attack."""
    clients: int = 4
    """Attackers at the same time."""
    seed: int = 0
    """Other attacks for another seed."""


@dataclass
class Findings:
    """Everything the attackers saw; each thread only adds."""

    statuses: Counter = field(default_factory=Counter)
    slowest: list[tuple[float, str]] = field(default_factory=list)
    compared: int = 0
    changed: list[str] = field(default_factory=list)
    health: list[float] = field(default_factory=list)
    sick: list[str] = field(default_factory=list)
    crashed: bool = False
    memory_mb: list[float] = field(default_factory=list)

    def criteria(self) -> list[tuple[bool, str]]:
        """Criteria of the attack: whether each was met, and the figures."""
        before, after = self.memory_mb
        health = max(self.health, default=0.0)
        return [
            (not self.crashed, "no crash"),
            # Unknown without /proc, and then not a failure.
            (
                not after - before > _GROWTH_MB,
                f"memory within {_GROWTH_MB} MB: {before:.0f} MB before, {after:.0f} MB after",
            ),
            (
                not self.changed,
                f"neighbours: {self.compared} answers compared, {len(self.changed)} changed",
            ),
            (
                not self.sick,
                f"health within {_HEALTH_SECONDS:g} s: {len(self.health)} checks, slowest "
                f"{health:.2f} s, {len(self.sick)} lost",
            ),
        ]

    @property
    def failed(self) -> bool:
        """Says if one of the criteria was missed."""
        return not all(passed for passed, _ in self.criteria())


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    arguments = tyro.cli(Arguments, args=argv, prog="python -m benchmarks.serving_fuzz")
    return exit_status(lambda: run(arguments))


def run(arguments: Arguments) -> int:
    """Attacks, prints the findings; returns 1 if something is wrong, else 0."""
    found = fuzz(arguments.export_dir, arguments.seconds, arguments.clients, arguments.seed)
    print(describe(found))
    return 1 if found.failed else 0


def fuzz(export_dir: Path, seconds: float, clients: int = 4, seed: int = 0) -> Findings:
    """Attacks a server of this export for so many seconds."""
    found, stopped = Findings(), threading.Event()
    files = [*image_corpus.readable(), *image_corpus.hostile()]
    with (
        local_server(export_dir) as (port, server),
        grpc.insecure_channel(f"127.0.0.1:{port}", _OPTIONS) as channel,
        ThreadPoolExecutor(clients + 1) as pool,
    ):
        attack = _Attack(channel, files, found)
        for name, content in files:  # every file once, so that memory has settled
            attack.beside_neighbours(name, content, random.Random(seed))
        found.memory_mb.append(resident_megabytes(server))
        watching = pool.submit(_watch, channel, found, stopped)
        end = time.monotonic() + seconds
        attacks = [pool.submit(attack.until, end, seed + n + 1) for n in range(clients)]
        for each in attacks:
            each.result()
        stopped.set()
        watching.result()
        found.memory_mb.append(resident_megabytes(server))
        found.crashed = found.crashed or not Path(f"/proc/{server}/stat").exists()
    return found


class _Attack:
    """Requests of one export, good images among bad ones."""

    def __init__(self, channel: grpc.Channel, files: list[tuple[str, bytes]], found: Findings):
        self._call = channel.unary_unary(protocol.PREDICT)  # bytes in, bytes out
        self._files, self._found = files, found
        self._good = [image_corpus.encode(image_corpus.smooth(seed=n), "JPEG") for n in (1, 2)]
        self._alone = [self._read(self._send("good", _request([c])))[0] for c in self._good]

    def until(self, end: float, seed: int) -> None:
        """Attacks until the time is over, or the server is gone."""
        rng = random.Random(seed)
        kinds = [self._file, self._mutated_file, self._odd_request, self._mutated_request]
        while time.monotonic() < end and not self._found.crashed:
            rng.choice(kinds)(rng)

    def beside_neighbours(self, name: str, content: bytes, rng: random.Random) -> None:
        """Sends a file between good ones, whose answers must not change."""
        images = [self._good[0], content, self._good[1]]
        rows = [0, 2]
        if rng.random() < 0.5:
            images, rows = images[:2], rows[:1]
        answer = self._read(self._send(name, _request(images)))
        for row, alone in zip(rows, self._alone, strict=False):
            if row < len(answer):
                self._compare(name, answer[row], alone)

    def _file(self, rng: random.Random) -> None:
        self.beside_neighbours(*rng.choice(self._files), rng)

    def _mutated_file(self, rng: random.Random) -> None:
        name, content = rng.choice(self._files)
        self.beside_neighbours(f"{name}, mutated", mutate(content, rng), rng)

    def _odd_request(self, rng: random.Random) -> None:
        self._send("odd request", odd_request(rng))

    def _mutated_request(self, rng: random.Random) -> None:
        self._send("mutated request", mutate(_request([self._good[0]], ("captions",)), rng))

    def _send(self, name: str, request: bytes) -> bytes | None:
        started = time.monotonic()
        response, status = None, "OK"
        try:
            response = self._call(request, timeout=_TIMEOUT)
        except grpc.RpcError as error:
            status = error.code().name
            self._found.crashed |= error.code() == grpc.StatusCode.UNAVAILABLE
            if self._found.crashed:
                name += " (in flight when the server went away)"
        self._found.statuses[status] += 1
        self._found.slowest.append((time.monotonic() - started, name))
        return response

    def _read(self, response: bytes | None) -> list[dict]:
        """The rows of an answer."""
        if response is None:
            return []
        outputs = protocol.PredictResponse.FromString(response).outputs
        values = {name: protocol.to_array(tensor) for name, tensor in outputs.items()}
        rows = len(values["captions"])
        return [{name: value[row] for name, value in values.items()} for row in range(rows)]

    def _compare(self, name: str, row: dict, alone: dict) -> None:
        self._found.compared += 1
        for output, value in row.items():
            wanted = np.asarray(alone[output])
            same = np.array_equal(value, wanted)
            if not same and wanted.dtype.kind == "f":
                same = np.allclose(value, wanted, rtol=0, atol=_TOLERANCE)
            if not same:
                self._found.changed.append(f"{output} beside {name}")


def mutate(content: bytes, rng: random.Random) -> bytes:
    """Changes some bytes, cuts the end off or repeats a part."""
    changed = bytearray(content or b"\0")
    for _ in range(rng.randrange(1, 8)):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    if rng.random() < 0.3:
        del changed[rng.randrange(len(changed)) :]
    if rng.random() < 0.2:
        start = rng.randrange(len(changed) + 1)
        changed[start:start] = changed[start : start + rng.randrange(1000)] * rng.randrange(1, 20)
    return bytes(changed)


def odd_request(rng: random.Random) -> bytes:
    """A well-formed request of a random model, signature, filter and tensors."""
    request = protocol.PredictRequest()
    request.model_spec.name = rng.choice(["captioner"] * 8 + ["", "x"])
    if rng.random() < 0.1:
        request.model_spec.version.value = rng.choice([-1, 0, 1, 3, 2**62])
    if rng.random() < 0.1:
        request.model_spec.version_label = rng.choice(["", "stable", "x"])
    request.model_spec.signature_name = rng.choice(
        ["serving_default", "pixels", "every_beam", "", "__saved_model_init_op"]
    )
    outputs = ["captions", "scores", "valid", "reasons", "lengths", "token_ids", "attention", "x"]
    request.output_filter.extend(rng.choices(outputs, k=rng.choice([0, 0, 1, 2, 4])))
    for _ in range(rng.choice([0, 1, 1, 1, 1, 2])):
        _fill(request.inputs[rng.choice(["image_bytes", "image_bytes", "pixels"])], rng)
    return request.SerializeToString()


def _fill(tensor, rng: random.Random) -> None:
    """Gives a tensor a random dtype and shape, and values that need not fit them."""
    tensor.dtype = rng.choice([7, 7, 4, 1, rng.randrange(0, 130), 1000])
    for _ in range(rng.choice([0, 1, 1, 2, 3, 4, 4, 32, 33, 100, 255])):
        tensor.tensor_shape.dim.add(size=rng.choice([1, 1, 1, 2, 3, 0, -1, 2**31, 2**62]))
    if rng.random() < 0.1:
        tensor.tensor_shape.MergeFromString(b"\x18\1")  # `unknown_rank`, which clients never set
    tensor.string_val.extend(rng.randbytes(rng.randrange(9)) for _ in range(rng.randrange(3)))
    tensor.int_val.extend(rng.randrange(256) for _ in range(rng.randrange(3)))
    if rng.random() < 0.2:
        tensor.float_val.extend([1.0, float("nan")])
    if rng.random() < 0.3:
        tensor.tensor_content = rng.randbytes(rng.choice([1, 3, 12, 48]))


def _request(images: list[bytes], outputs: tuple[str, ...] = ()) -> bytes:
    return protocol.make_request(images, outputs, "captioner").SerializeToString()


def _watch(channel: grpc.Channel, found: Findings, stopped: threading.Event) -> None:
    """Asks for the server's health four times a second."""
    check: Callable = health_pb2_grpc.HealthStub(channel).Check
    while not stopped.wait(0.25) and not found.crashed:
        started = time.monotonic()
        try:
            check(health_pb2.HealthCheckRequest(), timeout=_HEALTH_SECONDS)
            found.health.append(time.monotonic() - started)
        except grpc.RpcError as error:
            found.sick.append(error.code().name)


def describe(found: Findings) -> str:
    """The findings as lines."""
    statuses = ", ".join(f"{name} {count}" for name, count in found.statuses.most_common())
    lines = [
        f"answers: {statuses}",
        *(f"{'pass' if passed else 'FAIL'}: {text}" for passed, text in found.criteria()),
        *(f"  changed: {line}" for line in sorted(set(found.changed))[:10]),
        "slowest answers:",
        *(f"  {seconds:6.2f} s  {name}" for seconds, name in sorted(found.slowest)[:-4:-1]),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
