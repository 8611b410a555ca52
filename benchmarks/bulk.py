"""Bulk captioning that is killed: `python -m benchmarks.bulk EXPORT --images DIR --photos N`.

Captions photographs (repeated under other names) with the export called directly, then on a Spark
cluster of this machine whose workers and driver are killed, and compares: rows per photograph,
captions, scores, images per second, memory of the Python workers.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import tyro

from benchmarks.peak import resident_megabytes
from benchmarks.spark_cluster import cluster, python_workers
from sat_tf.commands import exit_status
from sat_tf.errors import invalid_value

_SECONDS = 0.25  # between two looks at the output
_SCORE_DIFFERENCE = 1e-4  # largest between two scores of a photograph


@dataclass(frozen=True)
class Arguments:
    """Caption photographs on a cluster of this machine that is killed, and count."""

    export: tyro.conf.Positional[Path]
    """Folder of the version folders."""
    images: Path
    """Folder of JPEG files."""
    photos: int = 10_000
    """Photographs to caption; the files are repeated under other names."""
    kills: int = 2
    """Kills: of a Python worker and of the driver in turn."""
    workers: int = 2
    """Worker processes, a core each."""
    batch_size: int = 32
    """Images per call."""
    chunk_size: int = 1000
    """Images per commit; memory is looked at between commits."""
    direct: int = 2000
    """Photographs that the export is called for directly, at most."""


@dataclass
class Watch:
    """Observations of a job that runs.

    Attributes:
        killed: What was killed after how many seconds.
        memory: `(chunks committed, MB)` of the largest Python worker over time.
    """

    killed: list[str] = field(default_factory=list)
    memory: list[tuple[int, float]] = field(default_factory=list)


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns 0 if every photograph has one row, with the direct answer."""
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
        wanted, direct_rate = call_directly(arguments, photos[: arguments.direct])
        watch = Watch()
        with cluster(arguments.workers, folder) as master:
            started = time.monotonic()
            submit(arguments, master, folder, watch)
            seconds = time.monotonic() - started
        rows = read_rows(folder / "out")
        steady = steady_rate(folder / "out")
    print(f"directly: {direct_rate:.2f} images/s with {arguments.workers} threads")
    rate = len(photos) / seconds
    print(f"on Spark: {rate:.2f} images/s, {rate / direct_rate:.0%}, from its start to its end")
    if steady:
        print(f"          {steady:.2f} images/s, {steady / direct_rate:.0%}, between commits")
    for line in watch.killed:
        print(f"killed {line}")
    peaks = thinned(watch.memory)
    for chunks, megabytes in peaks[1:2] + peaks[2:][-1:]:
        images = min(chunks * arguments.chunk_size, len(photos))
        print(f"memory of the largest Python worker after {images} images: {megabytes:.0f} MB")
    return compare(rows, photos, wanted)


def repeat(files: Sequence[Path], count: int, folder: Path) -> list[Path]:
    """Links files under other names until there are `count` of them."""
    folder.mkdir()
    links = [folder / f"{n:06d}.jpg" for n in range(count)]
    for n, link in enumerate(links):
        link.symlink_to(files[n % len(files)].resolve())
    return links


def call_directly(
    arguments: Arguments, photos: Sequence[Path]
) -> tuple[dict[str, tuple[str, float]], float]:
    """Captions photographs without Spark, in a process pinned to as many cores as the workers.

    Returns:
        `(caption, score)` by the photograph's path, and images per second after the first batch.
    """
    cores = ",".join(map(str, sorted(os.sched_getaffinity(0))[: arguments.workers]))
    command = ["taskset", "-c", cores, sys.executable, "-m", "benchmarks.bulk_direct"]
    command += map(str, (arguments.export, arguments.batch_size, arguments.workers))
    lines = "".join(f"{photo}\n" for photo in photos)
    done = subprocess.run(command, input=lines, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise OSError("the export could not be called directly: it says why above")
    *answers, rate = map(json.loads, done.stdout.splitlines())
    return {path: (caption, score) for path, caption, score in answers}, rate


def submit(arguments: Arguments, master: str, folder: Path, watch: Watch) -> None:
    """Runs the job, killing a Python worker and the driver in turn; starts it again if need be.

    Raises:
        OSError: The job failed although nothing was killed.
    """
    command = [sys.executable, "-m", "serving.bulk", "--export", str(arguments.export)]
    command += ["--input", str(folder / "photos"), "--output", str(folder / "out")]
    command += ["--batch-size", str(arguments.batch_size), "--master", master]
    command += ["--chunk-size", str(arguments.chunk_size)]
    # Evenly over the job, by chunks, and never before the first is committed.
    chunks = -(-arguments.photos // arguments.chunk_size)
    moments = [max(1, chunks * n // (arguments.kills + 1)) for n in range(1, arguments.kills + 1)]
    started = time.monotonic()
    while True:
        driver = subprocess.Popen(command)
        ended = threading.Event()
        watcher = threading.Thread(
            target=_watch, args=(driver, folder / "out", moments, watch, ended, started)
        )
        watcher.start()
        status = driver.wait()
        ended.set()
        watcher.join()
        if status == 0:
            return
        if status != -signal.SIGKILL:
            raise OSError(f"the job ended with status {status}")


def _watch(
    driver: subprocess.Popen,
    out: Path,
    moments: list[int],
    watch: Watch,
    ended: threading.Event,
    started: float,
) -> None:
    while not ended.wait(_SECONDS):
        done = len(list(out.glob("chunk=*/_SUCCESS")))
        workers = python_workers(os.getpid())
        if workers:
            sizes = np.nan_to_num([resident_megabytes(worker) for worker in workers])
            watch.memory.append((done, float(sizes.max())))
        if not (moments and done >= moments[0] and workers):
            continue
        moments.pop(0)
        number, kill_driver = len(watch.killed) + 1, len(watch.killed) % 2
        victim = driver.pid if kill_driver else workers[0]
        os.kill(victim, signal.SIGKILL)
        what = "the driver" if kill_driver else "a Python worker"
        watch.killed.append(f"{what} after {time.monotonic() - started:.0f} s ({number})")
        if kill_driver:
            return


def read_rows(out: Path) -> list[dict]:
    """Reads all rows of an output, as anybody would."""
    parts = sorted(out.rglob("output=*/part-*.json"))
    return [json.loads(line) for part in parts for line in part.read_text("utf-8").splitlines()]


def steady_rate(out: Path) -> float | None:
    """Returns images per second between the first commit and the last; None with fewer than 3."""
    commits = sorted(path.stat().st_mtime for path in out.glob("chunk=*/_SUCCESS"))
    if len(commits) < 3:
        return None
    rows = [len(read_rows(chunk)) for chunk in sorted(out.glob("chunk=*"))]
    return sum(rows[1:]) / (commits[-1] - commits[0])


def thinned(memory: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """Keeps the largest memory seen at each number of commits."""
    peaks: dict[int, float] = {}
    for done, megabytes in memory:
        peaks[done] = max(megabytes, peaks.get(done, 0.0))
    return sorted(peaks.items())


def compare(
    rows: Sequence[dict], photos: Sequence[Path], wanted: dict[str, tuple[str, float]]
) -> int:
    """Prints whether each photograph has one row with the direct answer; returns 1 if not."""
    counts: dict[str, int] = {}
    for row in rows:
        counts[row["path"]] = counts.get(row["path"], 0) + 1
    missing = [photo for photo in map(str, photos) if photo not in counts]
    repeated = [path for path, count in counts.items() if count > 1]
    found = {row["path"]: row for row in rows if "caption" in row}
    pairs = [(found[path], answer) for path, answer in wanted.items() if path in found]
    texts = sum(row["caption"] != caption for row, (caption, _) in pairs)
    apart = [abs(row["score"] - score) for row, (_, score) in pairs]
    print(
        f"{len(photos)} photographs: {len(missing)} missing, {len(repeated)} repeated, "
        f"{len(rows) - len(found)} unreadable"
    )
    print(
        f"{len(pairs)} compared with direct answers: {texts} other captions, scores at most "
        f"{np.max(apart, initial=0.0):.1g} apart"
    )
    return int(bool(missing or repeated or texts or max(apart, default=0.0) > _SCORE_DIFFERENCE))


if __name__ == "__main__":
    sys.exit(main())
