"""Attacks on the servers: `python -m benchmarks.serving_fuzz --seconds 600`.

Starts a local server and a page in front of it, on the loopback interface alone, and sends both,
from fixed seeds: spoilt images, requests of odd tensors and filters, spoilt messages, spoilt and
unfinished HTTP. Good images travel among them, and health is asked for all the while. Ends with 1
if a process died or did not stop, memory grew, an answer changed, was lost or was HTTP's 500, or a
log grew large.
"""

from __future__ import annotations

import contextlib
import io
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import tyro
from PIL import Image

from benchmarks.measure import photograph
from sat_tf.commands import exit_status
from serving.client import protocol

_TIMEOUT = 120.0  # seconds per call
_STOP_SECONDS = 60.0
_GROWTH_MB = 200  # of a server and its children, after a first round
_LOG_MB = 1
_HEALTHY = b"\x08\x01"
_FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF")
_PATHS = ("/", "/digits", "/api/page", "/api/caption", "/api/captions", "/assets/x", "/samples/..")
_OUTPUTS = ("captions", "scores", "valid", "reasons", "lengths", "attention", "x")
_TYPE = "multipart/form-data; boundary=q"


@dataclass(frozen=True)
class Arguments:
    """Attack a local server and a page with broken images and requests."""

    export_dir: tyro.conf.Positional[Path | None] = None
    """Folder of the version folders; by default flickr8k_soft is exported."""
    seconds: float = 60.0
    """Length of the attack."""
    clients: int = 4
    """Attackers at the same time."""
    seed: int = 0
    """Other attacks for another seed."""


@dataclass
class Findings:
    """Answers by their status, and what is wrong; threads only add."""

    statuses: Counter = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    slowest: float = 0.0

    def check(self, right: bool, wrong: str) -> None:
        """Notes what is wrong unless it is right."""
        if not right:
            self.wrong.append(wrong)


class Attack:
    """Requests to a local server and a page, by their ports."""

    def __init__(self, server: int, page: int, found: Findings) -> None:
        self._page, self._found = page, found
        self._channel = grpc.insecure_channel(f"127.0.0.1:{server}")
        self._predict = self._channel.unary_unary(protocol.PREDICT)  # bytes in, bytes out
        self._health = self._channel.unary_unary("/grpc.health.v1.Health/Check")
        self._good = photograph()
        self._images = [_encoded(self._good, kind) for kind in _FORMATS]
        self._alone = self._caption()

    def once(self, rng: random.Random) -> None:
        """Sends one attack, and now and then a good image."""
        kinds = [
            self._images_to_server,
            self._odd_request,
            self._spoilt_request,
            self._image_to_page,
        ]
        rng.choice([*kinds, self._spoilt_http])(rng)
        if rng.random() < 0.1:
            caption = self._caption()
            self._found.check(caption == self._alone, f"a good image: {caption!r}")

    def look(self) -> None:
        """Asks both servers whether they are there."""
        started = time.monotonic()
        healthy = self._health(b"", timeout=_TIMEOUT) == _HEALTHY
        self._found.check(healthy, "the server is not healthy")
        self._http(_request("GET", "/api/page"), "the page's facts", (200,))
        self._found.slowest = max(self._found.slowest, time.monotonic() - started)

    def _caption(self) -> str:
        answer = self._send("good", _predict_request([self._good]))
        if answer is None:
            return "no answer"
        outputs = protocol.PredictResponse.FromString(answer).outputs
        return protocol.to_array(outputs["captions"])[0, 0].decode()

    def _send(self, name: str, request: bytes) -> bytes | None:
        try:
            answer, status = self._predict(request, timeout=_TIMEOUT), "OK"
        except grpc.RpcError as error:
            answer, status = None, error.code().name
            told = status not in ("UNAVAILABLE", "CANCELLED", "DEADLINE_EXCEEDED", "UNKNOWN")
            told &= status != "INTERNAL" or "No request" in error.details()
            self._found.check(told, f"{name}: {status}: {error.details()}")
        self._found.statuses[status] += 1
        return answer

    def _images_to_server(self, rng: random.Random) -> None:
        images = [self._good, spoil(rng.choice(self._images), rng)]
        answer = self._send("an image", _predict_request(images))
        rows = len(protocol.PredictResponse.FromString(answer).outputs) if answer else 0
        self._found.check(rows > 0, "no answer beside a spoilt image")

    def _odd_request(self, rng: random.Random) -> None:
        self._send("an odd request", odd_request(rng))

    def _spoilt_request(self, rng: random.Random) -> None:
        self._send("a spoilt request", spoil(_predict_request([self._good]), rng))

    def _image_to_page(self, rng: random.Random) -> None:
        path = rng.choice(["/api/caption", "/api/captions"])
        body = _form(spoil(rng.choice(self._images), rng))
        self._http(_request("POST", path, body, _TYPE), "an upload", (200, 400, 413, 429))

    def _spoilt_http(self, rng: random.Random) -> None:
        method = rng.choice(["GET", "POST", "POST", "PUT"])
        body = _form(rng.choice(self._images)[: rng.randrange(2000)])
        request = _request(method, rng.choice(_PATHS), body, _TYPE)
        self._http(spoil(request, rng, first=300), "spoilt HTTP")

    def _http(self, request: bytes, name: str, expected: tuple[int, ...] = ()) -> None:
        """Sends bytes, and checks the status; one that cannot be read may end without."""
        answer = b""
        with (
            contextlib.suppress(ConnectionError),
            socket.create_connection(("127.0.0.1", self._page), timeout=_TIMEOUT) as connection,
        ):
            connection.sendall(request)
            if not expected:
                connection.shutdown(socket.SHUT_WR)
            answer = connection.recv(2**16)
        found = re.match(rb"HTTP/1\.1 (\d+)", answer)
        status = int(found[1]) if found else 0
        self._found.statuses[f"HTTP {status or 'none'}"] += 1
        self._found.check(status != 500, f"{name}: status 500")
        self._found.check(not expected or status in expected, f"{name}: status {status}")


def spoil(content: bytes, rng: random.Random, first: int | None = None) -> bytes:
    """Changes some of the `first` bytes, cuts the end off or repeats a part."""
    changed, end = bytearray(content), min(first or len(content), len(content))
    for _ in range(rng.randrange(1, 8)):
        changed[rng.randrange(end)] = rng.randrange(256)
    if rng.random() < 0.3:
        del changed[rng.randrange(len(changed)) :]
    if rng.random() < 0.2:
        start = rng.randrange(len(changed) + 1)
        changed[start:start] = changed[start : start + rng.randrange(1000)] * rng.randrange(1, 20)
    return bytes(changed)


def odd_request(rng: random.Random) -> bytes:
    """Makes a well-formed request of a random model, signature, filter and tensors."""
    request = protocol.PredictRequest()
    request.model_spec.name = rng.choice(["captioner"] * 8 + ["", "x"])
    if rng.random() < 0.1:
        request.model_spec.version.value = rng.choice([-1, 0, 1, 2**62])
    request.model_spec.signature_name = rng.choice(["serving_default", "every_beam", "", "x"])
    request.output_filter.extend(rng.choices(_OUTPUTS, k=rng.choice([0, 1, 2])))
    for _ in range(rng.choice([0, 1, 1, 1, 2])):
        tensor = request.inputs[rng.choice(["image_bytes", "image_bytes", "pixels"])]
        tensor.dtype = rng.choice([7, 7, 4, 1, rng.randrange(130)])
        for _ in range(rng.choice([0, 1, 1, 2, 3])):
            tensor.tensor_shape.dim.add(size=rng.choice([1, 1, 2, 3, 0, -1, 2**31]))
        tensor.string_val.extend(rng.randbytes(rng.randrange(9)) for _ in range(rng.randrange(3)))
        if rng.random() < 0.3:
            tensor.tensor_content = rng.randbytes(rng.choice([1, 3, 12, 48]))
    return request.SerializeToString()


def _predict_request(images: list[bytes]) -> bytes:
    return protocol.make_request(images, ("captions",), "captioner").SerializeToString()


def _encoded(content: bytes, kind: str) -> bytes:
    stream = io.BytesIO()
    Image.open(io.BytesIO(content)).save(stream, kind)
    return stream.getvalue()


def _form(image: bytes) -> bytes:
    start = b'--q\r\nContent-Disposition: form-data; name="image"; filename="x"\r\n\r\n'
    return start + image + b"\r\n--q--\r\n"


def _request(method: str, path: str, body: bytes = b"", kind: str = "text/plain") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind}\r\n"
    return f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body


@contextlib.contextmanager
def started(found: Findings, module: str, *flags: str) -> Iterator[tuple[int, int]]:
    """Starts a server inside the `with`; yields its process and port, and checks how it stops."""
    with (
        tempfile.TemporaryFile() as log,
        subprocess.Popen(
            [sys.executable, "-m", module, *flags, "--port", "0"],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):
        try:
            yield process.pid, int(re.search(r":(\d+)/?(\s|$)", process.stdout.readline())[1])
            found.check(process.poll() is None, f"{module} ended")
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_SECONDS)
            found.check(process.poll() is not None, f"{module} did not stop")
            size = log.seek(0, io.SEEK_END) / 1e6
            found.check(size < _LOG_MB, f"{module} logged {size:.1f} MB")
        finally:
            process.kill()


def memory_mb(process: int) -> float:
    """Returns the resident size of a process and its descendants, 10^6 bytes; 0 without `/proc`."""
    total = 0.0
    with contextlib.suppress(OSError):  # it has ended
        status = Path(f"/proc/{process}/status").read_text()
        total = int(status.partition("VmRSS:")[2].split()[0]) * 1024 / 1e6
        for task in Path(f"/proc/{process}/task").iterdir():
            total += sum(map(memory_mb, map(int, (task / "children").read_text().split())))
    return total


def fuzz(export_dir: Path, arguments: Arguments) -> Findings:
    """Attacks for the time that is given; returns what was found."""
    found, over = Findings(), threading.Event()

    def repeat(step: Callable[[], None], until: Callable[[], bool]) -> None:
        while not until():
            try:
                step()
            except Exception as error:
                found.check(False, f"{type(error).__name__}: {error}")
                time.sleep(1.0)

    with contextlib.ExitStack() as stack:
        process, port = stack.enter_context(started(found, "serving.local_server", str(export_dir)))
        flags = ("--server", f"127.0.0.1:{port}", "--no-browser")
        page, page_port = stack.enter_context(started(found, "serving.web", *flags))
        attack = Attack(port, page_port, found)
        for seed in range(20):  # until memory has settled
            attack.once(random.Random(seed))
        before = [memory_mb(each) for each in (process, page)]
        end = time.monotonic() + arguments.seconds
        with ThreadPoolExecutor(arguments.clients + 1) as pool:
            watched = pool.submit(repeat, attack.look, lambda: over.wait(0.5))
            randoms = [random.Random(f"{arguments.seed} {n}") for n in range(arguments.clients)]
            attacks = [
                pool.submit(repeat, lambda r=r: attack.once(r), lambda: time.monotonic() > end)
                for r in randoms
            ]
            for each in attacks:
                each.result()
            over.set()
            watched.result()
        for name, was, each in zip(("server", "page"), before, (process, page), strict=True):
            now = memory_mb(each)
            print(f"{name}: {was:.0f} MB before, {now:.0f} MB after")
            found.check(now - was < _GROWTH_MB, f"the {name} grew from {was:.0f} to {now:.0f} MB")
    return found


def run(arguments: Arguments) -> int:
    """Attacks, prints the findings; returns 1 if something is wrong, else 0."""
    with tempfile.TemporaryDirectory() as folder:
        export = arguments.export_dir or Path(folder)
        if arguments.export_dir is None:
            command = [sys.executable, "-m", "serving.export", "--run-dir", "flickr8k_soft"]
            subprocess.run([*command, "--out", folder], check=True)
        found = fuzz(export, arguments)
    print(", ".join(f"{status} {count}" for status, count in found.statuses.most_common()))
    print(f"slowest look at both: {found.slowest:.1f} s")
    for wrong, count in Counter(found.wrong).most_common(20):
        print(f"WRONG, {count} times: {wrong}")
    return int(bool(found.wrong))


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    arguments = tyro.cli(Arguments, args=argv, prog="python -m benchmarks.serving_fuzz")
    return exit_status(lambda: run(arguments))


if __name__ == "__main__":
    sys.exit(main())
