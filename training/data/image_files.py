"""Identity of image files by their content; each file is read once."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from sat_tf.files import write_atomically
from sat_tf.progress import progress_bar
from training.data.seen_images import content_key

_READERS = 2
_SHOWN = 10**9  # bytes to read from which on progress is shown


class Identity(NamedTuple):
    """An image file's content: its SHA-256 (hexadecimal), and `seen_images.content_key`."""

    sha256: str
    key: int


def identify(paths: Iterable[Path], cache_dir: Path) -> dict[Path, Identity | None]:
    """Reads image files, each once, for what they are.

    What was found is kept in `CACHE/digests`, in a file for each folder of images. That only saves
    time: without it, or if it cannot be written, all files are read.

    Args:
        paths: The files.
        cache_dir: Folder of everything that can be computed again (`--cache-dir`).

    Returns:
        Path -> identity; None for a file that cannot be read.
    """
    folders: dict[Path, list[Path]] = defaultdict(list)
    for path in paths:
        folders[path.parent].append(path)
    found: dict[Path, Identity | None] = {}
    for folder, files in folders.items():
        name = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:16]
        found |= _of_folder(files, cache_dir / "digests" / f"{name}.json")
    return found


def _of_folder(files: list[Path], kept: Path) -> dict[Path, Identity | None]:
    """Identifies the files of a folder; the file `kept` has those known before."""
    known: dict[str, list] = {}  # name -> state and identity
    with contextlib.suppress(OSError, ValueError):
        read = json.loads(kept.read_text("utf-8"))
        known = read if isinstance(read, dict) else {}
    states = {path: _state(path) for path in files}
    new = [path for path in files if states[path] and known.get(path.name, [])[:-2] != states[path]]
    shown = sum(states[path][0] for path in new) > _SHOWN
    computed: dict[Path, Identity | None] = {}
    with (
        progress_bar(len(new), "Reading images", "images", shown) as bar,
        ThreadPoolExecutor(_READERS) as pool,
    ):
        for path, one in zip(new, pool.map(_identity_of, new), strict=True):
            computed[path] = one
            bar.update(1)
    known |= {p.name: [*states[p], *one] for p, one in computed.items() if one}
    if computed:
        with contextlib.suppress(OSError):
            kept.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(kept, json.dumps(known))
    before = {
        p: Identity(*known[p.name][-2:]) if states[p] else None for p in files if p not in computed
    }
    return computed | before


def _state(path: Path) -> list[int] | None:
    """Returns size, modification and change time in nanoseconds, and inode; None without a file.

    `cp -p` and `rsync -t` set the modification time, by which alone a repaired copy could pass for
    the broken file; nothing sets the change time. Two files may have all times in common, and one
    can take the other's name, or a link that leads to it be set to the other.
    """
    try:
        status = os.stat(path)
    except OSError:
        return None
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]


def _identity_of(path: Path) -> Identity | None:
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError:
        return None
    return Identity(hashlib.sha256(content).hexdigest(), content_key(content))
