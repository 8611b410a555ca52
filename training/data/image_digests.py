"""Digests of image files, cached by the size and the times of each file."""

from __future__ import annotations

import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from sat_tf.files import sha256_of, write_atomically
from sat_tf.progress import progress_bar
from training.data.image_reader import READERS

_SHOWN = 10**9  # bytes to read from which on progress is shown: some seconds

_State = list[int]
"""Size, modification time and change time, nanoseconds.

`cp -p` and `rsync -t` set the modification time, by which alone a repaired copy could pass for the
broken file; nothing sets the change time.
"""


def image_digests(
    paths: Iterable[Path], cache_dir: Path, verbose: bool = True
) -> dict[Path, str | None]:
    """Computes the SHA-256 of files.

    What was found is kept in `CACHE/digests`, in a file for each folder of images. That only saves
    time: without it, or if it cannot be written, all files are read.

    Args:
        paths: The files.
        cache_dir: Folder of everything that can be computed again (`--cache-dir`).
        verbose: Show progress on standard error if there is much to read.

    Returns:
        Path -> hexadecimal digest; None for a file that cannot be read.
    """
    folders: dict[Path, list[Path]] = defaultdict(list)
    for path in paths:
        folders[path.parent].append(path)
    digests: dict[Path, str | None] = {}
    for folder, files in folders.items():
        digests |= _digests_of(folder, files, cache_dir, verbose)
    return digests


def _digests_of(
    folder: Path, files: list[Path], cache_dir: Path, verbose: bool
) -> dict[Path, str | None]:
    memory = _memory_of(folder, cache_dir)
    known = _read_memory(memory)
    states = {path: _state(path) for path in files}
    new = [path for path in files if states[path] and known.get(path.name, [])[:3] != states[path]]
    found = _read_all(new, sum(states[path][0] for path in new) > _SHOWN and verbose)
    known |= {p.name: [*states[p], digest] for p, digest in found.items() if digest}
    if found:
        _write_memory(memory, known)
    return {
        path: found[path] if path in found else known[path.name][3] if states[path] else None
        for path in files
    }


def _state(path: Path) -> _State | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def _read_all(paths: list[Path], shown: bool) -> dict[Path, str | None]:
    with (
        progress_bar(len(paths), "Reading images", "images", shown) as bar,
        ThreadPoolExecutor(READERS) as pool,
    ):
        found = {}
        for path, digest in zip(paths, pool.map(digest_of, paths), strict=True):
            found[path] = digest
            bar.update(1)
    return found


def digest_of(path: Path) -> str | None:
    """Computes the SHA-256 of a file, hexadecimal; None if it cannot be read."""
    try:
        return sha256_of(path)
    except OSError:
        return None


def _memory_of(folder: Path, cache_dir: Path) -> Path:
    name = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:16]
    return cache_dir / "digests" / f"{name}.json"


def _read_memory(path: Path) -> dict[str, list]:
    try:
        known = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _write_memory(path: Path, known: dict[str, list]) -> None:
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(known))
