"""Bulk captioning on Spark: `python -m benchmarks.bulk --images DIR`.

Captions photographs (repeated under other names) with `serving.bulk` on Spark in local mode, and
tells the processor time of all its processes per photograph, start included.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measure import command
from sat_tf.inference.batch import image_files


def run(
    images: Path,
    run_dir: Path = Path("flickr8k_soft"),
    photos: int = 2000,
    workers: int = 2,
) -> int:
    """Captions photographs on Spark; ends with 1 unless every photograph has one row.

    Args:
        images: Folder of photographs.
        run_dir: Captioner whose graphs caption.
        photos: Photographs to caption; the files are repeated under other names.
        workers: Worker processes of Spark.
    """
    files = image_files([images])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "photos"
        folder.mkdir()
        for n in range(photos):
            (folder / f"{n:06d}.jpg").symlink_to(files[n % len(files)].resolve())
        flags = ["--run-dir", str(run_dir), "--input", str(folder), "--master", f"local[{workers}]"]
        return measure(flags, photos)


def measure(flags: Sequence[str], photos: int) -> int:
    """Captions photographs, and prints; returns 1 if one is missing or repeated."""
    from pyarrow import parquet

    used = processor_seconds()
    with tempfile.TemporaryDirectory() as out:
        called = [sys.executable, "-m", "serving.bulk", *flags, "--output", f"{out}/captions"]
        subprocess.run(called, check=True)
        rows = parquet.read_table(f"{out}/captions", columns=["path"])["path"].to_pylist()
    each = 1000 * (processor_seconds() - used) / photos
    missing, repeated = photos - len(set(rows)), len(rows) - len(set(rows))
    print(
        f"{each:.0f} ms of processor time per photograph; of {photos} photographs "
        f"{missing} missing, {repeated} repeated",
        flush=True,
    )
    return int(missing > 0 or repeated > 0)


def processor_seconds() -> float:
    """Returns the processor time of all child processes that have ended."""
    found = resource.getrusage(resource.RUSAGE_CHILDREN)
    return found.ru_utime + found.ru_stime


if __name__ == "__main__":
    sys.exit(command(run))
