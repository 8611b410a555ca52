"""The feature store: annotations of a frozen encoder, computed once and read from disk.

A store is a folder `CACHE/features/FINGERPRINT` of shards, computed one by one.
The fingerprint stands for all that its content depends on. A shard has raw float16 records, with
its notes beside it, a small JSON file that names the unreadable images. A record has one view per
image, or two with mirrored views (the plain one first). Files appear by a rename, so a store that
was interrupted, or is built by two processes at once, has whole shards only. Processes that build
it together claim a shard before they compute it.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import filelock
import numpy as np
import tensorflow as tf

from sat_tf import images
from sat_tf.layers.encoder import Encoder
from sat_tf.util.commands import progress_bar
from sat_tf.util.errors import invalid_value
from sat_tf.util.files import NO_LOCKS, sync, write_json
from sat_tf.util.text_tables import counted
from training.data.examples import DataError, Example, StoredImage
from training.data.image_files import identify
from training.data.image_loader import ImageLoader, Views

FORMAT = 3  # part of a store's fingerprint

_STALE = 24 * 3600.0  # seconds after which no process uses a temporary file any more
_HALF_MAX = float(np.finfo(np.float16).max)


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

    def write(
        self, shard: int, blocks: Iterator[np.ndarray], notes: Callable[[], dict[str, Any]]
    ) -> None:
        """Writes the records of a shard, block by block, and its notes, which make it complete."""
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
        write_json(path.with_suffix(".json"), notes())

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


def compile_encoder(encoder: Encoder, batch_size: int) -> Callable[[np.ndarray], np.ndarray]:
    """Compiles the encoder for one batch size.

    Returns:
        Function from pixels `[batch_size, S, S, 3]` to float16 `[batch_size, L, D]`, in which NaN
        is 0 and infinity is the largest number.
    """
    size = encoder.image_size

    # XLA made convolutions ten times slower on a CPU.
    @tf.function(
        input_signature=[tf.TensorSpec([batch_size, size, size, 3], tf.float32)],
        autograph=False,
        jit_compile=False,
    )
    def annotate(pixels):
        annotations = tf.cast(encoder(pixels, training=False), tf.float32)
        annotations = tf.where(tf.math.is_nan(annotations), 0.0, annotations)
        return tf.cast(tf.clip_by_value(annotations, -_HALF_MAX, _HALF_MAX), tf.float16)

    return lambda pixels: annotate(pixels).numpy()


def default_batch_size() -> int:
    """Returns the images per call of an encoder that suit a CPU's cache, or a GPU."""
    return 64 if tf.config.list_physical_devices("GPU") else 8


class ShardWriter:
    """Computes shards with one encoder.

    Args:
        encoder: A frozen encoder.
        resize: `crop` or `squash`.
    """

    def __init__(self, encoder: Encoder, resize: str) -> None:
        self._size, self._resize = encoder.image_size, resize
        self._batch_size = default_batch_size()
        self._annotate = compile_encoder(encoder, self._batch_size)

    def write(
        self,
        shards: Shards,
        shard: int,
        examples: Mapping[int, Example] | Sequence[Example],
        advance: Callable[[int], object] = lambda count: None,
    ) -> None:
        """Computes and writes a shard and its notes, by the examples of at least the shard.

        `advance` is told the number of images after each batch.
        """
        loader, indices = ImageLoader(examples, self._size, self._resize), shards.indices(shard)

        def blocks() -> Iterator[np.ndarray]:
            for pixels, valid in loader.batches(indices, self._batch_size):
                views = [pixels, pixels[:, :, ::-1]][: shards.views]
                annotated = np.stack([self._annotate(view) for view in views], axis=1)[: len(valid)]
                annotated[~valid] = 0
                yield annotated
                advance(len(valid))

        shards.write(shard, blocks(), lambda: loader.notes(indices))


def write_missing(
    shards: Shards,
    encoder: Encoder,
    examples: Sequence[Example],
    resize: str,
) -> None:
    """Computes the shards that a store lacks, sharing them with other processes.

    Returns when all are there, those of the others included; see `FeatureStore.open`.
    """
    missing = shards.missing()
    if not missing:
        return
    writer = ShardWriter(encoder, resize)
    total = sum(len(shards.indices(shard)) for shard in missing)
    with progress_bar(total, "Annotations", "images") as bar:
        # First what nobody else computes, then what others began: they may die.
        for wait in (False, True):
            elsewhere = []
            for shard in missing:
                with shards.claim(shard, wait) as mine:
                    if not mine:
                        elsewhere.append(shard)
                    elif shards.is_done(shard):
                        bar.update(len(shards.indices(shard)))
                    else:
                        writer.write(shards, shard, examples, bar.update)
            missing = elsewhere


class FeatureStore:
    """Annotations of a list of examples, read by their position in that list: an `InputSource`.

    Attributes:
        path: The store's folder.
        mirrored: Whether the views flipped left to right are stored too.
        skipped: Index -> reason of each image that could not be read; its record is zero. The
            file `skipped.json` in the store names them by their ids.
        rotated: Indices of the files that were turned upright according to their EXIF.
        spec: Shape and dtype of a batch.
    """

    key, random_crop = "annotations", 0.0

    def __init__(self, shards: Shards) -> None:
        self.path = shards.path
        self.mirrored = shards.views == 2
        self.known: dict[int, str] = {}
        self.rotated: list[int] = []
        self.spec = tf.TensorSpec([None, *shards.record_shape], tf.float16)
        self._shards = shards
        self._lost: list[int] = []
        for shard in shards:
            notes = shards.notes(shard)
            self.known |= {int(index): why for index, why in notes["skipped"].items()}
            self.rotated += notes["rotated"]
            self._lost += notes["lost"]

    @classmethod
    def open(
        cls,
        cache_dir: Path,
        encoder: Encoder,
        examples: Sequence[Example],
        *,
        resize: str,
        mirrored: bool = False,
        shard_size: int = 256,
        write: Callable[..., None] | None = None,
    ) -> FeatureStore:
        """Opens the store of these examples under this encoder; computes what is missing.

        Args:
            cache_dir: Folder of all stores (`--cache-dir`).
            encoder: A frozen encoder.
            examples: The examples to annotate; their indices are the store's.
            resize: `crop` or `squash`, see `sat_tf.images.resizing.resize`.
            mirrored: Store the annotations of the flipped images too.
            shard_size: Images per file.
            write: Takes the place of `write_missing`, to compute elsewhere.

        Raises:
            DataError: There are no examples, or no room for the store; or an image could be read
                when it was hashed, but not afterwards.
            ValueError: The encoder is trainable, so its annotations will change.
        """
        if not examples:
            raise DataError("Received an invalid value for argument `examples`: it is empty.")
        if encoder.trainable:
            expected = "a frozen encoder (`--encoder.trainable False`)"
            raise invalid_value("encoder", expected, "one that is trained")
        digests = _digests(examples, Path(cache_dir))
        identity = fingerprint(encoder, examples, resize, mirrored, shard_size, digests)
        (height, width), dim = encoder.grid, encoder.annotation_dim
        path = Path(cache_dir) / "features" / identity[:16]
        shards = Shards(path, len(examples), 1 + mirrored, (height * width, dim), shard_size)
        manifest = {
            "format": FORMAT,
            "fingerprint": identity,
            "images": len(examples),
            "shard_size": shard_size,
            "views": ["plain", "mirrored"][: shards.views],
            "record": [height, width, dim],
            "dtype": "float16",
            "backbone": encoder.backbone,
            "tap": encoder.tap,
            "image_size": encoder.image_size,
            "resize": resize,
        }
        with _plain_disk_errors(path):
            shards.prepare()
            _write_changed(path / "manifest.json", manifest)
            (write or write_missing)(shards, encoder, examples, resize)
            store = cls(shards)
            store._check_lost(examples, digests)
            named = {examples[index].image_id: why for index, why in store.skipped.items()}
            _write_changed(path / "skipped.json", named)
        return store

    def _check_lost(self, examples: Sequence[Example], digests: Sequence[str | None]) -> None:
        """Checks that the annotations are those of the content that the fingerprint stands for.

        Otherwise the shards in question are computed again when the store is opened next.
        """
        lost = [index for index in self._lost if digests[index] is not None]
        for index in lost:
            self._shards.discard(index // self._shards.shard_size)
        if lost:
            raise DataError(
                f"{counted(len(lost), 'image')} could be read at first, but not when "
                f"annotations were computed, such as {examples[lost[0]].image_id!r}, which "
                f"{self.skipped[lost[0]]}. Check the drive and start the same command again: the "
                "rest of the feature store is kept. Remove files that stay unreadable."
            )

    @property
    def skipped(self) -> dict[int, str]:
        """See `InputSource`; all images were read when the store was filled."""
        return self.known

    found = skipped

    def __len__(self) -> int:
        return self._shards.count

    def read(self, indices: np.ndarray, views: Views | None = None) -> np.ndarray:
        """Reads float16 `[n, L, D]`, in the memory of the result, whatever the store's size.

        Args:
            indices: `[n]`, in any order, with or without repetitions.
            views: Views of the images; mirroring is the only one that is stored, if it is.

        Raises:
            IndexError: An index is out of range.
            DataError: A file of the store is gone or too short.
        """
        indices = np.asarray(indices, np.int64).reshape(-1)
        if indices.size and not 0 <= indices.min() <= indices.max() < len(self):
            raise IndexError(f"The store holds {len(self)} images, got an index beyond them.")
        view = np.zeros(len(indices), np.int64)
        if views is not None and self.mirrored:
            view += views.mirrored
        return self._shards.read(indices, view)


def _digests(examples: Sequence[Example], cache_dir: Path) -> list[str | None]:
    """Returns the SHA-256 of each example's file; None without one, or if it cannot be read."""
    digests = [each.sha256 for each in examples]
    places = [
        place
        for place, each in enumerate(examples)
        if each.sha256 is None and isinstance(each.image, Path)
    ]
    found = identify((examples[place].image for place in places), cache_dir)
    for place, one in zip(places, found, strict=True):
        digests[place] = one
    return digests


def _write_changed(path: Path, content: dict[str, Any]) -> None:
    """Writes a JSON file, unless it has this content: a finished store may be read-only."""
    with contextlib.suppress(OSError, ValueError):
        if json.loads(path.read_text("utf-8")) == content:
            return
    write_json(path, content)


@contextlib.contextmanager
def _plain_disk_errors(path: Path) -> Iterator[None]:
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


def fingerprint(
    encoder: Encoder,
    examples: Sequence[Example],
    resize: str,
    mirrored: bool,
    shard_size: int,
    digests: Sequence[str | None],
) -> str:
    """Returns the SHA-256 (hexadecimal) of everything that the content of a store depends on.

    The encoder's weights and layer, the preprocessing, and the images: their ids, and the stamp of
    records, the content of files (by `digests`, SHA-256) and of others. Times and
    places of files do not count: a copy of a data set has the same store.
    """
    digest = hashlib.sha256()
    policy = encoder.dtype_policy
    settings = {
        "format": [FORMAT, images.VERSION, shard_size, mirrored],
        "encoder": [encoder.backbone, encoder.tap, encoder.image_size],
        "resize": resize,
        "dtypes": [policy.compute_dtype, policy.variable_dtype],
    }
    digest.update(json.dumps(settings).encode())
    for weight in encoder.weights:
        _update_array(digest, np.asarray(weight))
    for example, sha256 in zip(examples, digests, strict=True):
        digest.update(json.dumps(example.image_id).encode())
        source = example.image
        if isinstance(source, np.ndarray):
            _update_array(digest, source)
        else:
            stamp = source.stamp if isinstance(source, StoredImage) else sha256
            digest.update(json.dumps(stamp).encode())
    return digest.hexdigest()


def _update_array(digest: Any, array: np.ndarray) -> None:
    array = np.ascontiguousarray(array)
    digest.update(json.dumps([array.shape, str(array.dtype)]).encode())
    digest.update(array.tobytes())
