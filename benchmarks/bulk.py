"""Bulk captioning on Spark: `python -m benchmarks.bulk --images DIR [--export DIR]`.

Captions photographs (repeated under other names) with `serving.bulk` on Spark in local mode: over
graphs and, if one is given, with a SavedModel. Compares images per second, and per second of
processor time of all its processes, start included.
"""

from __future__ import annotations

import json
import resource
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
    """Caption photographs on Spark."""

    images: Path
    """Folder of JPEG files."""
    run_dir: Path = Path("flickr8k_soft")
    """Captioner whose graphs caption."""
    export: Path | None = None
    """Folder of the version folders of a SavedModel."""
    photos: int = 2000
    """Photographs to caption; the files are repeated under other names."""
    workers: int = 2
    """Worker processes of Spark."""
    batch_size: int = 32
    """Images per call of the SavedModel."""
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
    ways = {"graphs": ["--run-dir", str(arguments.run_dir)]}
    if arguments.export is not None:
        ways["SavedModel"] = ["--export", str(arguments.export)]
    with tempfile.TemporaryDirectory() as name:
        photos = repeat(files, arguments.photos, Path(name) / "photos")
        return max(measure(arguments, way, flags, photos) for way, flags in ways.items())


def measure(arguments: Arguments, way: str, flags: Sequence[str], photos: Sequence[Path]) -> int:
    """Captions photographs one way, and prints; returns 1 if one is missing or repeated."""
    folder = photos[0].parent
    out = folder.parent / way
    command = [sys.executable, "-m", "serving.bulk", *flags]
    command += ["--input", str(folder), "--output", str(out)]
    command += ["--batch-size", str(arguments.batch_size)]
    command += ["--chunk-size", str(arguments.chunk_size)]
    command += ["--master", f"local[{arguments.workers}]"]
    started, used = time.monotonic(), processor_seconds()
    subprocess.run(command, check=True)
    seconds, used = time.monotonic() - started, processor_seconds() - used
    rows = [
        json.loads(line)["path"]
        for part in out.rglob("output=*/part-*.json")
        for line in part.read_text("utf-8").splitlines()
    ]
    missing, repeated = len(photos) - len(set(rows)), len(rows) - len(set(rows))
    print(
        f"{way}: {len(photos) / seconds:.2f} images/s, {len(photos) / used:.2f} per second of "
        f"processor time; of {len(photos)} photographs {missing} missing, {repeated} repeated",
        flush=True,
    )
    return int(missing > 0 or repeated > 0)


def processor_seconds() -> float:
    """Returns the processor time of all child processes that have ended."""
    found = resource.getrusage(resource.RUSAGE_CHILDREN)
    return found.ru_utime + found.ru_stime


def repeat(files: Sequence[Path], count: int, folder: Path) -> list[Path]:
    """Links files under other names until there are `count` of them."""
    folder.mkdir()
    links = [folder / f"{n:06d}.jpg" for n in range(count)]
    for n, link in enumerate(links):
        link.symlink_to(files[n % len(files)].resolve())
    return links


if __name__ == "__main__":
    sys.exit(main())
