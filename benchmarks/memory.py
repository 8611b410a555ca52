"""Memory of a process, from `/proc`. Imports no TensorFlow, which would add to it."""

from __future__ import annotations

from pathlib import Path


def resident_megabytes(process: int | str) -> float:
    """Returns the resident size of a process, 10^6 bytes; NaN if it is gone or without `/proc`."""
    return _megabytes(process, "VmRSS")


def peak_megabytes(process: int | str) -> float:
    """Returns the largest resident size of a process so far, likewise."""
    return _megabytes(process, "VmHWM")


def _megabytes(process: int | str, field: str) -> float:
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return float("nan")
    found = status.partition(f"{field}:")[2].split()
    return int(found[0]) * 1024 / 1e6 if found else float("nan")
