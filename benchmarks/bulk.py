"""Bulk captioning beside the export itself: `python -m benchmarks.bulk EXPORT --images DIR`.

Captions photographs (repeated under other names) with the export called directly, then with
`serving.bulk` on Spark in local mode, and compares images per second.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from sat_tf.commands import exit_status
from sat_tf.errors import invalid_value


@dataclass(frozen=True)
class Arguments:
    """Caption photographs with an export, directly and on Spark."""

    export: tyro.conf.Positional[Path]
    """Folder of the version folders."""
    images: Path
    """Folder of JPEG files."""
    photos: int = 2000
    """Photographs to caption; the files are repeated under other names."""
    workers: int = 2
    """Threads of the direct call, and worker processes of Spark."""
    batch_size: int = 32
    """Images per call."""
    chunk_size: int = 1000
    """Images per commit."""


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns 0 if every photograph has one row, else 1."""
    arguments = tyro.cli(Arguments, args=argv, prog="python -m benchmarks.bulk")
    return exit_status(lambda: run(arguments))


def run(arguments: Arguments) -> int:
    """Measures and prints; returns the exit status."""
    files = sorted(path for path in arguments.images.iterdir() if path.suffix == ".jpg")
    if not files:
        raise invalid_value("--images", "a folder of JPEG files", str(arguments.images))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        photos = repeat(files, arguments.photos, folder / "photos")
        direct = direct_rate(arguments, photos)
        print(f"directly: {direct:.2f} images/s with {arguments.workers} threads", flush=True)
        command = [sys.executable, "-m", "serving.bulk", "--export", str(arguments.export)]
        command += ["--input", str(folder / "photos"), "--output", str(folder / "out")]
        command += ["--batch-size", str(arguments.batch_size)]
        command += ["--chunk-size", str(arguments.chunk_size)]
        command += ["--master", f"local[{arguments.workers}]"]
        started = time.monotonic()
        subprocess.run(command, check=True)
        rate = len(photos) / (time.monotonic() - started)
        rows = [
            json.loads(line)["path"]
            for part in (folder / "out").rglob("output=*/part-*.json")
            for line in part.read_text("utf-8").splitlines()
        ]
    print(f"on Spark: {rate:.2f} images/s, {rate / direct:.0%}, from its start to its end")
    missing, repeated = len(photos) - len(set(rows)), len(rows) - len(set(rows))
    print(f"{len(photos)} photographs: {missing} missing, {repeated} repeated")
    return int(missing > 0 or repeated > 0)


def repeat(files: Sequence[Path], count: int, folder: Path) -> list[Path]:
    """Links files under other names until there are `count` of them."""
    folder.mkdir()
    links = [folder / f"{n:06d}.jpg" for n in range(count)]
    for n, link in enumerate(links):
        link.symlink_to(files[n % len(files)].resolve())
    return links


def direct_rate(arguments: Arguments, photos: Sequence[Path]) -> float:
    """Returns images per second of the export called without Spark, after the first batch."""
    from serving.bulk.__main__ import find_version
    from serving.bulk.worker import load, prepare

    size = arguments.batch_size
    call = load(str(find_version(arguments.export)), arguments.workers, False)
    started = None
    for first in range(0, len(photos), size):
        call([prepare(path.read_bytes()) for path in photos[first : first + size]])
        started = started or time.perf_counter()
    return max(len(photos) - size, 0) / (time.perf_counter() - started)


if __name__ == "__main__":
    sys.exit(main())
