"""Admission of calls: a few run at a time, more wait, and the rest are refused at once.

A server that stops refuses new calls here while it finishes those in flight, with its port still
open: gRPC's own stop may cancel such a call, or leave it without an answer until its deadline.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

import grpc

from serving.local_server.statuses import StatusError


class Admission:
    """Bounds the calls that run and those that wait for their turn.

    Args:
        running: Calls that run at a time.
        waiting: Calls that wait.
    """

    def __init__(self, running: int = 16, waiting: int = 128) -> None:
        self.places = running + waiting
        self._running = threading.BoundedSemaphore(running)
        self._changed = threading.Condition()
        self._admitted = 0
        self._closed = False

    @contextlib.contextmanager
    def turn(self, seconds: float | None) -> Iterator[float | None]:
        """Waits for a turn, and holds it inside the `with`.

        Yields:
            The time that is left then.

        Raises:
            StatusError: The admission is closed, no place is left, or the time ran out.
        """
        started = time.monotonic()
        with self.place():
            if not self._running.acquire(timeout=seconds):
                raise StatusError(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline exceeded")
            try:
                waited = time.monotonic() - started
                yield None if seconds is None else max(seconds - waited, 0.0)
            finally:
                self._running.release()

    @contextlib.contextmanager
    def place(self) -> Iterator[None]:
        """Holds a place inside the `with`, for a call that has its turn elsewhere, as in a batch.

        Raises:
            StatusError: The admission is closed, or no place is left.
        """
        self._enter()
        try:
            yield
        finally:
            self._leave()

    def close(self, seconds: float) -> None:
        """Refuses new calls, and waits up to `seconds` for those already admitted to end."""
        with self._changed:
            self._closed = True
            self._changed.wait_for(lambda: not self._admitted, seconds)

    def _enter(self) -> None:
        with self._changed:
            if self._closed:
                raise StatusError(grpc.StatusCode.UNAVAILABLE, "The server is stopping")
            if self._admitted == self.places:
                message = f"All {self.places} places are taken"
                raise StatusError(grpc.StatusCode.RESOURCE_EXHAUSTED, message)
            self._admitted += 1

    def _leave(self) -> None:
        with self._changed:
            self._admitted -= 1
            self._changed.notify_all()
