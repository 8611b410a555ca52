"""Load test of a served model: `python -m benchmarks.serving_load EXPORT_DIR`.

Starts the local server in its own process and lets concurrent clients request captions, for each
size of request: latencies, images per second, the server's peak memory and lost answers. By choice
beside callers of hostile files (`--attackers`) and with a limit on the latency (`--most-p99`).
Server and clients share the cores of this machine.
"""

from __future__ import annotations

import contextlib
import math
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import tyro
from PIL import Image

from benchmarks.image_corpus import encode, gif_of_blocks, noise
from benchmarks.peak import peak_megabytes_of
from sat_tf.commands import exit_status
from serving.client import CaptionClient, Connection, ServingError

_SIDES = (640, 480)  # pixels of the drawn photograph


@dataclass(frozen=True)
class Arguments:
    """Request captions from a local server by many clients at once."""

    export_dir: tyro.conf.Positional[Path]
    """Folder of the version folders."""
    image: Path | None = None
    """Image file; a drawn photograph of 640 x 480 pixels by default."""
    clients: int = 16
    """Number of concurrent clients."""
    seconds: float = 120.0
    """Duration for each size of request, seconds."""
    images: tuple[int, ...] = (1, 8, 32)
    """Images per request, one size after another."""
    attackers: int = 0
    """Further callers, each sending one GIF of tiny blocks after another."""
    most_p99: float = math.inf
    """Seconds that p99 has to stay under."""
    attention: bool = False
    """Request attention maps too."""
    timeout: float = 300.0
    """Most seconds per request; a server that is away is waited for until then."""


@dataclass
class Load:
    """Answers to the clients.

    Attributes:
        images: Images per request.
        seconds: Duration.
        latencies: Seconds of each answered request.
        lost: Reasons of requests without an answer or with a wrong one.
        hostile: Number of hostile files that were answered.
        server_mb: Largest resident size of the server so far, 10^6 bytes; None if unknown.
    """

    images: int
    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    hostile: int = 0
    server_mb: float | None = None

    def milliseconds(self, percent: int) -> float:
        """Returns a percentile of the latencies; NaN without any."""
        return 1000 * float(np.percentile(self.latencies or [np.nan], percent))


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    arguments = tyro.cli(
        Arguments,
        args=argv,
        prog="python -m benchmarks.serving_load",
        config=(tyro.conf.FlagCreatePairsOff,),
    )
    return exit_status(lambda: run(arguments))


def run(arguments: Arguments) -> int:
    """Starts a server, sends requests, prints; returns 1 if a criterion was missed, else 0."""
    image = arguments.image.read_bytes() if arguments.image else drawn_photograph()
    passed = True
    with local_server(arguments.export_dir) as (port, server):
        callers = f"{arguments.clients} clients, {arguments.attackers} attackers"
        print(f"{callers}, {arguments.seconds:g} s for each size of request")
        print("images   requests   p50 ms   p99 ms   images/s   lost   server MB")
        for size in arguments.images:
            load = measure(int(port), image, size, arguments)
            load.server_mb = peak_megabytes_of(server)
            print(describe(load), flush=True)
            for reason in sorted(set(load.lost)):
                print(f"  {reason}")
            for met, text in criteria(load, arguments.most_p99):
                print(f"  {'pass' if met else 'FAIL'}: {text}", flush=True)
                passed = passed and met
    return 0 if passed else 1


def criteria(load: Load, most_p99: float) -> list[tuple[bool, str]]:
    """Criteria of the load: whether each was met, and the figures."""
    found = [(not load.lost, f"nothing lost ({load.hostile:,} hostile files beside)")]
    if math.isfinite(most_p99):
        p99 = load.milliseconds(99) / 1000
        found.append((p99 < most_p99, f"p99 under {most_p99:g} s: {p99:.2f} s"))
    return found


@contextlib.contextmanager
def started(name: str, address: str, *command: str) -> Iterator[tuple[str, int]]:
    """Starts a server as a process of Python; yields its address and process id.

    Args:
        name: Of the server, for the error.
        address: Expression that finds its address in the first line it prints.
        *command: Arguments of Python.

    Raises:
        OSError: It did not start.
    """
    with subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True) as process:
        try:
            found = re.search(address, process.stdout.readline())
            if not found:
                raise OSError(f"the {name} did not start: it says why above")
            yield found[0], process.pid
        finally:
            process.terminate()


def local_server(export_dir: Path) -> contextlib.AbstractContextManager[tuple[str, int]]:
    """Starts a local server on a free port: its port and process id, see `started`."""
    command = ("-m", "serving.local_server", str(export_dir), "--port", "0")
    return started("server", r"(?<=:)\d+$", *command)


def measure(port: int, image: bytes, size: int, arguments: Arguments) -> Load:
    """Lets all clients send one request after another until the time is up."""
    load = Load(size)
    hostile = gif_of_blocks(noise(150, 150), (1, 2))
    started = time.monotonic()
    end = started + arguments.seconds

    def ask() -> None:
        connection = Connection(port=port, timeout=arguments.timeout)
        with CaptionClient(connection, batch_size=size) as client:
            while time.monotonic() < end:
                _ask_once(client, [image] * size, arguments.attention, load)

    def attack() -> int:
        answered = 0
        connection = Connection(port=port, timeout=arguments.timeout)
        with CaptionClient(connection) as client:
            while time.monotonic() < end:
                with contextlib.suppress(ServingError):
                    client.captions([hostile])
                    answered += 1
        return answered

    with ThreadPoolExecutor(arguments.clients + arguments.attackers) as pool:
        attackers = [pool.submit(attack) for _ in range(arguments.attackers)]
        for asked in [pool.submit(ask) for _ in range(arguments.clients)]:
            asked.result()
        load.hostile = sum(attacked.result() for attacked in attackers)
    load.seconds = time.monotonic() - started
    return load


def _ask_once(client: CaptionClient, images: list[bytes], attention: bool, load: Load) -> None:
    started = time.monotonic()
    try:
        captions = client.captions(images, attention)
    except ServingError as error:
        load.lost.append(str(error))
        return
    # Appending to a list is safe from many threads.
    load.latencies.append(time.monotonic() - started)
    if len(captions) != len(images) or not all(caption.valid for caption in captions):
        load.lost.append("an answer without a caption for each image")
    elif len({caption.text for caption in captions}) != 1:
        load.lost.append("captions that differ for the same image")


def describe(load: Load) -> str:
    """Formats a line of the table."""
    rate = load.images * len(load.latencies) / load.seconds
    return (
        f"{load.images:6d} {len(load.latencies):10d} {load.milliseconds(50):8.1f} "
        f"{load.milliseconds(99):8.1f} {rate:10.1f} {len(load.lost):6d} "
        f"{'-' if load.server_mb is None else format(load.server_mb, '.0f'):>11}"
    )


def drawn_photograph() -> bytes:
    """Draws a JPEG with smooth parts and grain, about as large as a photograph."""
    width, height = _SIDES
    across, down = np.meshgrid(np.linspace(0, 4, width), np.linspace(0, 3, height))
    smooth = np.stack([np.sin(across), np.sin(down), np.sin(across * down)], axis=-1)
    grain = np.random.default_rng(0).normal(0, 8, smooth.shape)
    pixels = np.clip(128 + 100 * smooth + grain, 0, 255).astype(np.uint8)
    return encode(Image.fromarray(pixels), "JPEG", quality=90)


if __name__ == "__main__":
    sys.exit(main())
