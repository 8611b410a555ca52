"""The feature store: annotations of a frozen encoder, computed once and read from disk.

A store is a file `CACHE/features/ID.f16` of raw float16 records, mapped into memory, with its notes
in `ID.json`: how many records are done, and which images cannot be read. A record has one view of
an image, or two with mirrored views (the plain one first). ID stands for all that the content
depends on: encoder, preprocessing and the content of the images. One process fills a store, and
others wait for it; the notes are written after the records that they count, so that a process
that is killed loses the records after the last notes, and a store counts as whole if its notes do.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
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
from sat_tf.util.files import NO_LOCKS, write_json
from training.data.dataset import identified
from training.data.examples import DataError, Example, StoredImage
from training.data.image_loader import ImageLoader, Views

FORMAT = 4  # part of a store's fingerprint
BLOCK = 256
"""Images between two notes: what a killed process computes again at most."""

_HALF_MAX = float(np.finfo(np.float16).max)


def compile_encoder(encoder: Encoder, batch_size: int) -> Callable[[np.ndarray], np.ndarray]:
    """Compiles the encoder for one batch size.

    Returns:
        Function from pixels `[batch_size, S, S, 3]` to float16 `[batch_size, L, D]`, where NaN
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


@dataclass(frozen=True)
class Records:
    """The file of a store and its notes."""

    path: Path  # the file; its notes have the suffix .json
    fingerprint: str  # all that the content depends on, see `fingerprint`
    shape: tuple[int, int, int, int]  # `(images, views, L, D)`

    @property
    def record_bytes(self) -> int:
        """Size of the record of an image."""
        return 2 * int(np.prod(self.shape[1:]))

    def notes(self) -> dict[str, Any]:
        """Reads the notes; those of a store without records if they or records are gone."""
        empty = {"fingerprint": self.fingerprint, "done": 0, "skipped": {}, "rotated": []}
        try:
            notes = json.loads(self.path.with_suffix(".json").read_text("utf-8"))
            whole = self.path.stat().st_size >= notes["done"] * self.record_bytes
            return notes if whole and notes["fingerprint"] == self.fingerprint else empty
        except (OSError, ValueError, KeyError, TypeError):
            return empty

    def is_whole(self) -> bool:
        """Returns True if all records are there."""
        count = self.shape[0]
        whole = self.notes()["done"] == count
        return whole and self.path.stat().st_size == count * self.record_bytes

    @contextlib.contextmanager
    def exclusively(self) -> Iterator[None]:
        """Waits until no other process fills the store.

        The operating system ends the lock however its owner ends. On a file system without locks
        some records are computed twice.
        """
        lock = filelock.FileLock(self.path.with_suffix(".lock"), fallback_to_soft=False)
        try:
            lock.acquire()
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
        try:
            yield
        finally:
            lock.release()


def fill(records: Records, encoder: Encoder, examples: Sequence[Example], resize: str) -> None:
    """Computes the records that a store lacks.

    Raises:
        DataError: The content of an image is not the one that was hashed.
        OSError: The disk has too little room.
    """
    notes, count = records.notes(), records.shape[0]
    left = range(notes["done"], count)
    free = shutil.disk_usage(records.path.parent).free
    if (needed := len(left) * records.record_bytes) > free:
        raise OSError(errno.ENOSPC, f"{needed / 1e9:.2f} GB are needed")
    loader = ImageLoader(examples, encoder.image_size, resize)
    with (
        open(os.open(records.path, os.O_RDWR | os.O_CREAT, 0o644), "r+b") as file,
        progress_bar(count, "Annotations", "images", done=left.start) as bar,
    ):
        file.seek(left.start * records.record_bytes)
        done, noted = left.start, left.start
        for block in annotated(encoder, loader, examples, left, records.shape[1]):
            file.write(block.reshape(-1).data)
            done += len(block)
            bar.update(len(block))
            if done - noted >= BLOCK or done == count:
                file.flush()
                os.fsync(file.fileno())
                skipped = {str(i): loader.skipped[i] for i in sorted(loader.skipped) if i < done}
                now = {
                    "done": done,
                    "skipped": notes["skipped"] | skipped,
                    "rotated": notes["rotated"] + [i for i in sorted(loader.rotated) if i < done],
                }
                write_notes(records, notes | now)
                noted = done
        file.truncate(count * records.record_bytes)


def annotated(
    encoder: Encoder, loader: ImageLoader, examples: Sequence[Example], left: range, views: int
) -> Iterator[np.ndarray]:
    """Yields the records float16 `[n, views, L, D]` of batches of images; 0 where unreadable.

    Raises:
        DataError: The content of an image is not the one that was hashed.
    """
    batch_size, start = default_batch_size(), left.start
    annotate = compile_encoder(encoder, batch_size)
    for pixels, valid in loader.batches(left, batch_size):
        batch = range(start, start + len(valid))
        start = batch.stop
        for index, readable in zip(batch, valid, strict=True):
            # An image that could not be hashed has no content that the store could be of.
            if index in loader.changed or (readable and not is_known(examples[index])):
                raise DataError(
                    f"The image {examples[index].image_id!r} changed, vanished or appeared after "
                    "it was first read. Check the drive, wait until all images are copied and "
                    "start the same command again: the rest of the feature store is kept."
                )
        seen = [pixels, pixels[:, :, ::-1]][:views]
        block = np.stack([annotate(view) for view in seen], axis=1)[: len(valid)]
        block[~valid] = 0
        yield block


def write_notes(records: Records, notes: dict[str, Any]) -> None:
    """Writes the notes of a store, of records that are on the disk."""
    write_json(records.path.with_suffix(".json"), notes)


def is_known(example: Example) -> bool:
    """Returns True if the content of an image is in the fingerprint of its store."""
    image = example.image
    outside = isinstance(image, StoredImage) and image.container is None
    return example.sha256 is not None or outside or isinstance(image, np.ndarray)


class FeatureStore:
    """Annotations of a list of examples, read by position in that list: an `InputSource`.

    The record of an image that could not be read is zero.
    """

    key, random_crop = "annotations", 0.0

    def __init__(self, records: Records) -> None:
        self.path = records.path
        count, views, *record = records.shape
        self.mirrored = views == 2
        notes = records.notes()
        self.known = {int(index): why for index, why in notes["skipped"].items()}
        self.rotated: list[int] = notes["rotated"]
        self.spec = tf.TensorSpec([None, *record], tf.float16)
        self._file = self.path.open("rb")
        self._records = np.memmap(self._file, np.float16, "r", shape=records.shape)

    @classmethod
    def open(
        cls,
        cache_dir: Path,
        encoder: Encoder,
        examples: Sequence[Example],
        *,
        resize: str,
        mirrored: bool = False,
    ) -> FeatureStore:
        """Opens the store of these examples under this encoder; computes missing records.

        Args:
            cache_dir: Folder of all stores (`--cache-dir`).
            encoder: A frozen encoder.
            examples: The examples to annotate; their indices are the store's.
            resize: `crop` or `squash`, see `sat_tf.images.decoding.resize`.
            mirrored: Store the annotations of the flipped images too.

        Raises:
            DataError: No examples, or no room for the store; or an image is not the one
                that was hashed.
            ValueError: The encoder is trainable, so its annotations will change.
        """
        if not examples:
            raise DataError("Received an invalid value for argument `examples`: it is empty.")
        if encoder.trainable:
            expected = "a frozen encoder (`--encoder.trainable False`)"
            raise invalid_value("encoder", expected, "one that is trained")
        if not all(map(is_known, examples)):
            examples = identified(examples, Path(cache_dir))
        identity = fingerprint(encoder, examples, resize, mirrored)
        (height, width), dim = encoder.grid, encoder.annotation_dim
        path = Path(cache_dir) / "features" / f"{identity[:16]}.f16"
        shape = (len(examples), 1 + mirrored, height * width, dim)
        records = Records(path, identity, shape)
        try:
            if not records.is_whole():
                path.parent.mkdir(parents=True, exist_ok=True)
                with records.exclusively():
                    if not records.is_whole():
                        fill(records, encoder, examples, resize)
            return cls(records)
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            raise DataError(
                f"{'No room for the' if full else 'Cannot write the'} feature store {path}: "
                f"{error}. Finished parts are kept: free some space, or choose another folder "
                "(`--cache-dir`)."
            ) from error

    @property
    def skipped(self) -> dict[int, str]:
        """See `InputSource`; all images were read when the store was filled."""
        return self.known

    found = skipped

    def __len__(self) -> int:
        return len(self._records)

    def read(self, indices: np.ndarray, views: Views | None = None) -> np.ndarray:
        """Reads float16 `[n, L, D]`, in the memory of the result, whatever the store's size.

        Args:
            indices: `[n]`, in any order, with or without repetitions.
            views: Views of the images; mirroring is the only one that is stored, if it is.

        Raises:
            IndexError: An index is out of range.
            DataError: The file was cut while it was in use.
        """
        indices = np.asarray(indices, np.int64).reshape(-1)
        if indices.size and not 0 <= indices.min() <= indices.max() < len(self):
            raise IndexError(f"The store holds {len(self)} images, got an index beyond them.")
        if os.fstat(self._file.fileno()).st_size < self._records.nbytes:
            raise DataError(f"The feature store {self.path} was cut while it was in use.")
        view = np.zeros(len(indices), np.int64)
        if views is not None and self.mirrored:
            view += views.mirrored
        return np.asarray(self._records[indices, view])


def fingerprint(encoder: Encoder, examples: Sequence[Example], resize: str, mirrored: bool) -> str:
    """Returns the SHA-256 (hexadecimal) of everything that the content of a store depends on.

    The encoder's weights and layer, the preprocessing, and the content of the images in their
    order. Names, times and places of files do not count: a copy of a data set has the same store.
    """
    digest = hashlib.sha256()
    policy = encoder.dtype_policy
    settings = {
        "format": [FORMAT, images.VERSION, mirrored],
        "encoder": [encoder.backbone, encoder.tap, encoder.image_size],
        "resize": resize,
        "dtypes": [policy.compute_dtype, policy.variable_dtype],
    }
    digest.update(json.dumps(settings).encode())
    for weight in encoder.weights:
        _update_array(digest, np.asarray(weight))
    for example in examples:
        source = example.image
        if isinstance(source, np.ndarray):
            _update_array(digest, source)
        else:
            named = isinstance(source, StoredImage) and example.sha256 is None
            digest.update(json.dumps(source.stamp if named else example.sha256).encode())
    return digest.hexdigest()


def _update_array(digest: Any, array: np.ndarray) -> None:
    array = np.ascontiguousarray(array)
    digest.update(json.dumps([array.shape, str(array.dtype)]).encode())
    digest.update(array.tobytes())
