"""The command line of the client: `python -m serving.client IMAGE ...`."""

from __future__ import annotations

import itertools
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

from sat_tf.inference.confidence import remarks
from sat_tf.util.commands import exit_status, json_line, parse_flags, printable
from serving.address import parse_server

if TYPE_CHECKING:
    from serving.client import ServedCaption, ServingError


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
    """A version by its label, stable or canary; the latest by default."""
    out: Path | None = None
    """Folder of attention figures; none are drawn without it."""
    resize: Literal["crop", "squash"] = "crop"
    """The fit of photographs to a square in training; figures are drawn on it."""
    limits: bool = False
    """Tell familiarity and confidence."""
    json: bool = False
    """Print a line of JSON per image."""
    timeout: float = 30.0
    """Seconds to wait for each request, and for a server that is away."""
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
    # Silences gRPC's own notes on failed connections, which are told in plain words below.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from serving.client.channel import ServingError

    return exit_status(lambda: run(arguments), (ServingError, ValueError, OSError))


def run(arguments: Arguments) -> int:
    """Captions each image; one that cannot be read is reported and skipped."""
    if not arguments.images:
        raise ValueError("Received no value for argument `images`: name at least one file.")
    from tqdm import tqdm

    from sat_tf.images.pillow import read_pixels
    from sat_tf.inference.figures import PHOTOGRAPH, figure_paths, save_attention_figure
    from serving.client import CaptionClient, Connection

    figures = figure_paths(arguments.out, arguments.images)
    connection = Connection(
        *parse_server(arguments.server),
        tls=arguments.tls,
        ca_file=arguments.ca_file,
        cert_file=arguments.cert,
        key_file=arguments.key,
        timeout=arguments.timeout,
    )
    failed = 0
    with (
        CaptionClient(connection, arguments.model, arguments.label) as client,
        # disable=None: no bar if the output is not a terminal.
        tqdm(total=len(arguments.images), unit="image", disable=None) as bar,
    ):
        contents, sent = itertools.tee(map(_read, arguments.images))
        answers = client.answers(sent, arguments.out is not None, arguments.limits)
        rows = zip(arguments.images, figures, answers, contents, strict=True)
        for path, figure, answer, content in rows:
            bar.update()
            with bar.external_write_mode():
                if reason := _reason(answer):
                    failed += 1
                    print(printable(f"{path}: {reason}"), file=sys.stderr)
                    if arguments.json:  # scripts find a line for each image
                        print(json_line({"image": str(path), "error": reason}), flush=True)
                    continue
                if figure is not None:
                    pixels = read_pixels(content, PHOTOGRAPH, arguments.resize)
                    drawn = save_attention_figure(figure, pixels, answer)
                    figure = figure if drawn else None
                print(_line(arguments, path, answer, figure), flush=True)
    return 1 if failed else 0


def _read(path: Path) -> bytes | str:
    """Reads an image file as it is sent; returns the reason if it cannot be read."""
    from sat_tf.images.pillow import read_upright

    try:
        return read_upright(path)
    except (OSError, ValueError) as error:
        return getattr(error, "strerror", None) or str(error)


def _reason(answer: ServedCaption | ServingError | str) -> str:
    """Returns why an image has no caption, empty if it has one."""
    from serving.client import ServedCaption

    if not isinstance(answer, ServedCaption):
        return str(answer)
    why = f" ({answer.reason})" if answer.reason else ""
    return "" if answer.valid else f"the server cannot read it as an image{why}"


def _line(arguments: Arguments, path: Path, caption: ServedCaption, figure: Path | None) -> str:
    if not arguments.json:
        drawn = f", {figure}" if figure else ""
        said = remarks(caption.familiarity, caption.confidence)
        line = f"{path}: {caption.text}  ({caption.score:.2f}{drawn})"
        return printable(" ".join([line, *said]))
    values = {
        "image": str(path),
        "caption": caption.text,
        "score": caption.score,
        "version": caption.version,
        "figure": str(figure) if figure else None,
        "alternatives": [{"caption": text, "score": score} for text, score in caption.alternatives],
    }
    limits = {"familiarity": caption.familiarity, "confidence": caption.confidence}
    values |= {name: share for name, share in limits.items() if share is not None}
    if caption.log_probs is not None:
        values["log_probs"] = caption.log_probs.tolist()
    return json_line(values)


if __name__ == "__main__":
    sys.exit(main())
