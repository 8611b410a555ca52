"""The feature store: annotations of a frozen encoder, computed once and read from disk.

A store is a folder `CACHE/features/FINGERPRINT` of shards (see `feature_shards`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sat_tf import images
from sat_tf.errors import invalid_value
from sat_tf.layers.encoder import Encoder
from training.data.examples import DataError, Example, StoredImage
from training.data.extraction import write_missing
from training.data.feature_shards import Shards, plain_disk_errors, remove_stale, write_json
from training.data.image_digests import image_digests
from training.tables import counted

FORMAT = 3  # part of a store's fingerprint


class FeatureStore:
    """Annotations of a list of examples, read by their position in that list.

    Attributes:
        path: The store's folder.
        grid: `(h, w)` of an annotation map.
        annotation_dim: `D`.
        mirrored: Whether the views flipped left to right are stored too.
        skipped: Index -> reason of each image that could not be read; its record is zero. The
            file `skipped.json` in the store names them by their ids.
        rotated: Indices of the files that were turned upright according to their EXIF.
    """

    def __init__(self, shards: Shards, grid: tuple[int, int]) -> None:
        self.path = shards.path
        self.grid = grid
        self.annotation_dim = shards.record_shape[1]
        self.mirrored = shards.views == 2
        self.skipped: dict[int, str] = {}
        self.rotated: list[int] = []
        self._shards = shards
        self._lost: list[int] = []
        for shard in shards:
            notes = shards.notes(shard)
            self.skipped |= {int(index): why for index, why in notes["skipped"].items()}
            self.rotated += notes["rotated"]
            self._lost += notes.get("lost", ())  # earlier versions did not note them

    @classmethod
    def open(
        cls,
        cache_dir: Path,
        encoder: Encoder,
        examples: Sequence[Example],
        *,
        resize: str,
        mirrored: bool = False,
        batch_size: int | None = None,
        shard_size: int = 256,
        verbose: bool = True,
        write: Callable[..., None] | None = None,
    ) -> FeatureStore:
        """Opens the store of these examples under this encoder; computes what is missing.

        Args:
            cache_dir: Folder of all stores (`--cache-dir`).
            encoder: A frozen encoder.
            examples: The examples to annotate; their indices are the store's.
            resize: `crop` or `squash`, see `sat_tf.images.resize`.
            mirrored: Store the annotations of the flipped images too.
            batch_size: Images per call of the encoder; by default 8 without a GPU, which suits a
                CPU's cache, and 64 with one.
            shard_size: Images per file.
            verbose: Show progress on standard error.
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
        files = [each.image for each in examples if isinstance(each.image, Path)]
        digests = image_digests(files, Path(cache_dir), verbose)
        identity = fingerprint(encoder, examples, resize, mirrored, shard_size, digests)
        (height, width), dim = encoder.grid, encoder.annotation_dim
        path = Path(cache_dir) / "features" / identity[:16]
        shards = Shards(path, len(examples), 1 + mirrored, (height * width, dim), shard_size)
        manifest = _manifest(identity, encoder, resize, shards)
        with plain_disk_errors(path):
            path.mkdir(parents=True, exist_ok=True)
            remove_stale(path)
            shards.check_room()
            write_json(path / "manifest.json", manifest)
            (write or write_missing)(shards, encoder, examples, resize, batch_size, verbose)
            store = cls(shards, encoder.grid)
            store._check_lost(examples, digests)
            named = {examples[index].image_id: why for index, why in store.skipped.items()}
            write_json(path / "skipped.json", named)
        return store

    def _check_lost(self, examples: Sequence[Example], digests: Mapping[Path, str | None]) -> None:
        """Checks that the annotations are those of the content that the fingerprint stands for.

        Otherwise the shards in question are computed again when the store is opened next.
        """
        lost = [index for index in self._lost if digests.get(examples[index].image)]
        for index in lost:
            self._shards.discard(index // self._shards.shard_size)
        if lost:
            raise DataError(
                f"{counted(len(lost), 'image')} could be read at first, but not when "
                f"annotations were computed, such as {examples[lost[0]].image_id!r}, which "
                f"{self.skipped[lost[0]]}. Check the drive and start the same command again: the "
                "rest of the feature store is kept. Remove files that stay unreadable."
            )

    def __len__(self) -> int:
        return self._shards.count

    def read(self, indices: np.ndarray, mirrored: np.ndarray | None = None) -> np.ndarray:
        """Reads annotations; needs the memory of the result, whatever the store's size.

        Args:
            indices: `[n]` positions in the list of examples, in any order, with or without
                repetitions.
            mirrored: `[n]` booleans, True for the flipped view; None reads plain views.

        Returns:
            float16 `[n, L, D]`; zeros for a skipped image.

        Raises:
            IndexError: An index is out of range.
            ValueError: Flipped views are asked for but not stored.
            DataError: A file of the store is gone or too short.
        """
        indices = np.asarray(indices, np.int64).reshape(-1)
        if indices.size and not 0 <= indices.min() <= indices.max() < len(self):
            raise IndexError(f"The store holds {len(self)} images, got an index beyond them.")
        view = np.zeros(len(indices), np.int64) if mirrored is None else np.asarray(mirrored, int)
        if view.any() and not self.mirrored:
            expected = "None, as this store was opened without `mirrored=True`"
            raise invalid_value("mirrored", expected, mirrored)
        return self._shards.read(indices, view)


def _manifest(identity: str, encoder: Encoder, resize: str, shards: Shards) -> dict:
    return {
        "format": FORMAT,
        "fingerprint": identity,
        "images": shards.count,
        "shard_size": shards.shard_size,
        "views": ["plain", "mirrored"][: shards.views],
        "record": [*encoder.grid, encoder.annotation_dim],
        "dtype": "float16",
        "backbone": encoder.backbone,
        "tap": encoder.tap,
        "image_size": encoder.image_size,
        "resize": resize,
    }


def fingerprint(
    encoder: Encoder,
    examples: Sequence[Example],
    resize: str,
    mirrored: bool,
    shard_size: int,
    digests: Mapping[Path, str | None],
) -> str:
    """SHA-256 (hexadecimal) of everything that the content of a store depends on.

    The encoder's weights and layer, the preprocessing, and the images: their ids, and the stamp of
    records, the content of files (by `digests`, see `image_digests`) and of others. Times and
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
    for example in examples:
        digest.update(json.dumps(example.image_id).encode())
        source = example.image
        if isinstance(source, np.ndarray):
            _update_array(digest, source)
        elif isinstance(source, bytes):
            digest.update(hashlib.sha256(source).digest())
        else:
            stamp = source.stamp if isinstance(source, StoredImage) else digests[source]
            digest.update(json.dumps(stamp).encode())
    return digest.hexdigest()


def _update_array(digest: Any, array: np.ndarray) -> None:
    array = np.ascontiguousarray(array)
    digest.update(json.dumps([array.shape, str(array.dtype)]).encode())
    digest.update(array.tobytes())
