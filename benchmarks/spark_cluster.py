"""A Spark cluster on this machine: a standalone master and workers, each pinned to a core."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark

from serving.process import free_ports

START_SECONDS = 120.0
"""Most seconds until the cluster is there."""


@contextlib.contextmanager
def cluster(workers: int, folder: Path) -> Iterator[str]:
    """Starts a master and workers of one core on the loopback interface; yields the master's URL.

    Args:
        workers: Number of workers.
        folder: Takes their logs and scratch files.

    Raises:
        OSError: The master did not start.
    """
    (port,) = free_ports(1)
    url = f"spark://127.0.0.1:{port}"
    common = ["--host", "127.0.0.1", "--webui-port", "0"]
    with contextlib.ExitStack() as started:
        _start(started, folder / "master", "master.Master", [*common, "--port", str(port)])
        _wait_for(port)
        cores = sorted(os.sched_getaffinity(0))
        for number in range(workers):
            own = ["--cores", "1", "--work-dir", str(folder / f"work{number}")]
            core = cores[number % len(cores)]
            arguments = [*common, *own, url]
            _start(started, folder / f"worker{number}", "worker.Worker", arguments, core)
        yield url


def _start(
    started: contextlib.ExitStack,
    log: Path,
    name: str,
    arguments: list[str],
    core: int | None = None,
) -> None:
    home = Path(pyspark.__file__).parent
    environment = {**os.environ, "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable}
    command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments]
    if core is not None:
        command = ["taskset", "-c", str(core), *command]
    file = started.enter_context(log.with_suffix(".log").open("w"))
    process = subprocess.Popen(command, env=environment, stdout=file, stderr=file)
    started.callback(process.wait)
    started.callback(process.terminate)


def _wait_for(port: int) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
            return
        time.sleep(0.5)
    raise OSError(f"Spark's master did not start within {START_SECONDS:.0f} s.")


def python_workers(root: int) -> list[int]:
    """Returns the ids of the Python workers among the descendants of a process."""
    parents, daemons = {}, set()  # Spark's Python daemons fork the workers
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        with contextlib.suppress(OSError, ValueError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            parents[int(entry.name)] = int(fields[1])
            if b"pyspark.daemon" in (entry / "cmdline").read_bytes():
                daemons.add(int(entry.name))
    return [p for p in daemons if parents[p] in daemons and _descends(p, root, parents)]


def _descends(process: int, root: int, parents: dict[int, int]) -> bool:
    while process in parents and process != root:
        process = parents[process]
    return process == root
