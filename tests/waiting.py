"""Waiting for what happens on another thread or in another process."""

import time
from collections.abc import Callable
from typing import Any


def eventually(happened: Callable[[], Any], seconds: float = 120.0) -> Any:
    """Asks until the answer is true, and returns it; fails if that takes too long."""
    end = time.monotonic() + seconds
    while not (answer := happened()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)
    return answer
