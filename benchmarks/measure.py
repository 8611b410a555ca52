"""Shared by benchmarks: the command line, calls that take turns, the machine, tables."""

from __future__ import annotations

import os
import platform
import re
import statistics
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from sat_tf.util.commands import exit_status, text_table

if TYPE_CHECKING:
    pass

_CPU = Path("/proc/cpuinfo")


def command(run: Callable[..., int | None], argv: list[str] | None = None) -> int:
    """Runs a function as a command: its parameters are the flags, its docstring the help.

    Returns:
        The exit status.
    """
    prog = f"python -m benchmarks.{Path(run.__code__.co_filename).stem}"
    return exit_status(lambda: tyro.cli(run, args=argv, prog=prog))


def medians(
    calls: Mapping[Hashable, Callable[[], object]], repeats: int, warm_up: int = 1
) -> dict[Any, float]:
    """Times calls that take turns (A, B, A, B, ...), so that all see the same load of the machine.

    Args:
        calls: Calls by name.
        repeats: Timed turns.
        warm_up: Untimed turns before them: tracing, compiling, filling caches.

    Returns:
        The median seconds of each call.
    """
    import tensorflow as tf

    gpu = bool(tf.config.list_physical_devices("GPU"))
    took: dict[Any, list[float]] = {name: [] for name in calls}
    for turn in range(-warm_up, repeats):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            if gpu:  # functions on a CPU return when they are done
                tf.test.experimental.sync_devices()
            if turn >= 0:
                took[name].append(time.perf_counter() - start)
    return {name: statistics.median(seconds) for name, seconds in took.items()}


def machine() -> str:
    """Describes the machine: processor, cores, versions and load."""
    import keras
    import tensorflow as tf

    found = re.search(r"model name\s*: (.*)", _CPU.read_text()) if _CPU.exists() else None
    return (
        f"{found[1] if found else platform.machine()}, {os.cpu_count()} cores, TensorFlow "
        f"{tf.__version__}, Keras {keras.__version__}, load average {os.getloadavg()[0]:.1f}"
    )


def format_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Formats mappings as aligned text: a line of their keys, then one line per row.

    Numbers have four digits; text is aligned left, and a dash stands for a missing value.
    """
    keys = list(dict.fromkeys(key for row in rows for key in row))

    def cell(value: Any) -> str:
        if value is None:
            return "-"
        return f"{value:.4g}" if isinstance(value, float) else str(value)

    cells = [[cell(row.get(key)) for key in keys] for row in rows]
    left = [n for n, key in enumerate(keys) if isinstance(rows[0].get(key), str)]
    return text_table([keys, *cells], left)
