"""Processes that a test starts: their addresses, their children, their memory."""

import contextlib
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def page(exports: tuple[Path, ...]) -> Iterator[tuple[str, int]]:
    """Starts the page of exports on a free port: its address and process id."""
    command = [sys.executable, "-m", "serving.web", "--no-browser", "--port", "0", "--export"]
    command += map(str, exports)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield re.search(r"http://\S+", process.stdout.readline())[0], process.pid
        finally:
            process.terminate()


def children_of(process: int) -> list[int]:
    """The children of a process."""
    found = Path(f"/proc/{process}/task").glob("*/children")  # by the thread that started them
    return [int(child) for children in found for child in children.read_text().split()]


def resident_megabytes(process: int | str) -> float:
    """Resident size of a process, 10^6 bytes."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024 / 1e6


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


def free_ports(count: int) -> list[int]:
    """Returns different ports of the loopback interface that nobody listens on now."""
    with contextlib.ExitStack() as held:
        probes = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [probe.getsockname()[1] for probe in probes]
