"""Admission of calls: so many run at a time, so many wait, the rest are refused at once.

A server that stops refuses new calls here, while its port is still open: gRPC's own stop may cancel
a call that comes at that moment, or leave it without an answer until its deadline.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

import grpc

from serving.local_server.statuses import StatusError


class Admission:
    """Bounds the calls at work and those waiting for their turn."""

    def __init__(self, running: int = 16, waiting: int = 128) -> None:
        self.places = running + waiting
        self._places = threading.BoundedSemaphore(self.places)
        self._running = threading.BoundedSemaphore(running)
        self._closed = threading.Event()

    @contextlib.contextmanager
    def turn(self, seconds: float | None) -> Iterator[float | None]:
        """Waits for a turn, and holds it inside the `with`.

        Yields:
            The time that is left then.

        Raises:
            StatusError: The admission is closed, no place is left, or the time ran out.
        """
        self._take_place()
        started = time.monotonic()
        try:
            if not self._running.acquire(timeout=seconds):
                raise StatusError(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline exceeded")
            try:
                waited = time.monotonic() - started
                yield None if seconds is None else max(seconds - waited, 0.0)
            finally:
                self._running.release()
        finally:
            self._places.release()

    def close(self, seconds: float) -> None:
        """Refuses new calls, and waits at most so long for those that were admitted to end."""
        self._closed.set()
        end = time.monotonic() + seconds
        taken = 0
        while taken < self.places and self._places.acquire(timeout=max(end - time.monotonic(), 0)):
            taken += 1
        if taken:
            self._places.release(taken)

    def _take_place(self) -> None:
        taken = not self._closed.is_set() and self._places.acquire(blocking=False)
        if self._closed.is_set():
            if taken:
                self._places.release()
            raise StatusError(grpc.StatusCode.UNAVAILABLE, "The server is stopping")
        if not taken:
            raise StatusError(
                grpc.StatusCode.RESOURCE_EXHAUSTED, f"All {self.places} places are taken"
            )
