"""Caption photographs by a server, TF Serving or the local one: `python -m serving.client IMAGE`.

`CaptionClient` does the same in a program. No TensorFlow is loaded.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import grpc
import numpy as np
import tyro

from sat_tf.images.pillow import read_pixels, read_upright
from sat_tf.inference.confidence import remark
from sat_tf.util.commands import exit_status, json_line, parse_flags, printable
from sat_tf.util.errors import invalid_value
from serving import channel
from serving.channel import Connection, ServingError

_BATCH = 8  # images of a request

Outputs = Mapping[str, np.ndarray]
"""Outputs of an export by name."""

_DETAILS = {"log_probs": "word_log_probs", "alpha": "attention", "beta": "beta"}
_LIMITS = ("familiarity", "confidence")


@dataclass(frozen=True, eq=False)
class ServedCaption:
    """The server's answer for one image; other attributes are as in `Caption`.

    Attributes:
        valid: Whether the server could read the image; if not, the caption is empty.
        version: The version of the model that answered.
        reason: Why the image is not valid.
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


class CaptionClient:
    """Captions of a served model, over one connection; use it in a `with`. Threads may share it.

    Args:
        connection: The server.
        model: The model's name there.
        label: The label of a version, such as `stable` or `canary`; the latest by default.

    Raises:
        OSError: A certificate file cannot be read.
    """

    def __init__(
        self,
        connection: Connection | None = None,
        model: str = "captioner",
        label: str | None = None,
    ) -> None:
        self.connection, self._model, self._label = connection or Connection(), model, label
        self._channel = self.connection.open()
        self._predict = self._channel.unary_unary(
            channel.PREDICT,
            request_serializer=channel.PredictRequest.SerializeToString,
            response_deserializer=channel.PredictResponse.FromString,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_) -> None:
        self._channel.close()

    def caption(self, image: bytes | str | Path) -> ServedCaption:
        """Captions one image; see `captions`."""
        return self.captions([image])[0]

    def captions(self, images: Sequence[bytes | str | Path]) -> list[ServedCaption]:
        """Captions images, in as many requests as they need.

        Args:
            images: Files, or their contents. A photograph is turned upright by EXIF before it
                is sent, and converted if servers do not decode its format.

        Returns:
            A caption for each image; `valid` is false if the server could not read it.

        Raises:
            ServingError: The server gave no answer, or an error for one.
            ValueError: A file cannot be converted.
            OSError: A file cannot be read.
        """
        return list(self.answers(map(read_upright, images)))

    def answers(self, contents: Iterable[bytes | str]) -> Iterator[ServedCaption | str]:
        """Yields a caption for each image.

        Args:
            contents: Image files as `sat_tf.images.pillow.read_upright` returns them, sent as they
                are; a text, why there is none, takes its place.

        Raises:
            ServingError: The server gave no answer, or an error for one.
        """
        left = iter(contents)
        while batch := list(itertools.islice(left, _BATCH)):
            sent = [content for content in batch if isinstance(content, bytes)]
            found = iter(self._ask(sent) if sent else ())
            yield from (next(found) if isinstance(item, bytes) else item for item in batch)

    def resize(self) -> str:
        """Returns the fit of photographs to the model's square: `crop` or `squash`.

        Raises:
            ServingError: The server gave no answer, or an error for one.
        """
        # An empty image costs neither the encoder nor the search.
        (found,) = self._ask([b""], "every_beam")
        return found

    def predict(self, request: channel.PredictRequest) -> channel.PredictResponse:
        """Asks the model; see `Connection.call`."""
        return self.connection.call(self._predict, request)

    def _ask(self, images: list[bytes], signature: str = "") -> list:
        """Returns the caption of each image, or the fit that the signature `every_beam` names."""
        request = channel.PredictRequest()
        request.model_spec.name, request.model_spec.signature_name = self._model, signature
        if self._label is not None:
            request.model_spec.version_label = self._label
        tensor = request.inputs["image_bytes"]
        tensor.dtype = channel.STRING
        tensor.tensor_shape.dim.add(size=len(images))
        tensor.string_val.extend(images)
        response = self.predict(request)
        try:
            values = {name: channel.to_array(tensor) for name, tensor in response.outputs.items()}
            if signature:
                return [_text(values["resize"][0])]
            version = response.model_spec.version.value
            return [read_caption(values, row, version) for row in range(len(images))]
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise ServingError(
                f"{self.connection.address} does not answer as a captioner of this version does: "
                f"{error!r}.",
                grpc.StatusCode.INTERNAL,
            ) from error


def _text(content: bytes) -> str:
    return content.decode("utf-8", "replace")


def read_caption(values: Outputs, row: int, version: int) -> ServedCaption:
    """Reads one image's row of the outputs of `serving_default`, by name."""
    texts = [_text(text) for text in values["captions"][row]]
    scores = [float(score) for score in values["scores"][row]]
    count = int(values["lengths"][row, 0])
    details = {
        name: values[key][row, :count] if key in values else None for name, key in _DETAILS.items()
    }
    valid = bool(values["valid"][row])
    limits = {name: float(values[name][row]) for name in _LIMITS if valid and name in values}
    return ServedCaption(
        valid=valid,
        text=texts[0],
        score=scores[0],
        alternatives=tuple(pair for pair in zip(texts[1:], scores[1:], strict=True) if pair[0]),
        version=version,
        reason=_text(values["reasons"][row]),
        words=tuple(_text(word) for word in values["words"][row, 0, :count]),
        language=_text(values["language"][row]) if "language" in values else "",
        **details,
        **limits,
    )


@dataclass(frozen=True)
class Arguments:
    """Caption photographs by a server and draw where each word looked."""

    images: tyro.conf.Positional[tuple[Path, ...]]
    """Files: JPEG, PNG, GIF, BMP, WebP, TIFF, AVIF or HEIC."""
    server: str = "127.0.0.1:8500"
    """HOST:PORT of the server's gRPC."""
    model: str = "captioner"
    """The model's name there."""
    label: str | None = None
    """Label of a version, stable or canary; the latest version by default."""
    out: Path | None = None
    """Folder of attention figures, NAME-served.png; none are drawn without it."""
    json: bool = False
    """Print a line of JSON per image."""
    timeout: float = 30.0
    """Seconds to wait for each request."""
    tls: bool = False
    """Encrypt, and check the server's certificate."""
    ca_file: Path | None = None
    """PEM file of the authorities to trust; implies --tls."""
    cert: Path | None = None
    """PEM file of a certificate to show to the server; implies --tls."""
    key: Path | None = None
    """PEM file of the certificate's private key."""


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns 0 if every image was captioned, 1 if some were not, or 2."""
    arguments = parse_flags(
        Arguments, argv, "serving.client", config=(tyro.conf.FlagCreatePairsOff,)
    )
    # Silences gRPC's own notes on failed connections, which are told in plain words.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    return exit_status(lambda: run(arguments), (ServingError, ValueError, OSError))


def run(arguments: Arguments) -> int:
    """Captions each image; one that cannot be read is reported and skipped."""
    if not arguments.images:
        raise ValueError("Received no value for argument `images`: name at least one file.")
    from sat_tf.inference.figures import PHOTOGRAPH, figure_paths, save_attention_figure

    names = [path.with_name(f"{path.stem}-served{path.suffix}") for path in arguments.images]
    figures = figure_paths(arguments.out, names)
    security = arguments.tls, arguments.ca_file, arguments.cert, arguments.key
    connection = Connection(*parse_server(arguments.server), *security, arguments.timeout)
    if sys.stderr.isatty():
        print(f"Asking {connection.address} ...", file=sys.stderr)
    failed = 0
    with CaptionClient(connection, arguments.model, arguments.label) as client:
        resize = client.resize() if arguments.out else ""
        left = zip(arguments.images, figures, strict=True)
        while batch := list(itertools.islice(left, _BATCH)):
            contents = [_read_file(path) for path, _ in batch]
            rows = zip(batch, contents, client.answers(contents), strict=True)
            for (path, figure), content, answer in rows:
                if reason := _reason(answer):
                    failed += 1
                    print(printable(f"{path}: {reason}"), file=sys.stderr)
                    if arguments.json:  # scripts find a line for each image
                        print(json_line({"image": str(path), "error": reason}), flush=True)
                    continue
                if figure is not None:
                    pixels = read_pixels(content, PHOTOGRAPH, resize)
                    figure = figure if save_attention_figure(figure, pixels, answer) else None
                print(_line(arguments.json, path, answer, figure), flush=True)
    return 1 if failed else 0


def parse_server(text: str) -> tuple[str, int]:
    """Reads HOST:PORT; raises a ValueError for another form."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise invalid_value("server", "HOST:PORT", repr(text))
    return host.strip("[]"), int(port)


def _read_file(path: Path) -> bytes | str:
    try:
        return read_upright(path)
    except (OSError, ValueError) as error:
        return getattr(error, "strerror", None) or str(error)


def _reason(answer: ServedCaption | str) -> str:
    if isinstance(answer, str):
        return answer
    why = f" ({answer.reason})" if answer.reason else ""
    return "" if answer.valid else f"the server cannot read it as an image{why}"


def _line(as_json: bool, path: Path, caption: ServedCaption, figure: Path | None) -> str:
    if not as_json:
        drawn = f", {figure}" if figure else ""
        said = remark(caption.familiarity, caption.confidence).sentence
        return printable(f"{path}: {caption.text}  ({caption.score:.2f}{drawn}) {said}".rstrip())
    values = {
        "image": str(path),
        "caption": caption.text,
        "score": caption.score,
        "version": caption.version,
        "figure": str(figure) if figure else None,
        "alternatives": [{"caption": text, "score": score} for text, score in caption.alternatives],
    }
    limits = {name: getattr(caption, name) for name in _LIMITS}
    values |= {name: share for name, share in limits.items() if share is not None}
    if caption.log_probs is not None:
        values["log_probs"] = caption.log_probs.tolist()
    return json_line(values)


if __name__ == "__main__":
    sys.exit(main())
