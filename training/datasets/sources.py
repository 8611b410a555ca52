"""What a captioner is fed: pictures, or their stored annotations, and batches of captions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

import numpy as np
import tensorflow as tf

from sat_tf import images
from sat_tf.layers.encoder import Encoder
from training.datasets.base import DataError, Example, Split, StoredImage
from training.datasets.batches import CaptionTable, pad_tokens, plan_epoch
from training.datasets.features import FeatureStore

_READERS = 2


class Source(Protocol):
    """Gives the model's input for examples of a split, by their index."""

    key: str
    """Name of the input in a batch: `annotations` or `images`."""
    mirrored: bool
    """Whether it has mirrored views."""
    set_aside: dict[int, str]
    """Examples that cannot be read, index -> reason."""
    rotated: list[int]
    """Files that are turned upright, as their EXIF asks."""
    spec: tf.TensorSpec
    """Of a batch."""

    def read(self, indices: np.ndarray, mirrored: np.ndarray | None = None) -> np.ndarray:
        """Inputs `[n, ...]` of examples `[n]`; `mirrored` bool `[n]` picks the view."""
        ...


class AnnotationSource:
    """Annotations of a frozen encoder, from the feature store."""

    key = "annotations"

    def __init__(self, store: FeatureStore) -> None:
        self._store = store
        self.mirrored, self.set_aside = store.mirrored, store.set_aside
        self.rotated = store.rotated
        height, width = store.grid
        self.spec = tf.TensorSpec([None, height * width, store.annotation_dim], tf.float16)

    def read(self, indices: np.ndarray, mirrored: np.ndarray | None = None) -> np.ndarray:
        """float16 `[n, L, D]`."""
        return self._store.read(indices, mirrored)


class ImageSource:
    """Pictures for an encoder that is trained; read again each time, so memory stays bounded.

    Drawn pictures are held as they are. Files are decoded once when the source is made, to set
    aside what cannot be read before training starts.
    """

    key = "images"

    def __init__(
        self, examples: tuple[Example, ...], size: int, resize: str, mirrored: bool = False
    ) -> None:
        self._examples, self._size, self._resize = examples, size, resize
        self.mirrored = mirrored
        self.set_aside: dict[int, str] = {}
        self.rotated: list[int] = []
        self.spec = tf.TensorSpec([None, size, size, 3], tf.uint8)
        self._pool = ThreadPoolExecutor(_READERS)
        self._drawn = _drawn_pictures(examples, size)
        if self._drawn is None:
            list(self._pool.map(self._check, range(len(examples))))

    def read(self, indices: np.ndarray, mirrored: np.ndarray | None = None) -> np.ndarray:
        """uint8 `[n, size, size, 3]`."""
        if self._drawn is not None:
            pixels = self._drawn[indices]
        else:
            pixels = np.stack(list(self._pool.map(self._load, indices)))
        if mirrored is not None and mirrored.any():
            pixels = np.where(mirrored[:, None, None, None], pixels[:, :, ::-1], pixels)
        return pixels

    def _load(self, index: int) -> np.ndarray:
        picture = self._examples[index].image
        if isinstance(picture, np.ndarray):
            pixels = images.resize(picture, self._size, self._resize)
        else:
            pixels = images.load(images.upright(_content(picture)), self._size, self._resize)
        return np.round(pixels.numpy()).astype(np.uint8)

    def _check(self, index: int) -> None:
        try:
            self._load(index)
            picture = self._examples[index].image
            if not isinstance(picture, np.ndarray) and images.is_rotated(_content(picture)):
                self.rotated.append(index)
        except OSError as error:
            self.set_aside[index] = f"cannot be read: {error.strerror or error}"
        except (tf.errors.OpError, ValueError) as error:
            self.set_aside[index] = images.read_error(error)


def _content(picture: Path | StoredImage | bytes) -> bytes:
    return picture if isinstance(picture, bytes) else picture.read_bytes()


def _drawn_pictures(examples: tuple[Example, ...], size: int) -> np.ndarray | None:
    """All pictures as one array, where they are arrays of the right size already."""
    if all(isinstance(e.image, np.ndarray) and e.image.shape == (size, size, 3) for e in examples):
        return np.stack([example.image for example in examples])
    return None


def open_source(
    encoder: Encoder, resize: str, split: Split, cache_dir: Path, mirrored: bool = False
) -> Source:
    """Stored annotations when the encoder is frozen, else pictures.

    Args:
        encoder: Of the captioner.
        resize: `crop` or `squash`.
        split: Whose examples to read.
        cache_dir: Where feature stores live.
        mirrored: Have mirrored views too.

    Raises:
        DataError: No picture of the split can be read.
    """
    if encoder.trainable:
        source: Source = ImageSource(split.examples, encoder.image_size, resize, mirrored)
    else:
        source = AnnotationSource(
            FeatureStore.open(cache_dir, encoder, split.examples, resize=resize, mirrored=mirrored)
        )
    check_readable(split, source.set_aside)
    return source


def check_readable(split: Split, set_aside: Mapping[int, str]) -> None:
    """Sees that a picture is left.

    Args:
        split: Whose pictures were read.
        set_aside: Index -> reason of those that cannot be.

    Raises:
        DataError: None can be read.
    """
    if len(set_aside) == len(split):
        reason = next(iter(set_aside.values()))
        raise DataError(f"No picture of the {split.name} split can be read; the first: {reason}.")


def rows_with_pictures(table: CaptionTable, source: Source) -> np.ndarray:
    """Rows of the table whose picture was not set aside."""
    return np.flatnonzero(~np.isin(table.image_index, list(source.set_aside)))


def training_batches(
    source: Source,
    table: CaptionTable,
    batch_size: int,
    seed: int,
    first_epoch: int,
    first_step: int = 0,
) -> tuple[tf.data.Dataset, int]:
    """Epoch after epoch of shuffled, length-bucketed batches, starting within `first_epoch`.

    What an epoch holds depends on `(seed, epoch)` alone, so a resumed run sees the same batches.

    Returns:
        An endless dataset, and the number of batches of an epoch.
    """
    rows = rows_with_pictures(table, source)
    lengths = table.lengths[rows]
    steps = len(plan_epoch(lengths, batch_size, seed, first_epoch))

    @functools.lru_cache(maxsize=2)
    def epoch_plan(epoch: int) -> tuple[list[np.ndarray], np.ndarray | None]:
        views = np.random.default_rng([seed, epoch, 1]).random(len(table)) < 0.5
        plan = plan_epoch(lengths, batch_size, seed, epoch)
        return plan, views if source.mirrored else None

    def batch(index: int) -> dict[str, np.ndarray]:
        epoch, step = divmod(index, steps)
        plan, views = epoch_plan(epoch)
        return _batch(source, table, rows[plan[step]], views)

    return _dataset(batch, source, first_epoch * steps + first_step, tf.int64.max), steps


def scoring_batches(
    source: Source, table: CaptionTable, batch_size: int
) -> tuple[tf.data.Dataset, int]:
    """Every caption once, plain views, for teacher-forced scores; and the number of batches."""
    rows = rows_with_pictures(table, source)
    plan = plan_epoch(table.lengths[rows], batch_size, 0, 0)

    def batch(index: int) -> dict[str, np.ndarray]:
        return _batch(source, table, rows[plan[index]], None)

    return _dataset(batch, source, 0, len(plan)), len(plan)


def _batch(
    source: Source, table: CaptionTable, rows: np.ndarray, views: np.ndarray | None
) -> dict[str, np.ndarray]:
    mirrored = None if views is None else views[rows]
    return {
        source.key: source.read(table.image_index[rows], mirrored),
        "tokens": pad_tokens([table.tokens[row] for row in rows]),
    }


def _dataset(
    batch: Callable[[int], dict[str, np.ndarray]], source: Source, first: int, last: int
) -> tf.data.Dataset:
    """Batches `first` ... `last - 1` of a numbered sequence, read ahead of their use.

    Not `Dataset.from_generator`: its operation sets malloc's trim threshold to 128 kB for the
    whole process, so that every larger tensor is mapped and cleared anew; a training run then
    spends a third of its time in page faults.
    """

    def read(index: tf.Tensor) -> dict[str, tf.Tensor]:
        inputs, tokens = tf.numpy_function(
            lambda number: tuple(batch(int(number)).values()),
            [index],
            [source.spec.dtype, tf.int32],
        )
        return {
            source.key: tf.ensure_shape(inputs, source.spec.shape),
            "tokens": tf.ensure_shape(tokens, [None, None]),
        }

    return tf.data.Dataset.range(first, last).map(read).prefetch(2)
