"""Captions by a model server, through gRPC: TF Serving, or the local server."""

from __future__ import annotations

from typing import Any

import grpc
from starlette.concurrency import run_in_threadpool

from serving.client import CaptionClient, ServingError
from serving.web.captioning import Captioner, Tell, Upload, UploadError, viewer_data

_STATUSES = {
    grpc.StatusCode.UNAVAILABLE: ("does not answer", 503),
    grpc.StatusCode.RESOURCE_EXHAUSTED: ("is busy", 429),
    grpc.StatusCode.DEADLINE_EXCEEDED: ("took too long", 504),
}


def captioner(client: CaptionClient, resize: str = "crop") -> Captioner:
    """Returns a captioner that asks a model server.

    Args:
        client: The model.
        resize: `crop` or `squash`, for an export that does not say.
    """

    async def caption(upload: Upload, _: Tell) -> dict[str, Any]:
        try:
            beam = await run_in_threadpool(client.beam, upload.content)
        except ServingError as error:
            raise _in_words(error, client) from error
        best = beam.captions[0]
        if not best.valid:
            reason = best.reason or "damaged"
            raise UploadError(f"This file cannot be read as an image: {reason}.", 400)
        kind = beam.attention_kind or ("none" if best.alpha is None else "soft")
        found = viewer_data(upload, beam.captions, kind, beam.resize or resize)
        return found | {"version": best.version}

    return caption


def _in_words(error: ServingError, client: CaptionClient) -> UploadError:
    """Describes a model server's error as the page's."""
    if error.too_large:
        return UploadError("This file is too large for the model server: make it smaller.", 413)
    if error.code in _STATUSES:
        words, status = _STATUSES[error.code]
        return UploadError(f"The model server on {client.connection.address} {words}.", status)
    return UploadError(str(error), 502)
