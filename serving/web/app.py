"""The web application: the page, its samples and captions of uploads. It keeps nothing."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, TypeVar
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Message

from sat_tf.trained import viewer
from serving.web.captioning import Captioner, UploadError
from serving.web.connections import Guard

T = TypeVar("T")

_OWN = resources.files(__package__)
_SAMPLES = _OWN / "samples"
_KINDS = {"css": "text/css", "js": "text/javascript", "jpg": "image/jpeg"}
_MEGABYTE = 2**20
_AGAIN_AFTER = 1.0  # seconds, for a captioner that is being loaded or busy
_AT_ONCE = 0.2  # seconds without an answer until the page says what it waits for
_FORM_BYTES = 64 * 1024  # of an upload beside the image itself
# Nothing but this page's own files runs or is fetched.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' blob: data:; media-src blob:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)


class Throttle:
    """Refuses uploads beyond a number at once and a rate (a token bucket); for one thread.

    Args:
        at_once: Uploads that have arrived and are being answered, or wait for it.
        per_minute: Uploads per minute; that many may come in one burst.
        clock: Returns seconds.
    """

    def __init__(
        self, at_once: int = 32, per_minute: int = 240, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._at_once, self._per_minute, self._clock = at_once, per_minute, clock
        self._working, self._tokens, self._filled = 0, float(per_minute), clock()

    def count(self) -> None:
        """Counts an upload; raises an `UploadError` beyond the rate."""
        now = self._clock()
        filled = self._tokens + (now - self._filled) * self._per_minute / 60
        self._tokens, self._filled = min(filled, self._per_minute), now
        if self._tokens < 1:
            raise self._refusal()
        self._tokens -= 1

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Holds a place inside the `with`; raises an `UploadError` if there is none."""
        if self._working >= self._at_once:
            raise self._refusal()
        self._working += 1
        try:
            yield
        finally:
            self._working -= 1

    def _refusal(self) -> UploadError:
        return UploadError("Too many requests at once: one moment, please.", 429)


@dataclass(frozen=True)
class View:
    """A further view: a page of its own, with other models.

    Attributes:
        name: `/NAME` is its page; `/api/NAME` answers uploads, and questions without one.
        title: Of the link to it.
        folder: Holds `NAME.html` and its scripts and styles.
        models: Functions that answer an upload, by name; they raise an `UploadError`.
        facts: What its page asks for first.
        opened: Called when its page is.
        throttle: Limits its uploads.
    """

    name: str
    title: str
    folder: Traversable
    models: Mapping[str, Callable[[bytes], Awaitable[dict[str, Any]]]]
    facts: Any = None
    opened: Callable[[], None] = lambda: None
    throttle: Throttle = field(default_factory=Throttle)


@dataclass
class Page:
    """Contents and limits of the page.

    Attributes:
        models: Captioners by the name shown, in the order shown.
        views: Further views.
        kinds: Kinds of attention by the captioner's name, where known: `soft`, `hard` or `none`.
        notes: Sentences about the models.
        about: Sentences on what the captioners know.
        max_mb: Largest upload.
        upload_seconds: Time for an upload to arrive, beside what it takes at `upload_rate`.
        upload_rate: Bytes per second with which it has to arrive then.
        hosts: Names under which browsers may ask for the page.
        proxies: Names (`NAME` or `NAME:PORT`) in the browser's address if a proxy is in front: a
            request whose `Origin` is one of them is answered even if the proxy replaces `Host`.
        throttle: Limits the uploads of photographs.
    """

    models: Mapping[str, Captioner]
    views: Sequence[View] = ()
    kinds: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    about: tuple[str, ...] = ()
    max_mb: int = 20
    upload_seconds: float = 10.0
    upload_rate: float = 16_000.0
    hosts: tuple[str, ...] = ("127.0.0.1", "localhost")
    proxies: tuple[str, ...] = ()
    throttle: Throttle = field(default_factory=Throttle)

    def app(self) -> Starlette:
        """Returns the application."""
        routes = [
            Route("/", self._document(_OWN / "page.html")),
            Route("/api/page", self._describe),
            Route("/api/caption", self._caption, methods=["POST"]),
            Route("/api/captions", self._captions, methods=["POST"]),
            Route("/api/explain", self._explain, methods=["POST"]),
        ]
        for view in self.views:
            routes += self._routes_of(view)
        files = {f"/samples/{one['file']}": _SAMPLES / one["file"] for one in _samples()}
        for folder in (viewer.FILES, _OWN, *(view.folder for view in self.views)):
            assets = (path for path in folder.iterdir() if path.name.endswith((".css", ".js")))
            files |= {f"/assets/{path.name}": path for path in assets}
        routes += [Route(place, _content_of(path)) for place, path in files.items()]
        hosts = Middleware(TrustedHostMiddleware, allowed_hosts=list(self.hosts))
        failures = {HTTPException: lambda _, error: _error(error.detail, error.status_code)}
        middleware = [Middleware(Guard), hosts]
        return Starlette(routes=routes, middleware=middleware, exception_handlers=failures)

    def _routes_of(self, view: View) -> list[Route]:
        def facts(_: Request) -> Response:
            return JSONResponse(view.facts)

        async def answer(request: Request) -> Response:
            return await self._answer(request, view.throttle, view.models, lambda c, m, _: m(c))

        return [
            Route(f"/{view.name}", self._document(view.folder / f"{view.name}.html", view.opened)),
            Route(f"/api/{view.name}", facts),
            Route(f"/api/{view.name}", answer, methods=["POST"]),
        ]

    def _document(
        self, path: Traversable, opened: Callable[[], None] = lambda: None
    ) -> Callable[[Request], Response]:
        headers = {"Content-Security-Policy": _POLICY, "Referrer-Policy": "no-referrer"}
        content = path.read_bytes()

        def document(request: Request) -> Response:
            # Another site's page can ask for this address too; its browser says so.
            if request.headers.get("sec-fetch-site") in ("same-origin", "none"):
                opened()
            return Response(content, media_type="text/html", headers=headers)

        return document

    async def _describe(self, _: Request) -> Response:
        facts = {
            "models": list(self.models),
            "kinds": [self.kinds.get(name, "") for name in self.models],
            "notes": self.notes,
            "about": self.about,
            "views": [{"path": view.name, "title": view.title} for view in self.views],
            "max_mb": self.max_mb,
            "samples": _samples(),
        }
        return JSONResponse(facts)

    async def _caption(self, request: Request) -> Response:
        models = self.models
        return await self._answer(request, self.throttle, models, lambda c, m, _: m(c, _untold))

    async def _explain(self, request: Request) -> Response:
        """Answers with what a captioner makes of a `sentence`, of its own caption without one."""

        async def answer(content: bytes, captioner: Captioner, form: FormData) -> dict[str, Any]:
            sentence = form.get("sentence", "")
            if not isinstance(sentence, str):
                raise UploadError("`sentence` has to be a text.", 400)
            return await captioner(content, _untold, sentence)

        return await self._answer(request, self.throttle, self.models, answer)

    async def _captions(self, request: Request) -> Response:
        """Answers for all captioners, a line of JSON for each as soon as it is there."""
        try:
            async with self._arrived(request, self.throttle) as form:
                with contextlib.ExitStack() as place:
                    place.enter_context(self.throttle.turn())
                    content = await _image_of(form)
                    return _Lines(self._lines(content), place.pop_all())
        except UploadError as error:
            return _error(str(error), error.status)

    async def _lines(self, content: bytes) -> AsyncIterator[str]:
        """Lines with `model` and its answer, `error` and `status`, or why it is `waiting`."""
        waiting: dict[str, str] = {}  # why each captioner does not answer yet
        asked = {
            asyncio.create_task(self._patiently(content, name, waiting)) for name in self.models
        }
        told: dict[str, str] = {}
        patience = _AT_ONCE
        try:
            while asked:
                done, asked = await asyncio.wait(
                    asked, timeout=patience, return_when=asyncio.FIRST_COMPLETED
                )
                patience = _AGAIN_AFTER
                for task in done:
                    yield _line(**task.result())
                # An empty line finds out whether anybody is still there.
                yield "\n"
                for name, why in (dict(waiting).items() - told.items()) if asked else ():
                    told[name] = why
                    yield _line(model=name, waiting=why)
        finally:
            for task in asked:
                task.cancel()

    async def _patiently(self, content: bytes, name: str, waiting: dict[str, str]) -> dict:
        """Asks a captioner until it is there and has time."""
        tell = functools.partial(waiting.__setitem__, name)
        while True:
            try:
                found = await self.models[name](content, tell)
                waiting.pop(name, None)
                return {"model": name} | found
            except UploadError as error:
                if error.status not in (429, 503):
                    waiting.pop(name, None)
                    return {"model": name, "error": str(error), "status": error.status}
                tell(str(error))
            await asyncio.sleep(_AGAIN_AFTER)

    async def _answer(
        self,
        request: Request,
        throttle: Throttle,
        models: Mapping[str, T],
        answer: Callable[[bytes, T, FormData], Awaitable[dict[str, Any]]],
    ) -> Response:
        """Reads an upload, asks the model it names; errors become sentences."""
        try:
            async with self._arrived(request, throttle) as form:
                model = _find_model(models, form.get("model"))
                with throttle.turn():
                    found = await answer(await _image_of(form), model, form)
        except UploadError as error:
            return _error(str(error), error.status)
        return JSONResponse(found)

    @contextlib.asynccontextmanager
    async def _arrived(self, request: Request, throttle: Throttle) -> AsyncIterator[FormData]:
        """Yields an upload, whose file is on disk if it is large.

        Raises:
            UploadError: It may not be sent, did not arrive in time, or broke off.
        """
        self._check(request)
        throttle.count()
        now = asyncio.get_running_loop().time
        started, arrived = now(), 0

        async def receive() -> Message:
            nonlocal arrived
            message = await request.receive()
            arrived += len(message.get("body", b""))
            limit.reschedule(started + self.upload_seconds + arrived / self.upload_rate)
            return message

        try:
            async with asyncio.timeout(self.upload_seconds) as limit:
                form = await Request(request.scope, receive).form(max_files=1, max_fields=8)
        except TimeoutError as error:
            raise UploadError("The upload took too long.", 408) from error
        except ClientDisconnect as error:
            raise UploadError("The upload was broken off.", 400) from error
        try:
            yield form
        finally:
            await form.close()

    def _check(self, request: Request) -> None:
        """Refuses what is too large before it is read, and other sites' pages."""
        origin = request.headers.get("origin")
        own = (request.headers.get("host"), *map(str.lower, self.proxies))
        if origin and _site(origin) not in own:
            raise UploadError("Another site's page may not use this one.", 403)
        length = request.headers.get("content-length", "")
        if not length.isdecimal():
            raise UploadError("The request has to say its length.", 411)
        if int(length) > self.max_mb * _MEGABYTE + _FORM_BYTES:
            raise UploadError(f"The file is larger than {self.max_mb} MB: make it smaller.", 413)


class _Lines(StreamingResponse):
    """Lines of JSON, which keep a place until they end."""

    def __init__(self, lines: AsyncIterator[str], place: contextlib.ExitStack) -> None:
        headers = {"X-Accel-Buffering": "no"}  # a proxy passes each line on
        super().__init__(lines, media_type="application/x-ndjson", headers=headers)
        self._place = place

    async def __call__(self, *connection: Any) -> None:
        with self._place:
            await super().__call__(*connection)


def _untold(_: str) -> None:
    """Takes why an answer does not come yet, of one that is waited for anyway."""


def _site(origin: str) -> str | None:
    """Returns host and port of an origin; None for one that is not an address."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


async def _image_of(form: FormData) -> bytes:
    """Reads the image; raises an `UploadError` if there is none."""
    image = form.get("image")
    if not isinstance(image, UploadFile):
        raise UploadError("The request has no file called `image`.", 400)
    if not (content := await image.read()):
        raise UploadError("The file is empty.", 400)
    return content


def _find_model(models: Mapping[str, T], name: object) -> T:
    """Returns the model of a name, or the first one."""
    if name is None and models:
        return next(iter(models.values()))
    if name not in models:
        raise UploadError(f"There is no model {name!r}: {', '.join(models) or 'none'}.", 404)
    return models[name]


def _samples() -> list[dict[str, str]]:
    return json.loads((_SAMPLES / "samples.json").read_text(encoding="utf-8"))


def _content_of(path: Traversable) -> Callable[[Request], Response]:
    kind = _KINDS[path.name.rpartition(".")[2]]
    return lambda _: Response(path.read_bytes(), media_type=kind)


def _line(**facts: Any) -> str:
    return json.dumps(facts, separators=(",", ":")) + "\n"


def _error(message: str, status: int) -> JSONResponse:
    return JSONResponse({"error": message}, status)
