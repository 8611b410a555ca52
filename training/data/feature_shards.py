"""The files of a feature store: shards of raw float16 records, each beside its notes.

A record has one view per image, or two with mirrored views (the plain one first). The notes are a
small JSON file that names the unreadable images. Files appear by a rename, so a store that was
interrupted, or is built by two processes at once, has whole shards only. Processes that build it
together claim a shard before they compute it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import filelock
import numpy as np

from sat_tf.files import NO_LOCKS, sync, write_atomically
from training.data.examples import DataError

_STALE = 24 * 3600.0  # seconds after which no process uses a temporary file any more


@dataclass(frozen=True)
class Shards:
    """Shards of a store: names, sizes, and which of them are finished.

    Attributes:
        path: The store's folder.
        count: Number of images.
        views: Views per image, 1 or 2.
        record_shape: `(L, D)` of the annotations of a view.
        shard_size: Images per shard.
    """

    path: Path
    count: int
    views: int
    record_shape: tuple[int, int]
    shard_size: int

    @property
    def record_bytes(self) -> int:
        """Size of a view's annotations."""
        return 2 * self.record_shape[0] * self.record_shape[1]

    def __iter__(self) -> Iterator[int]:
        return iter(range(-(-self.count // self.shard_size)))

    def file(self, shard: int) -> Path:
        """The file of a shard; its notes have the same name with the suffix .json."""
        return self.path / f"{shard:05d}.f16"

    def indices(self, shard: int) -> range:
        """Indices of a shard's images."""
        start = shard * self.shard_size
        return range(start, min(start + self.shard_size, self.count))

    def is_done(self, shard: int) -> bool:
        """True if a shard and its notes are complete."""
        expected = len(self.indices(shard)) * self.views * self.record_bytes
        try:
            return self.file(shard).stat().st_size == expected and "rotated" in self.notes(shard)
        except (OSError, ValueError):
            return False

    def missing(self) -> list[int]:
        """The shards that are still to be written."""
        return [shard for shard in self if not self.is_done(shard)]

    def notes(self, shard: int) -> dict[str, Any]:
        """The notes of a shard, see `ImageLoader.notes`."""
        return json.loads(self.file(shard).with_suffix(".json").read_text("utf-8"))

    def discard(self, shard: int) -> None:
        """Makes a shard one that is still to be written."""
        self.file(shard).with_suffix(".json").unlink(missing_ok=True)

    def check_room(self) -> None:
        """Checks that the disk has room for the missing shards.

        Raises:
            OSError: There is too little room.
        """
        images = sum(len(self.indices(shard)) for shard in self.missing())
        needed = images * self.views * self.record_bytes
        if needed > shutil.disk_usage(self.path).free:
            raise OSError(errno.ENOSPC, f"{needed / 1e9:.2f} GB are needed")

    @contextlib.contextmanager
    def claim(self, shard: int, wait: bool = True) -> Iterator[bool]:
        """Keeps other processes from computing a shard; the next owner has to see if it is done.

        The operating system ends the claim however the process ends. On a file system without
        locks everybody has it, and some shards are computed twice.

        Args:
            shard: Number of the shard.
            wait: Wait while another process has it; otherwise yield False.
        """
        file = self.file(shard).with_suffix(".lock")
        lock = filelock.FileLock(file, timeout=-1 if wait else 0, fallback_to_soft=False)
        try:
            lock.acquire()
        except filelock.Timeout:
            yield False
            return
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
        try:
            yield True
        finally:
            file.unlink(missing_ok=True)
            lock.release()

    def write(self, shard: int, blocks: Iterator[np.ndarray]) -> None:
        """Writes the records of a shard, block by block; its notes are to follow."""
        path = self.file(shard)
        temporary = path.with_name(f"{path.name}.{os.getpid()}-{uuid.uuid4().hex[:8]}.tmp")
        try:
            with temporary.open("wb") as file:
                for block in blocks:
                    file.write(block.reshape(-1).data)
            sync(temporary)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)

    def read(self, indices: np.ndarray, view: np.ndarray) -> np.ndarray:
        """Reads the annotations float16 `[n, L, D]` of images `[n]` in views `[n]`.

        Raises:
            DataError: A file is gone or too short.
        """
        shards, places = np.divmod(indices, self.shard_size)
        offsets = (places * self.views + view) * self.record_bytes
        out = np.empty((len(indices), *self.record_shape), np.float16)
        order = np.lexsort((offsets, shards))
        bounds = np.flatnonzero(np.diff(shards[order])) + 1
        for rows in np.split(order, bounds) if len(order) else ():
            self._read_rows(self.file(int(shards[rows[0]])), rows, offsets, out)
        return out

    def _read_rows(
        self, path: Path, rows: np.ndarray, offsets: np.ndarray, out: np.ndarray
    ) -> None:
        try:
            file = os.open(path, os.O_RDONLY)
        except OSError as error:
            raise DataError(f"The feature store lost a file, {path}: {error.strerror}.") from error
        try:
            for row in rows:
                if os.preadv(file, [out[row]], int(offsets[row])) != self.record_bytes:
                    raise DataError(f"A file of the feature store is too short: {path}.")
        finally:
            os.close(file)


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Writes a JSON file, unless it has this content: a finished store may be read-only."""
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    with contextlib.suppress(OSError, ValueError):
        if path.read_text("utf-8") == text:
            return
    write_atomically(path, text)


def remove_stale(path: Path) -> None:
    """Removes the temporary files that killed processes left behind more than a day ago."""
    for temporary in (*path.glob("*.tmp"), *path.glob(".*.tmp")):
        with contextlib.suppress(OSError):
            if time.time() - temporary.stat().st_mtime > _STALE:
                temporary.unlink()


@contextlib.contextmanager
def plain_disk_errors(path: Path) -> Iterator[None]:
    """Turns an OSError into a DataError that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DataError(
                f"No room for the feature store in {path} ({error.strerror}). Finished parts are "
                "kept: free some space and start again, or choose another folder (`--cache-dir`)."
            ) from error
        raise DataError(
            f"The feature store in {path} cannot be written: {error}. Choose another folder "
            "(`--cache-dir`)."
        ) from error
