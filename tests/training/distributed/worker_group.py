"""Several processes of one training on this machine, each with its `TF_CONFIG`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.serving.processes import free_ports

ROOT = Path(__file__).resolve().parents[3]
NEVER = ("never", 1, 0)
"""The moment of a process that is left alone."""


@dataclass(frozen=True)
class Ended:
    """End of a process: its exit status and all its output."""

    status: int
    said: str


def start(
    out: Path, flags: Sequence[str], tf_config: str = "", moment: tuple = NEVER, wait: float = 300.0
) -> subprocess.Popen:
    """`worker_command.py` in a process of its own; see there."""
    driver = str(Path(__file__).with_name("worker_command.py"))
    environment = {**os.environ, "PATH": "", "JAVA_HOME": "", "PYTHONPATH": str(ROOT)}
    environment |= {"TF_CONFIG": tf_config, "MEETING_SECONDS": str(wait)}
    environment["CUDA_VISIBLE_DEVICES"] = "-1"
    return subprocess.Popen(
        [sys.executable, driver, str(out), *map(str, moment), *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    )


def ends(processes: Sequence[subprocess.Popen], seconds: float) -> list[Ended]:
    """Waits for their ends; no process is left over, however the wait ends.

    Raises:
        TimeoutExpired: One did not end in time.
    """
    try:
        said = [process.communicate(timeout=seconds)[0] for process in processes]
        return [Ended(p.returncode, text) for p, text in zip(processes, said, strict=True)]
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()


def tf_configs(count: int) -> list[str]:
    """The `TF_CONFIG` of each of several workers on this machine."""
    workers = [f"localhost:{port}" for port in free_ports(count)]
    return [
        json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}})
        for index in range(count)
    ]


def run_workers(
    folder: Path,
    *flags: Sequence[str],
    moments: Sequence[tuple] = (NEVER, NEVER),
    seconds: float = 600.0,
) -> list[Ended]:
    """Two workers, to their end.

    Args:
        folder: Takes a run of each, of which only the chief's comes to be, and `INDEX.npz`.
        flags: Of each worker, or of both.
        moments: Of each worker.
        seconds: How long they may take.
    """
    folder.mkdir(exist_ok=True)
    both = flags if len(flags) == 2 else flags * 2
    processes = []
    for index, (own, tf_config) in enumerate(zip(both, tf_configs(2), strict=True)):
        places = ("--run-dir", str(folder / f"run{index}"))
        places += ("--cache-dir", str(folder / f"cache{index}"), "--strategy", "multi_worker")
        out = folder / f"{index}.npz"
        processes.append(start(out, (*own, *places), tf_config, moments[index]))
    return ends(processes, seconds)
