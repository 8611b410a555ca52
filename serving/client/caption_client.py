"""Captions by a server: requests in batches, answers as `ServedCaption`.

Works with TF Serving and with `serving.local_server`, and imports no TensorFlow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import grpc

from sat_tf.errors import invalid_value
from sat_tf.images import read_upright
from serving.client import protocol
from serving.client.answers import REASONS, Beam, ServedCaption, beam_of, read_beam, read_captions
from serving.client.channel import Connection, ServingError
from serving.client.model_client import ModelClient

CAPTION_OUTPUTS = ("captions", "scores", "valid", REASONS)
"""Outputs asked for without attention: exports warm up this set, and all outputs."""
EVERY_BEAM = "every_beam"
"""The signature with every hypothesis, which exports of earlier versions lack."""


class CaptionClient(ModelClient):
    """Captions of a served model, over one connection; threads may share it.

    Args:
        connection: The server.
        model: The model's name there.
        version: One version of it; the latest by default.
        label: A version by its label, `stable` or `canary` say, instead of by its number.
        batch_size: Images per request, at most.
        batch_bytes: Bytes of images per request, unless a single one is larger.

    Raises:
        ValueError: Both `version` and `label` are given, or a size is not positive.
        OSError: A certificate file cannot be read.
    """

    def __init__(
        self,
        connection: Connection | None = None,
        model: str = "captioner",
        version: int | None = None,
        label: str | None = None,
        batch_size: int = 8,
        batch_bytes: int = 32 * 2**20,
    ) -> None:
        if version is not None and label is not None:
            raise ValueError(
                "Received both `version` and `label`: expected one of them at most, got "
                f"{version} and {label!r}."
            )
        for name, size in (("batch_size", batch_size), ("batch_bytes", batch_bytes)):
            if size < 1:
                raise invalid_value(name, "at least 1", size)
        super().__init__(connection, model)
        self._version, self._label = version, label
        self._batch_size, self._batch_bytes = batch_size, batch_bytes
        self._outputs = CAPTION_OUTPUTS

    def caption(self, image: bytes | str | Path, attention: bool = False) -> ServedCaption:
        """Captions one image; see `captions`."""
        return self.captions([image], attention)[0]

    def captions(
        self, images: Sequence[bytes | str | Path], attention: bool = False
    ) -> list[ServedCaption]:
        """Captions images, in as many requests as they need.

        Args:
            images: Files, or their contents: JPEG, PNG, GIF, BMP, WebP or TIFF, which is sent as
                PNG. A photograph is turned upright by its EXIF before it is sent.
            attention: Ask for words, their log-probabilities and attention too.

        Returns:
            A caption for each image; `valid` is false if the server could not read it.

        Raises:
            ServingError: The server gave no answer, or an error for one.
            ValueError: A file is HEIC, AVIF, or a TIFF that cannot be read.
            OSError: A file cannot be read.
        """
        found = []
        for answer in self.answers(images, attention):
            if isinstance(answer, ServingError):
                raise answer
            found.append(answer)
        return found

    def beam(self, image: bytes | str | Path) -> Beam:
        """Captions one image, with the words and the attention of every hypothesis.

        Raises:
            ServingError: The server gave no answer, or an error for one.
            ValueError: The file is HEIC, AVIF, or a TIFF that cannot be read.
            OSError: The file cannot be read.
        """
        content = read_upright(image)  # the exported graph ignores EXIF
        request = self._request([content], ())
        request.model_spec.signature_name = EVERY_BEAM
        try:
            return read_beam(self.predict(request))
        except ServingError as error:
            if "signature" not in str(error) or EVERY_BEAM not in str(error):
                raise
        best = self.caption(content, attention=True)
        return beam_of(best)

    def answers(
        self, images: Iterable[bytes | str | Path], attention: bool = False
    ) -> Iterator[ServedCaption | ServingError]:
        """Yields a caption for each image, or the error of an image too large to be sent.

        Images are read as they are needed; see `captions`.
        """
        contents = (read_upright(image) for image in images)
        for batch in split(contents, self._batch_size, self._batch_bytes):
            yield from self._answer(batch, attention)

    def _answer(self, batch: list[bytes], attention: bool) -> list[ServedCaption | ServingError]:
        try:
            return self._ask(batch, attention)
        except ServingError as error:
            if not error.too_large:
                raise
            if len(batch) == 1:
                return [error]
        half = len(batch) // 2
        return self._answer(batch[:half], attention) + self._answer(batch[half:], attention)

    def _ask(self, batch: list[bytes], attention: bool) -> list[ServedCaption]:
        outputs = () if attention else self._outputs
        try:
            return read_captions(self.predict(self._request(batch, outputs)))
        except ServingError as error:
            unknown = error.code == grpc.StatusCode.INVALID_ARGUMENT and REASONS in str(error)
            if not unknown or REASONS not in outputs:
                raise
        self._outputs = tuple(name for name in CAPTION_OUTPUTS if name != REASONS)
        return self._ask(batch, attention)

    def _request(self, batch: Sequence[bytes], outputs: Sequence[str]) -> protocol.PredictRequest:
        request = protocol.make_request(batch, outputs, self.model)
        if self._version is not None:
            request.model_spec.version.value = self._version
        if self._label is not None:
            request.model_spec.version_label = self._label
        return request


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
