"""Captions by an export called directly: `python -m benchmarks.bulk_direct EXPORT BATCH THREADS`.

Reads paths of photographs, a line each, and prints `[path, caption, score]` in JSON for each; last,
the images per second after the first batch.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from serving.bulk.__main__ import find_version
from serving.bulk.worker import load, prepare


def main(export: str, batch_size: str, threads: str) -> None:
    """Runs the command."""
    size = int(batch_size)
    call = load(str(find_version(Path(export))), int(threads), False)
    paths = sys.stdin.read().splitlines()
    started = 0.0
    for first in range(0, len(paths), size):
        batch = paths[first : first + size]
        found = call([prepare(Path(path).read_bytes()) for path in batch])
        started = started or time.perf_counter()
        for path, captions, scores in zip(batch, found["captions"], found["scores"], strict=True):
            print(json.dumps([path, captions[0].decode(), float(scores[0])]))
    print((len(paths) - size) / (time.perf_counter() - started))


if __name__ == "__main__":
    main(*sys.argv[1:])
