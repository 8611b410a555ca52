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

from sat_tf.util.commands import progress_bar
from sat_tf.util.files import write_atomically

_READERS = 2
_SHOWN = 10**9  # bytes to read from which on progress is shown


def identify(paths: Iterable[Path], cache_dir: Path) -> list[str | None]:
    """Computes the SHA-256 of image files, each read once.

    What was found is kept in `CACHE/digests`, in a file for each folder of images. That only saves
    time: without it, or if it cannot be written, all files are read.

    Args:
        paths: The files.
        cache_dir: Folder of everything that can be computed again (`--cache-dir`).

    Returns:
        The digests (hexadecimal); None for a file that cannot be read.
    """
    folders: dict[str, dict[int, str]] = defaultdict(dict)  # folder -> place in the list -> name
    count = 0
    for count, path in enumerate(paths, start=1):  # noqa: B007
        folder, name = os.path.split(path)
        folders[folder][count - 1] = name
    found: list[str | None] = [None] * count
    for folder, names in folders.items():
        kept = hashlib.sha256(os.fsencode(os.path.realpath(folder))).hexdigest()[:16]
        file = cache_dir / "digests" / f"{kept}.json"
        of_name = _of_folder(folder, dict.fromkeys(names.values()), file)
        for place, name in names.items():
            found[place] = of_name[name]
    return found


def _of_folder(folder: str, names: Iterable[str], kept: Path) -> dict[str, str | None]:
    """Computes digests of files of a folder by name; the file `kept` has those known before."""
    known: dict[str, list] = {}  # name -> state and digest
    with contextlib.suppress(OSError, ValueError):
        read = json.loads(kept.read_bytes())
        known = read if isinstance(read, dict) else {}
    found: dict[str, str | None] = {}
    new: dict[str, list[int]] = {}
    for name in names:
        state = _state(os.path.join(folder, name))
        if state is None:
            found[name] = None
        elif known.get(name, [])[:-1] == state:
            found[name] = known[name][-1]
        else:
            new[name] = state
    shown = sum(size for size, *_ in new.values()) > _SHOWN
    with (
        progress_bar(len(new), "Reading images", "images", shown) as bar,
        ThreadPoolExecutor(_READERS) as pool,
    ):
        files = (os.path.join(folder, name) for name in new)
        for name, one in zip(new, pool.map(_digest_of, files), strict=True):
            found[name] = one
            bar.update(1)
    if new:
        known |= {name: [*state, found[name]] for name, state in new.items() if found[name]}
        with contextlib.suppress(OSError):
            kept.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(kept, json.dumps(known))
    return found


def _state(path: str) -> list[int] | None:
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


def _digest_of(path: str) -> str | None:
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError:
        return None
    return hashlib.sha256(content).hexdigest()
