"""Load test of a served model: `python -m benchmarks.serving_load EXPORT_DIR`.

Starts the local server in its own process and lets concurrent clients request captions, for each
size of request: latencies, images per second, the server's peak memory and lost answers. Server and
clients share the cores of this machine.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import tyro

from benchmarks.measure import command, format_table, photograph
from serving.client import CaptionClient, Connection, ServingError

_TIMEOUT = 300.0  # seconds per request; a server that is away is waited for until then


def run(
    export_dir: tyro.conf.Positional[Path],
    clients: int = 16,
    seconds: float = 120.0,
    images: tuple[int, ...] = (1, 8, 32),
) -> int:
    """Requests captions from a local server by many clients; ends with 1 if an answer was lost.

    Args:
        export_dir: Folder of the version folders.
        clients: Number of concurrent clients.
        seconds: Duration for each size of request.
        images: Images per request, one size after another.
    """
    rows = []
    with local_server(export_dir) as (port, server):
        print(f"{clients} clients, {seconds:g} s for each size of request")
        for size in images:
            rows.append(measure(port, size, clients, seconds) | {"mb": peak_megabytes(server)})
    print(format_table(rows))
    return int(any(row["lost"] for row in rows))


def peak_megabytes(process: int) -> float:
    """Returns the largest resident size of a process so far, 10^6 bytes; NaN without `/proc`."""
    status = Path(f"/proc/{process}/status")
    found = status.read_text().partition("VmHWM:")[2].split() if status.exists() else []
    return int(found[0]) * 1024 / 1e6 if found else float("nan")


@contextlib.contextmanager
def local_server(export_dir: Path) -> Iterator[tuple[int, int]]:
    """Starts a local server on a free port: its port and process id.

    Raises:
        OSError: It did not start.
    """
    called = [sys.executable, "-m", "serving.local_server", str(export_dir), "--port", "0"]
    with subprocess.Popen(called, stdout=subprocess.PIPE, text=True) as process:
        try:
            found = re.search(r":(\d+)$", process.stdout.readline())
            if not found:
                raise OSError("the server did not start: it says why above")
            yield int(found[1]), process.pid
        finally:
            process.terminate()


def measure(port: int, size: int, clients: int, seconds: float) -> dict[str, float]:
    """Lets all clients send one request after another until the time is up; returns a row.

    The reasons of requests without an answer, or with a wrong one, are printed.
    """
    latencies: list[float] = []
    lost: list[str] = []
    image, started = photograph(), time.monotonic()

    def ask() -> None:
        connection = Connection(port=port, timeout=_TIMEOUT)
        with CaptionClient(connection, batch_size=size) as client:
            while time.monotonic() < started + seconds:
                sent = time.monotonic()
                try:
                    captions = client.captions([image] * size)
                except ServingError as error:
                    lost.append(str(error))
                    continue
                # Appending to a list is safe from many threads.
                latencies.append(time.monotonic() - sent)
                if len(captions) != size or not all(caption.valid for caption in captions):
                    lost.append("an answer without a caption for each image")
                elif len({caption.text for caption in captions}) != 1:
                    lost.append("captions that differ for the same image")

    with ThreadPoolExecutor(clients) as pool:
        for asked in [pool.submit(ask) for _ in range(clients)]:
            asked.result()
    rate = size * len(latencies) / (time.monotonic() - started)
    for reason in sorted(set(lost)):
        print(f"  {reason}")
    p50, p99 = 1000 * np.percentile(latencies or [np.nan], [50, 99])
    row = {"images": size, "requests": len(latencies), "p50_ms": p50, "p99_ms": p99}
    return row | {"images_s": rate, "lost": len(lost)}


if __name__ == "__main__":
    sys.exit(command(run))
