"""Memory of a process. Imports no TensorFlow, which would add to it."""

from __future__ import annotations

import resource
import sys
from pathlib import Path


def peak_megabytes() -> float:
    """Returns the largest resident size of this process so far, 10^6 bytes."""
    # `getrusage` includes the process that this one was forked from.
    peak = peak_megabytes_of("self")
    if peak is None:
        kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        peak = kilobytes * (1 if sys.platform == "darwin" else 1024) / 1e6
    return peak


def peak_megabytes_of(process: int | str) -> float | None:
    """Returns that of another process, by its id; None if it is gone or there is no `/proc`."""
    return _megabytes(process, "VmHWM")


def resident_megabytes(process: int | str) -> float:
    """Resident size of a process, 10^6 bytes; NaN if it is gone or there is no `/proc`."""
    size = _megabytes(process, "VmRSS")
    return float("nan") if size is None else size


def _megabytes(process: int | str, field: str) -> float | None:
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return None
    found = status.partition(f"{field}:")[2].split()
    return int(found[0]) * 1024 / 1e6 if found else None
