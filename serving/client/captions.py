"""Captions by a server: requests in batches, answers as `ServedCaption`.

Works with TF Serving and with `serving.local_server`, and imports no TensorFlow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeVar

import grpc
import numpy as np

from sat_tf.images.pillow import read_upright
from sat_tf.util.errors import invalid_value
from serving.client import channel
from serving.client.channel import Connection, ServingError

CAPTION_OUTPUTS = ("captions", "scores", "valid", "reasons")
"""Outputs asked for without attention: exports warm up this set, and all outputs."""
LIMIT_OUTPUTS = ("familiarity", "confidence")
"""Outputs of a captioner that knows its limits, see `sat_tf.inference.confidence`."""
EVERY_BEAM = "every_beam"
"""The signature with the words and the attention of every hypothesis."""
BATCH_BYTES = 32 * 2**20
"""Bytes of images in a request, unless a single one is larger."""

_DESCRIBED = (*CAPTION_OUTPUTS, "lengths", "words")  # what attention belongs to
_RANKED = ("captions", "scores", "lengths", "words")
Answer = TypeVar("Answer")
Outputs = Mapping[str, np.ndarray]
"""Outputs of an export by their names."""

_DETAILS = {"log_probs": "word_log_probs", "alpha": "attention", "beta": "beta"}


@dataclass(frozen=True, eq=False)
class ServedCaption:
    """The server's answer for one image.

    Attributes:
        valid: Whether the server could read the image; if not, the caption is empty.
        text: The caption.
        score: log p divided by length^p, nats.
        alternatives: The other hypotheses of the beam, best first: (text, score).
        version: The version of the model that answered.
        reason: Why the image is not valid.
        words: The caption's words, `T` of them (characters if the model writes characters); empty
            if the call did not ask for attention.
        log_probs: `[T]`, log-probability of each word, nats; None in that case.
        alpha: `[T, h, w]`, attention of each word; None in that case, and for a model without
            attention.
        beta: `[T]`, the gate of each word, likewise.
        language: Code of the captions' language; empty if the call did not ask for attention, or
            the model does not say.
        familiarity: See `Caption`; None if the call did not ask for it, or the model has none.
        confidence: Likewise.
    """

    valid: bool
    text: str
    score: float
    alternatives: tuple[tuple[str, float], ...]
    version: int
    reason: str = ""
    words: tuple[str, ...] = ()
    log_probs: np.ndarray | None = None
    alpha: np.ndarray | None = None
    beta: np.ndarray | None = None
    language: str = ""
    familiarity: float | None = None
    confidence: float | None = None


@dataclass(frozen=True, eq=False)
class Beam:
    """Every hypothesis of one image.

    Attributes:
        captions: The hypotheses, best first, each with its words and its attention.
            the signature `every_beam` gives the best alone.
        attention_kind: `soft`, `hard` or `none`.
        resize: `crop` or `squash`, the fit of images to the encoder's square.
    """

    captions: tuple[ServedCaption, ...]
    attention_kind: str
    resize: str


class CaptionClient:
    """Captions of a served model, over one connection; use it in a `with`. Threads may share it.

    Args:
        connection: The server.
        model: The model's name there.
        label: A version by its label, `stable` or `canary` say; the latest by default.
        batch_size: Images per request, at most.

    Raises:
        ValueError: `batch_size` is not positive.
        OSError: A certificate file cannot be read.
    """

    def __init__(
        self,
        connection: Connection | None = None,
        model: str = "captioner",
        label: str | None = None,
        batch_size: int = 8,
    ) -> None:
        if batch_size < 1:
            raise invalid_value("batch_size", "at least 1", batch_size)
        self.connection, self.model = connection or Connection(), model
        self._channel = self.connection.open()
        self._predict = self._channel.unary_unary(
            channel.PREDICT,
            request_serializer=channel.PredictRequest.SerializeToString,
            response_deserializer=channel.PredictResponse.FromString,
        )
        self._label, self._batch_size = label, batch_size

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection."""
        self._channel.close()

    def predict(self, request: channel.PredictRequest) -> channel.PredictResponse:
        """Asks the model; see `Connection.call`."""
        return self.connection.call(self._predict, request)

    def caption(
        self, image: bytes | str | Path, attention: bool = False, limits: bool = False
    ) -> ServedCaption:
        """Captions one image; see `captions`."""
        return self.captions([image], attention, limits)[0]

    def captions(
        self,
        images: Sequence[bytes | str | Path],
        attention: bool = False,
        limits: bool = False,
    ) -> list[ServedCaption]:
        """Captions images, in as many requests as they need.

        Args:
            images: Files, or their contents: JPEG, PNG, GIF, BMP, WebP or TIFF, which is sent as
                PNG. A photograph is turned upright by its EXIF before it is sent.
            attention: Ask for words, their log-probabilities and attention too.
            limits: Ask for familiarity and confidence too.

        Returns:
            A caption for each image; `valid` is false if the server could not read it.

        Raises:
            ServingError: The server gave no answer, or an error for one; or the model does not know
                the limits that are asked for.
            ValueError: A file is a TIFF, HEIC or AVIF that cannot be read.
            OSError: A file cannot be read.
        """
        found = []
        for answer in self.answers(map(read_upright, images), attention, limits):
            if isinstance(answer, ServingError):
                raise answer
            found.append(answer)
        return found

    def answers(
        self, contents: Iterable[bytes | str], attention: bool = False, limits: bool = False
    ) -> Iterator[ServedCaption | ServingError | str]:
        """Yields a caption for each image, or the error of an image too large to be sent.

        Args:
            contents: Image files as `sat_tf.images.pillow.read_upright` returns them, read as they
                are needed and sent as they are; a text, why there is none, comes back in its place.
            attention: As in `captions`.
            limits: As in `captions`.

        Raises:
            ServingError: The server gave no answer, or an error for one.
        """
        for batch in split(contents, self._batch_size, BATCH_BYTES):
            sent = [content for content in batch if isinstance(content, bytes)]
            found = iter(self._answer(sent, attention, limits) if sent else ())
            yield from (next(found) if isinstance(item, bytes) else item for item in batch)

    def beam(self, image: bytes | str | Path) -> Beam:
        """Captions one image, with the words and the attention of every hypothesis.

        Args:
            image: A file, as in `captions`; or the contents of one as
                `sat_tf.images.pillow.read_upright` returns them, sent as they are.

        Raises:
            ServingError, ValueError, OSError: As in `captions`.
        """
        content = image if isinstance(image, bytes) else read_upright(image)
        request = self._request([content], ())
        request.model_spec.signature_name = EVERY_BEAM
        return self._read(request, (*_DESCRIBED, "attention_kind", "resize"), _read_beam)

    def _answer(
        self, batch: list[bytes], attention: bool, limits: bool
    ) -> list[ServedCaption | ServingError]:
        """Asks for captions of a batch; an image that is too large for it is alone in one."""
        needed = (*(_DESCRIBED if attention else CAPTION_OUTPUTS), *(LIMIT_OUTPUTS * limits))

        def read(values: Outputs, version: int) -> list[ServedCaption]:
            return [read_caption(values, row, version) for row in range(len(batch))]

        try:
            return self._read(self._request(batch, () if attention else needed), needed, read)
        except ServingError as error:
            if limits and LIMIT_OUTPUTS[0] in str(error):
                raise ServingError(
                    f"{self.model!r} on {self.connection.address} does not send familiarity and "
                    "confidence: its run was trained without, or it was exported with another "
                    "search.",
                    grpc.StatusCode.UNIMPLEMENTED,
                ) from error
            if not error.too_large:
                raise
            return [error] * len(batch)

    def _request(self, batch: Sequence[bytes], outputs: Sequence[str]) -> channel.PredictRequest:
        request = channel.make_request(batch, outputs, self.model)
        if self._label is not None:
            request.model_spec.version_label = self._label
        return request

    def _read(
        self,
        request: channel.PredictRequest,
        needed: Sequence[str],
        read: Callable[[Outputs, int], Answer],
    ) -> Answer:
        """Returns what is read of the outputs by name, and of the version that answered."""
        response = self.predict(request)
        try:
            values = {name: channel.to_array(tensor) for name, tensor in response.outputs.items()}
            if missing := [name for name in needed if name not in values]:
                raise ValueError(f"it sends no {missing[0]}")
            return read(values, response.model_spec.version.value)
        except (AttributeError, IndexError, TypeError, ValueError) as error:
            raise ServingError(
                f"{self.connection.address} does not answer as a captioner of this version does: "
                f"{error}.",
                grpc.StatusCode.INTERNAL,
            ) from error


def _text(content: bytes) -> str:
    return content.decode("utf-8", "replace")


def _read_beam(values: Outputs, version: int) -> Beam:
    """Reads the outputs of `every_beam` for one image."""
    captions = []
    for rank in range(values["captions"].shape[1]):
        ranked = {name: values[name][:, rank : rank + 1] for name in _RANKED}
        details = {key: values[key][:, rank] for key in _DETAILS.values() if key in values}
        captions.append(read_caption(values | ranked | details, 0, version))
        values = {name: v for name, v in values.items() if name not in LIMIT_OUTPUTS}
    kind, resize = (_text(values[name][0]) for name in ("attention_kind", "resize"))
    return Beam((captions[0], *(c for c in captions[1:] if c.text)), kind, resize)


def read_caption(values: Outputs, row: int, version: int) -> ServedCaption:
    """Reads one image's row of the outputs of an export, by their names."""
    texts = [_text(text) for text in values["captions"][row]]
    scores = [float(score) for score in values["scores"][row]]
    pairs = zip(texts[1:], scores[1:], strict=True)
    count = int(values["lengths"][row, 0]) if "lengths" in values else 0
    words = values["words"][row, 0, :count] if "words" in values else ()
    details = {
        name: values[key][row, :count] if key in values else None for name, key in _DETAILS.items()
    }
    valid = bool(values["valid"][row])
    limits = {name: float(values[name][row]) for name in LIMIT_OUTPUTS if valid and name in values}
    return ServedCaption(
        valid=valid,
        text=texts[0],
        score=scores[0],
        alternatives=tuple(pair for pair in pairs if pair[0]),
        version=version,
        reason=_text(values["reasons"][row]) if "reasons" in values else "",
        language=_text(values["language"][row]) if "language" in values else "",
        words=tuple(_text(word) for word in words),
        **details,
        **limits,
    )


def split(
    images: Iterable, most: int, most_bytes: int, size: Callable[..., int] = len
) -> Iterator[list]:
    """Yields batches of at most `most` images, and `most_bytes` unless one image is larger."""
    batch, total = [], 0
    for image in images:
        if batch and (len(batch) == most or total + size(image) > most_bytes):
            yield batch
            batch, total = [], 0
        batch.append(image)
        total += size(image)
    if batch:
        yield batch
