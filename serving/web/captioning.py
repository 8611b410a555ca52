"""An upload as the data of the viewer; whatever goes wrong, as a sentence and an HTTP status."""

from __future__ import annotations

import io
import warnings
from dataclasses import dataclass
from typing import Any

import grpc
from PIL import Image

from sat_tf.images import MAX_PIXELS, MAX_SIDE
from sat_tf.images.pillow import to_decodable, upright
from sat_tf.viewer import crop_of, data_url, hypothesis_data
from serving.client import CaptionClient, ServingError
from serving.client.channel import ModelClient

_STATUSES = {
    grpc.StatusCode.UNAVAILABLE: ("does not answer", 503),
    grpc.StatusCode.RESOURCE_EXHAUSTED: ("is busy", 429),
    grpc.StatusCode.DEADLINE_EXCEEDED: ("took too long", 504),
}


class UploadError(Exception):
    """An upload that gets no caption.

    Attributes:
        status: HTTP's status: 4xx if another image may get one, 503 if the same image may later.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Upload:
    """An image as the models get it.

    Attributes:
        content: The file, upright, in a format that they decode.
        height: Pixels.
        width: Pixels.
        shown: A data URL, if browsers do not show the format of the original.
    """

    content: bytes
    height: int
    width: int
    shown: str | None = None


def read_upload(content: bytes) -> Upload:
    """Reads an image file.

    Raises:
        UploadError: It is none, or too large.
    """
    if not content:
        raise UploadError("The file is empty.", 400)
    try:
        decodable = to_decodable(content)
    except ValueError as error:
        raise UploadError(f"This file cannot be read as an image: {error}.", 400) from error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # told below
        sent = upright(decodable)
        height, width = _size(sent)
    shown = None if decodable is content else data_url(decodable, "image/png")
    return Upload(sent, height, width, shown)


def caption_upload(upload: Upload, client: CaptionClient, resize: str = "crop") -> dict[str, Any]:
    """Captions an image.

    Args:
        upload: The image.
        client: The model.
        resize: `crop` or `squash`, for an export that does not say.

    Returns:
        The viewer's `hypotheses`, `crop`, `grid` and `kind`; `image`, a data URL, if browsers
        do not show the format.

    Raises:
        UploadError: There is no caption.
    """
    try:
        beam = client.beam(upload.content)
    except ServingError as error:
        raise in_words(error, client) from error
    best = beam.captions[0]
    if not best.valid:
        raise UploadError(f"This file cannot be read as an image: {best.reason or 'damaged'}.", 400)
    shown = {"image": upload.shown} if upload.shown else {}
    return shown | {
        "hypotheses": [
            hypothesis_data(c.words, c.text, c.score, c.alpha, c.beta, c.log_probs)
            for c in beam.captions
        ],
        "grid": None if best.alpha is None else list(best.alpha.shape[1:]),
        "kind": beam.attention_kind or ("none" if best.alpha is None else "soft"),
        "crop": crop_of(upload.height, upload.width, beam.resize or resize),
        "version": best.version,
    }


def _size(content: bytes) -> tuple[int, int]:
    """Height and width by the header; a square if Pillow cannot tell."""
    try:
        with Image.open(io.BytesIO(content)) as image:
            width, height = image.size
        found = f"{width:,} x {height:,} pixels, more"
        too_large = max(width, height) > MAX_SIDE or width * height > MAX_PIXELS
    except Image.DecompressionBombError:
        found, too_large = "more pixels", True
    except Exception:  # Pillow's readers raise almost anything; the model says what is wrong
        return 1, 1
    if too_large:
        raise UploadError(
            f"This image has {found} than are read: at most {MAX_PIXELS / 1e6:.0f} megapixels, and "
            f"{MAX_SIDE:,} pixels per side. Make it smaller first.",
            413,
        )
    return height, width


def in_words(error: ServingError, client: ModelClient) -> UploadError:
    """Describes a model server's error as the page's."""
    address = client.connection.address
    if error.too_large:
        return UploadError("This file is too large for the model server: make it smaller.", 413)
    if error.code in _STATUSES:
        words, status = _STATUSES[error.code]
        return UploadError(f"The model server on {address} {words}.", status)
    return UploadError(str(error), 502)
