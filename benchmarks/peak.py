"""Peak memory of this process. Loads no TensorFlow, which would add to it."""

from __future__ import annotations

import re
import resource
import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")


def peak_megabytes() -> float:
    """Largest resident size this process has had, in 10^6 bytes."""
    if _STATUS.exists():
        # `getrusage` counts the process that this one was forked from too.
        found = re.search(r"VmHWM:\s+(\d+) kB", _STATUS.read_text("ascii"))
        if found:
            return int(found[1]) * 1024 / 1e6
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024) / 1e6
