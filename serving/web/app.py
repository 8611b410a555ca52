"""The web application: the page, its samples and captions of uploads. It keeps nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, TypeVar
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from sat_tf.inference import viewer
from serving.web.captioning import Captioner, UploadError

T = TypeVar("T")

_OWN = resources.files(__package__)
_SAMPLES = _OWN / "samples"
_KINDS = {"css": "text/css", "html": "text/html", "js": "text/javascript", "jpg": "image/jpeg"}
_MEGABYTE = 2**20
_FORM_BYTES = 64 * 1024  # of an upload beside the image itself
_UPLOAD_RATE = 16_000  # bytes per second
_HEADERS = {
    # Nothing but this page's own files runs or is fetched.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self' blob: data:; media-src blob:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


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
    """

    name: str
    title: str
    folder: Traversable
    models: Mapping[str, Callable[[bytes], Awaitable[dict[str, Any]]]]
    facts: Any = None
    opened: Callable[[], None] = lambda: None


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
        upload_seconds: Time for an upload to arrive, beside a second for every 16 kB.
        hosts: Names under which browsers may ask for the page.
        proxies: Names (`NAME` or `NAME:PORT`) in the browser's address if a proxy is in front: a
            request whose `Origin` is one of them is answered even if the proxy replaces `Host`.
    """

    models: Mapping[str, Captioner]
    views: Sequence[View] = ()
    kinds: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    about: tuple[str, ...] = ()
    max_mb: int = 20
    upload_seconds: float = 10.0
    hosts: tuple[str, ...] = ("127.0.0.1", "localhost")
    proxies: tuple[str, ...] = ()

    def app(self) -> Starlette:
        """Returns the application."""
        files = {"/": _OWN / "page.html"}
        files |= {f"/samples/{one['file']}": _SAMPLES / one["file"] for one in _samples()}
        files |= {f"/{view.name}": view.folder / f"{view.name}.html" for view in self.views}
        for folder in (viewer.FILES, _OWN, *(view.folder for view in self.views)):
            assets = (path for path in folder.iterdir() if path.name.endswith((".css", ".js")))
            files |= {f"/assets/{path.name}": path for path in assets}
        routes = [Route(place, _content_of(path)) for place, path in files.items()]
        routes.append(Route("/api/page", self._describe))
        routes.append(Route("/api/caption", self._caption, methods=["POST"]))
        for view in self.views:
            routes += self._routes_of(view)
        middleware = [
            Middleware(BaseHTTPMiddleware, dispatch=_with_headers),
            Middleware(TrustedHostMiddleware, allowed_hosts=list(self.hosts)),
        ]
        failures = {HTTPException: lambda _, error: _error(error.detail, error.status_code)}
        return Starlette(routes=routes, middleware=middleware, exception_handlers=failures)

    def _routes_of(self, view: View) -> list[Route]:
        def facts(request: Request) -> Response:
            # Another site's page can ask for this address too; its browser says so.
            if request.headers.get("sec-fetch-site") in ("same-origin", "none"):
                view.opened()
            return JSONResponse(view.facts)

        async def answer(request: Request) -> Response:
            return await self._answer(request, view.models, lambda model, image, _: model(image))

        return [
            Route(f"/api/{view.name}", facts),
            Route(f"/api/{view.name}", answer, methods=["POST"]),
        ]

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
        """Answers with a caption, or with what a captioner makes of a `sentence`.

        Of an empty sentence, it explains the captioner's own caption.
        """

        def answer(captioner: Captioner, image: bytes, form: FormData) -> Awaitable[dict[str, Any]]:
            return captioner(image, form.get("sentence"))

        return await self._answer(request, self.models, answer)

    async def _answer(
        self,
        request: Request,
        models: Mapping[str, T],
        answer: Callable[[T, bytes, FormData], Awaitable[dict[str, Any]]],
    ) -> Response:
        """Reads an upload, asks the model it names; errors become sentences."""
        try:
            form = await self._read(request)
            try:
                model = _find_model(models, form.get("model"))
                return JSONResponse(await answer(model, await _image_of(form), form))
            finally:
                await form.close()
        except UploadError as error:
            return _error(str(error), error.status)

    async def _read(self, request: Request) -> FormData:
        """Reads an upload, whose file is on disk if it is large.

        Raises:
            UploadError: It may not be sent, is too large or too slow, or broke off.
        """
        origin = request.headers.get("origin")
        own = (request.headers.get("host"), *map(str.lower, self.proxies))
        if origin and _site(origin) not in own:
            raise UploadError("Another site's page may not use this one.", 403)
        length = request.headers.get("content-length", "")
        if not length.isdecimal():
            raise UploadError("The request has to say its length.", 411)
        if int(length) > self.max_mb * _MEGABYTE + _FORM_BYTES:
            raise UploadError(f"The file is larger than {self.max_mb} MB: make it smaller.", 413)
        try:
            async with asyncio.timeout(self.upload_seconds + int(length) / _UPLOAD_RATE):
                return await request.form(max_files=1, max_fields=8)
        except TimeoutError as error:
            raise UploadError("The upload took too long.", 408) from error
        except ClientDisconnect as error:
            raise UploadError("The upload was broken off.", 400) from error


class Connection(H11Protocol):
    """A connection that is closed if it is idle, before its first request too."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )


async def _with_headers(request: Request, answer: RequestResponseEndpoint) -> Response:
    response = await answer(request)
    response.headers.update(_HEADERS)
    return response


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


def _error(message: str, status: int) -> JSONResponse:
    return JSONResponse({"error": message}, status)
