"""Stages of an evaluation: announced when they start, timed until they end."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator


@contextlib.contextmanager
def timed(seconds: dict[str, float], name: str, announcement: str = "") -> Iterator[None]:
    """Announces a stage of an evaluation, and enters its seconds by name when it ends."""
    if announcement:
        print(f"{announcement} ...", flush=True)
    start = time.monotonic()
    yield
    seconds[name] = time.monotonic() - start
