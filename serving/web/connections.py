"""The page's connections: bounded in number and in time, so that no client keeps the others out."""

from __future__ import annotations

import asyncio
import contextlib
import resource

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

BACKLOG = 64
"""Connections that the system accepts before the page does, all of them at once."""
_MOST = 256
_OTHER_FILES = 40  # of the page itself
LOOK_SECONDS = 1.0  # between two looks at a connection
HEADER_SECONDS = 10.0  # for a request to begin, and between two
_FLUSH_SECONDS = 30.0  # for a part of an answer to be read
_WAITING, _SENDING, _ANSWERED = range(3)  # for a request, its body, its answer


def most_connections() -> int:
    """Returns how many connections the page keeps: each may open a file for its upload."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files == resource.RLIM_INFINITY:
        return _MOST
    return max(8, min(_MOST, (files - BACKLOG - _OTHER_FILES) // 2))


class BoundedConnection(H11Protocol):
    """A connection that is closed if it is idle, or if a new one needs its place."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._used = self.loop.time()
        others = [o for o in self.connections - {self} if not o.transport.is_closing()]
        if len(others) >= most_connections():
            # Of those without a request, else of those that send one, the one that rests longest.
            oldest = min(others, key=lambda other: (other.state, other._used))
            (oldest if oldest.state < _ANSWERED else self).transport.abort()
        self._look()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.state != _WAITING:  # parts of a header are not
            self._used = self.loop.time()

    @property
    def state(self) -> int:
        """True while a request, its body or its answer is waited for."""
        if self.cycle is None or self.cycle.response_complete or self.transport.is_closing():
            return _WAITING
        return _SENDING if self.cycle.more_body else _ANSWERED

    def _look(self) -> None:
        if self not in self.connections:
            return
        now = self.loop.time()
        if self.state == _ANSWERED:
            self._used = now
        limit = _FLUSH_SECONDS if self.transport.get_write_buffer_size() else HEADER_SECONDS
        if self.state == _WAITING and now - self._used > limit:
            self.transport.abort()
        else:
            self.loop.call_later(LOOK_SECONDS, self._look)


class Guard:
    """Forbids browsers to guess types, and gives up on clients that do not read their answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["X-Content-Type-Options"] = "nosniff"
            async with asyncio.timeout(_FLUSH_SECONDS):
                await send(message)

        with contextlib.suppress(TimeoutError, ClientDisconnect):  # nobody reads on
            await self._app(scope, receive, guarded)
