"""Workers that fill one feature store: `python -m benchmarks.extraction --images DIR`.

Fills a store with one process, and with several that share it, each with one thread pinned to a
core; compares images per second and the files of the stores. Before, each process runs the encoder
alone on the same batch: what several gain there is the most that this machine can give.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import tyro

from sat_tf.commands import exit_status
from sat_tf.errors import invalid_value


@dataclass(frozen=True)
class Arguments:
    """Fill a feature store with one process, and with several."""

    images: Path
    """Folder of JPEG files."""
    count: int = 1024
    """Images to annotate."""
    shard_size: int = 32
    """Images per file; of a store in use, 256."""
    workers: int = 2
    """Processes that share the work."""
    backbone: str = "mobilenet_v2"
    """Encoder, with random weights."""


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns 0 if the stores are equal, else 1."""
    arguments = tyro.cli(Arguments, args=argv, prog="python -m benchmarks.extraction")
    return exit_status(lambda: run(arguments))


def run(arguments: Arguments) -> int:
    """Measures and prints; returns the exit status."""
    cores = len(os.sched_getaffinity(0))
    if not 1 <= arguments.workers <= cores:
        raise invalid_value("--workers", f"1 to {cores}, a core each", arguments.workers)
    rates, contents = [], []
    with tempfile.TemporaryDirectory() as name:
        for number, workers in enumerate((1, arguments.workers)):
            cache = Path(name) / str(number)
            rates.append(fill(arguments, workers, cache))
            contents.append(digests(cache))
            encoder, store = rates[-1]
            said = f"{workers} processes: {store:.1f} images/s, encoder alone {encoder:.1f}"
            print(said, flush=True)
    encoder, store = (many / one for one, many in zip(*rates, strict=True))
    print(f"{store:.2f} times the rate of one, encoder alone {encoder:.2f}")
    same = contents[0] == contents[1]
    print(f"fingerprint and content {'equal' if same else 'DIFFER'}")
    return 0 if same else 1


def fill(arguments: Arguments, workers: int, cache: Path) -> tuple[float, float]:
    """Fills a store by so many processes; returns images per second of the encoder, and in all."""
    processes = [
        _start(arguments, core, cache) for core in sorted(os.sched_getaffinity(0))[:workers]
    ]
    _read_lines(processes)  # they are ready
    encoding, filling = (_seconds_until_said(processes) for _ in range(2))
    statuses = [process.wait() for process in processes]
    if any(statuses):
        raise OSError(f"the processes ended with {statuses}")
    return workers * arguments.count / encoding, arguments.count / filling


def _seconds_until_said(processes: list[subprocess.Popen]) -> float:
    """Lets all processes continue at once; returns seconds until each has said a line."""
    started = time.monotonic()
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    _read_lines(processes)
    return time.monotonic() - started


def _read_lines(processes: list[subprocess.Popen]) -> None:
    if not all([process.stdout.readline() for process in processes]):
        raise OSError("a process ended early; it says why above")


def _start(arguments: Arguments, core: int, cache: Path) -> subprocess.Popen:
    values = (arguments.images, arguments.count, arguments.shard_size, arguments.backbone, cache)
    command = ["taskset", "-c", str(core), sys.executable, "-m", "benchmarks.extraction_worker"]
    command += map(str, values)
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def digests(cache: Path) -> dict[str, str]:
    """Returns the digest of every file by its place, the store's fingerprint included."""
    files = sorted(path for path in cache.rglob("*") if path.is_file())
    return {
        str(path.relative_to(cache)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


if __name__ == "__main__":
    sys.exit(main())
