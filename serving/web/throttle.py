"""Limits of uploads: at once and per minute."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from serving.web.captioning import UploadError


class Throttle:
    """Refuses uploads beyond a number at once and a rate (a token bucket); for one thread.

    Args:
        at_once: Uploads that are being answered.
        per_minute: Uploads per minute; that many may come in one burst.
        clock: Returns seconds.
    """

    def __init__(
        self, at_once: int = 12, per_minute: int = 240, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._at_once, self._per_minute, self._clock = at_once, per_minute, clock
        self._working, self._tokens, self._filled = 0, float(per_minute), clock()

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Holds a place inside the `with`.

        Raises:
            UploadError: There is none.
        """
        now = self._clock()
        filled = self._tokens + (now - self._filled) * self._per_minute / 60
        self._tokens, self._filled = min(filled, self._per_minute), now
        if self._working >= self._at_once or self._tokens < 1:
            raise UploadError("Too many requests at once: one moment, please.", 429)
        self._tokens -= 1
        self._working += 1
        try:
            yield
        finally:
            self._working -= 1
