"""An upload, and captions of it as the data of the viewer; what goes wrong, as a sentence."""

from __future__ import annotations

import functools
import io
import warnings
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from PIL import Image

from sat_tf.images import MAX_PIXELS, MAX_SIDE
from sat_tf.images.pillow import to_decodable, upright
from sat_tf.inference.confidence import remarks
from sat_tf.inference.viewer import crop_of, data_url, hypothesis_of
from sat_tf.util.files import finite

if TYPE_CHECKING:
    from sat_tf.inference.captions import Caption
    from serving.client import Connection, ServedCaption, ServingError

_SHOWN = (1600, 1600)  # pixels
# Of gRPC: what a model server does, and HTTP's status.
_STATUSES = {
    "UNAVAILABLE": ("does not answer", 503),
    "RESOURCE_EXHAUSTED": ("is busy", 429),
    "DEADLINE_EXCEEDED": ("took too long", 504),
}


class UploadError(Exception):
    """An upload that gets no caption.

    Attributes:
        status: HTTP's status: 4xx if another image may get one, 503 if the same image may later.
    """

    def __init__(self, message: str, status: int = 500) -> None:
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


def served(connection: Connection, model: str) -> Callable[[bytes], dict[str, Any]]:
    """Returns a function that asks a model server about an image file.

    It returns `viewer_data` with the `version`, and raises an `UploadError`.
    """
    from serving.client import CaptionClient, ServingError

    client = CaptionClient(connection, model)

    def caption(content: bytes) -> dict[str, Any]:
        upload = read_upload(content)
        try:
            beam = client.beam(upload.content)
        except ServingError as error:
            raise _in_words(error, connection) from error
        best = beam.captions[0]
        if not best.valid:
            reason = best.reason or "damaged"
            raise UploadError(f"This file cannot be read as an image: {reason}.", 400)
        found = viewer_data(upload, beam.captions, beam.attention_kind, beam.resize)
        return found | {"version": best.version}

    return caption


Captioner = Callable[..., Awaitable[dict[str, Any]]]
"""Captions an image file as the viewer reads it, see `viewer_data`; raises an `UploadError`.

It takes the file, and a sentence to explain or None, see `ModelProcess.ask`.
"""


@functools.lru_cache(maxsize=1)  # each captioner asks for it
def read_upload(content: bytes) -> Upload:
    """Reads an image file.

    Raises:
        UploadError: It is none, or too large.
    """
    try:
        decodable = to_decodable(content)
    except ValueError as error:
        raise UploadError(f"This file cannot be read as an image: {error}.", 400) from error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # told below
        sent = upright(decodable)
        height, width = _size(sent)
    return Upload(sent, height, width, None if decodable is content else _shown(decodable))


def viewer_data(
    upload: Upload, captions: Sequence[Caption | ServedCaption], kind: str, resize: str
) -> dict[str, Any]:
    """Returns captions of an upload as the viewer reads them.

    Args:
        upload: The image.
        captions: Of the beam, best first.
        kind: Of attention: `soft`, `hard` or `none`; empty if not known.
        resize: `crop` or `squash`.

    Returns:
        `hypotheses`, `crop`, `grid`, `kind`, `lang`, their language, and `remarks`; `image`, a
        data URL, if browsers do not show the format.
    """
    best = captions[0]
    hypotheses = list(map(hypothesis_of, captions))
    return {
        **({"image": upload.shown} if upload.shown else {}),
        "hypotheses": finite(hypotheses),  # an unknown word of an explanation has no probability
        "grid": None if best.alpha is None else list(best.alpha.shape[1:]),
        "kind": kind,
        "lang": best.language or None,
        "remarks": remarks(best.familiarity, best.confidence),
        "crop": crop_of(upload.height, upload.width, resize),
    }


def _in_words(error: ServingError, connection: Connection) -> UploadError:
    """Describes a model server's error as the page's."""
    if error.too_large:
        return UploadError("This file is too large for the model server: make it smaller.", 413)
    if error.code.name in _STATUSES:
        words, status = _STATUSES[error.code.name]
        return UploadError(f"The model server on {connection.address} {words}.", status)
    return UploadError(str(error), 502)


def _shown(content: bytes) -> str:
    """Returns an image as a data URL that browsers show, no larger than the page needs."""
    stream = io.BytesIO()
    with Image.open(io.BytesIO(content)) as image:
        image.thumbnail(_SHOWN)
        image.save(stream, "JPEG", quality=90)
    return data_url(stream.getvalue())


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
