"""Images that are read while those before them are captioned."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item, Read = TypeVar("Item"), TypeVar("Read")

_AHEAD = 4


def read_ahead(items: Iterable[Item], read: Callable[[Item], Read]) -> Iterator[Read]:
    """Yields `read(item)` of each item in turn; another thread reads up to four items more.

    Items are taken one by one, in the caller's thread. What `read` raises comes in its turn.
    """
    reader = ThreadPoolExecutor(1)
    waiting: deque[Future[Read]] = deque()
    try:
        for item in items:
            waiting.append(reader.submit(read, item))
            if len(waiting) > _AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        reader.shutdown(wait=False, cancel_futures=True)
