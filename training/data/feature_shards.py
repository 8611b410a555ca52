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

from sat_tf.files import NO_LOCKS, sync, write_json
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
        """Returns the file of a shard; its notes have the same name with the suffix .json."""
        return self.path / f"{shard:05d}.f16"

    def indices(self, shard: int) -> range:
        """Returns the indices of a shard's images."""
        start = shard * self.shard_size
        return range(start, min(start + self.shard_size, self.count))

    def is_done(self, shard: int) -> bool:
        """Returns True if a shard and its notes are complete."""
        expected = len(self.indices(shard)) * self.views * self.record_bytes
        try:
            return self.file(shard).stat().st_size == expected and "rotated" in self.notes(shard)
        except (OSError, ValueError):
            return False

    def missing(self) -> list[int]:
        """Returns the shards that are still to be written."""
        return [shard for shard in self if not self.is_done(shard)]

    def notes(self, shard: int) -> dict[str, Any]:
        """Reads the notes of a shard, see `ImageLoader.notes`."""
        return json.loads(self.file(shard).with_suffix(".json").read_text("utf-8"))

    def write_notes(self, shard: int, notes: dict[str, Any]) -> None:
        """Writes the notes of a shard, which make it complete."""
        write_json(self.file(shard).with_suffix(".json"), notes)

    def discard(self, shard: int) -> None:
        """Makes a shard one that is still to be written."""
        self.file(shard).with_suffix(".json").unlink(missing_ok=True)

    def prepare(self) -> None:
        """Makes the folder, removes what killed processes left behind more than a day ago.

        Raises:
            OSError: The disk has too little room for the missing shards.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        for temporary in (*self.path.glob("*.tmp"), *self.path.glob(".*.tmp")):
            with contextlib.suppress(OSError):
                if time.time() - temporary.stat().st_mtime > _STALE:
                    temporary.unlink()
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
            path = self.file(int(shards[rows[0]]))
            try:
                file = os.open(path, os.O_RDONLY)
            except OSError as error:
                why = error.strerror
                raise DataError(f"The feature store lost a file, {path}: {why}.") from error
            try:
                for row in rows:
                    if os.preadv(file, [out[row]], int(offsets[row])) != self.record_bytes:
                        raise DataError(f"A file of the feature store is too short: {path}.")
            finally:
                os.close(file)
        return out
