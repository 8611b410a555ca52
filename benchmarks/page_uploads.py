"""Photographs in a row through the page: `python -m benchmarks.page_uploads EXPORT_DIR ...`.

Starts the page as a user does; times the start, the first caption and those after it; compares the
memory of the page and of the models' process before and after.
"""

from __future__ import annotations

import contextlib
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
import tyro

from benchmarks.peak import resident_megabytes
from benchmarks.serving_load import drawn_photograph, started
from sat_tf.commands import exit_status

_PAUSE = 0.2  # seconds between two tries while the models are being loaded
_STARTS_WITHIN = 300.0  # seconds
_ANSWERS_WITHIN = 60.0  # seconds
_RETRIED = (429, 503)
"""Statuses of more uploads per minute than the page takes, and of a model that is being loaded."""


@dataclass(frozen=True)
class Arguments:
    """Upload photographs to the page one after another."""

    export_dir: tyro.conf.Positional[tuple[Path, ...]]
    """Exports, as for `python -m serving.web --export`."""
    count: int = 100
    """Number of photographs, each asked of every model."""
    image: Path | None = None
    """Image file; a drawn photograph of 640 x 480 pixels by default."""


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    arguments = tyro.cli(Arguments, args=argv, prog="python -m benchmarks.page_uploads")
    return exit_status(lambda: run(arguments))


def run(arguments: Arguments) -> None:
    """Starts the page, uploads, prints."""
    image = arguments.image.read_bytes() if arguments.image else drawn_photograph()
    started = time.monotonic()
    with page(arguments.export_dir) as (address, process):
        with httpx.Client(base_url=address, timeout=60.0) as client:
            models = client.get("/api/page").json()["models"]
            print(f"page after {time.monotonic() - started:.1f} s", flush=True)
            for model in models:
                upload(client, image, model, _STARTS_WITHIN)
            print(f"every model's first caption after {time.monotonic() - started:.1f} s")
            processes = {"page": process, "models": child_of(process)}
            before = {name: resident_megabytes(number) for name, number in processes.items()}
            seconds = [
                upload(client, image, model) for _ in range(arguments.count) for model in models
            ]
        for name, number in processes.items():
            after = resident_megabytes(number)
            print(f"{name}: {before[name]:.0f} MB before, {after:.0f} MB after")
        p50, p99 = np.percentile(seconds, [50, 99])
        print(f"{len(seconds)} captions: p50 {p50:.2f} s, p99 {p99:.2f} s")


def page(exports: tuple[Path, ...]) -> contextlib.AbstractContextManager[tuple[str, int]]:
    """Starts the page on a free port: its address and process id, see `started`."""
    command = ("-m", "serving.web", "--no-browser", "--port", "0", "--export", *map(str, exports))
    return started("page", r"http://\S+", *command)


def upload(
    client: httpx.Client, image: bytes, model: str, within: float = _ANSWERS_WITHIN
) -> float:
    """Uploads the image, again if the page asks for that; returns the last answer's seconds.

    Raises:
        OSError: The page answers with an error, or asks for another try after `within` seconds.
    """
    end = time.monotonic() + within
    while True:
        started = time.monotonic()
        answer = client.post(
            "/api/caption", files={"image": ("photo.jpg", image)}, data={"model": model}
        )
        if answer.status_code == 200:
            return time.monotonic() - started
        if answer.status_code not in _RETRIED or time.monotonic() > end:
            raise OSError(f"The page answers {answer.status_code}: {answer.text}")
        time.sleep(_PAUSE)


def child_of(process: int) -> int:
    """The one child of a process."""
    return int(Path(f"/proc/{process}/task/{process}/children").read_text().split()[0])


if __name__ == "__main__":
    sys.exit(main())
