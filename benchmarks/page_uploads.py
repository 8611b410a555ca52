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
                _upload(client, image, model, wait=True)
            print(f"every model's first caption after {time.monotonic() - started:.1f} s")
            processes = {"page": process, "models": child_of(process)}
            before = {name: resident_megabytes(number) for name, number in processes.items()}
            seconds = [
                _upload(client, image, model) for _ in range(arguments.count) for model in models
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


def _upload(client: httpx.Client, image: bytes, model: str, wait: bool = False) -> float:
    """Uploads the image; returns the seconds that the answer took."""
    end = time.monotonic() + (_STARTS_WITHIN if wait else 0)
    while True:
        started = time.monotonic()
        answer = client.post(
            "/api/caption", files={"image": ("photo.jpg", image)}, data={"model": model}
        )
        if answer.status_code == 200:
            return time.monotonic() - started
        # 429: more per minute than the page takes; 503: the model is being loaded.
        if answer.status_code == 503 and time.monotonic() > end or answer.status_code < 429:
            raise OSError(answer.json()["error"])
        time.sleep(_PAUSE)


def child_of(process: int) -> int:
    """The one child of a process."""
    return int(Path(f"/proc/{process}/task/{process}/children").read_text().split()[0])


if __name__ == "__main__":
    sys.exit(main())
