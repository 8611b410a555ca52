"""The local page as a web application: files, captions of uploads, readings of drawings."""

from __future__ import annotations

import asyncio
import mimetypes
from collections.abc import Callable, Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from digits import page as digits_page
from sat_tf.inference import viewer
from sat_tf.util.errors import RunError
from serving.web.captions import OWN

Model = Callable[..., dict[str, Any]]
"""Takes an image file, a captioner also a sentence or None; raises a ValueError in words."""

HOSTS = ("127.0.0.1", "localhost", "[::1]")
_FORM_BYTES = 64 * 1024  # of an upload, without the image itself
_HEADERS = {
    # Nothing but this page's own files runs or is fetched.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self' blob: data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def make_app(
    captioners: Mapping[str, Model],
    facts: Mapping[str, Any],
    samples: Mapping[str, bytes],
    digits: Mapping[str, Model] | None = None,
    max_mb: int = 20,
) -> Starlette:
    """Returns the page as an application; it keeps nothing.

    Args:
        captioners: Captioners by name.
        facts: What the page asks for first, see `facts_of`; with `samples`.
        samples: Files of the samples by name.
        digits: Digit models by name, each with its `facts`; none, no second view.
        max_mb: Largest upload.
    """
    views = [{"path": digits_page.NAME, "title": digits_page.TITLE}] if digits else []
    described = {**facts, "views": views, "max_mb": max_mb}
    files = {"/": (OWN / "page.html").read_bytes()}
    if digits:
        page = digits_page.FILES / f"{digits_page.NAME}.html"
        files[f"/{digits_page.NAME}"] = page.read_bytes()
    for folder in (viewer.FILES, OWN, *([digits_page.FILES] if digits else [])):
        assets = (path for path in folder.iterdir() if path.name.endswith((".css", ".js")))
        files |= {f"/assets/{path.name}": path.read_bytes() for path in assets}
    files |= {f"/samples/{name}": content for name, content in samples.items()}
    routes = [Route(path, _file(path, content)) for path, content in files.items()]
    routes += [
        Route("/api/page", lambda _: JSONResponse(described)),
        Route("/api/caption", _answering(captioners, max_mb), methods=["POST"]),
    ]
    if digits:
        first, place = [model.facts for model in digits.values()], f"/api/{digits_page.NAME}"
        routes.append(Route(place, lambda _: JSONResponse(first)))
        routes.append(Route(place, _answering(digits, max_mb), methods=["POST"]))
    middleware = [
        Middleware(BaseHTTPMiddleware, dispatch=_with_headers),
        # A name of another site may lead to this machine.
        Middleware(TrustedHostMiddleware, allowed_hosts=list(HOSTS)),
    ]
    failures = {HTTPException: lambda _, error: _error(error.detail, error.status_code)}
    return Starlette(routes=routes, middleware=middleware, exception_handlers=failures)


def _answering(models: Mapping[str, Model], max_mb: int) -> Callable:
    """Returns an endpoint that asks the model that an upload names, by default the first."""

    async def answer(request: Request) -> Response:
        _check(request, max_mb)
        async with request.form(max_files=1, max_fields=8) as form:
            name, image = form.get("model", next(iter(models), "")), form.get("image")
            if name not in models:
                raise HTTPException(404, f"There is no model {name!r}: {', '.join(models)}.")
            content = await image.read() if isinstance(image, UploadFile) else b""
            given = [form["sentence"]] if "sentence" in form else []
        if not content:
            raise HTTPException(400, "The file `image` is empty or missing.")
        try:
            return JSONResponse(await asyncio.to_thread(models[name], content, *given))
        except (RunError, OSError, ImportError) as error:  # of one model: the others go on
            return _error(f"It cannot be used: {error}", 500)
        except ValueError as error:
            return _error(str(error), 400)

    return answer


def _check(request: Request, max_mb: int) -> None:
    origin, length = request.headers.get("origin"), request.headers.get("content-length", "")
    if origin and origin.partition("://")[2] != request.headers.get("host"):
        raise HTTPException(403, "Another site's page may not use this one.")
    if not length.isdecimal():
        raise HTTPException(411, "The request has to say its length.")
    if int(length) > max_mb * 2**20 + _FORM_BYTES:
        raise HTTPException(413, f"The file is larger than {max_mb} MB: make it smaller.")


async def _with_headers(request: Request, answer: RequestResponseEndpoint) -> Response:
    response = await answer(request)
    response.headers.update(_HEADERS)
    return response


def _file(path: str, content: bytes) -> Callable[[Request], Response]:
    kind = mimetypes.guess_type(path)[0] or "text/html"
    return lambda _: Response(content, media_type=kind)


def _error(message: str, status: int) -> JSONResponse:
    return JSONResponse({"error": message}, status)
