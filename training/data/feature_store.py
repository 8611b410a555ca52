"""The feature store: annotations of a frozen encoder, computed once and read from disk.

A store is a folder `CACHE/features/FINGERPRINT` of shards (see `feature_shards`). The fingerprint
stands for all that its content depends on.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from sat_tf import images
from sat_tf.errors import invalid_value
from sat_tf.files import write_json
from sat_tf.layers.encoder import Encoder
from training.data.examples import DataError, Example, StoredImage
from training.data.feature_shards import Shards, write_missing
from training.data.image_files import identify
from training.tables import counted

if TYPE_CHECKING:
    from training.data.image_loader import Views

FORMAT = 3  # part of a store's fingerprint


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
        digests[place] = one and one.sha256
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
