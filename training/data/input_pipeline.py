"""Makes batches: the captions of a plan with their inputs, and `tf.data` around them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from sat_tf.objectives.likelihood import ATTENTION_TARGETS, PREDICTED_SHARES, PREDICTED_WORDS
from training.data.attention_targets import AttentionTargets
from training.data.augmentation import Views
from training.data.bucketing import CaptionTable, Shard, pad_tokens, plan_epoch, plan_images
from training.data.input_source import ImageSource, InputSource
from training.data.prefetch import prefetched
from training.data.word_predictions import WordPredictions

_WHOLE = Shard()


def readable_rows(table: CaptionTable, source: InputSource) -> np.ndarray:
    """Rows of the caption table whose image can be read."""
    return np.flatnonzero(~np.isin(table.image_index, list(source.skipped)))


def training_batches(
    source: InputSource,
    table: CaptionTable,
    batch_size: int,
    seed: int,
    first_epoch: int,
    first_step: int = 0,
    by_image: bool = False,
    shard: Shard = _WHOLE,
    targets: AttentionTargets | None = None,
    predictions: WordPredictions | None = None,
) -> tuple[tf.data.Dataset, int]:
    """Endless shuffled, length-bucketed batches, starting within `first_epoch`.

    An epoch depends on `(seed, epoch)` alone, so a resumed run sees the same batches.

    Args:
        source: Images or annotations.
        table: The captions.
        batch_size: Captions per batch.
        seed: Seed of the order and of the views.
        first_epoch: Epoch to start in.
        first_step: Batch of that epoch to start at.
        by_image: Keep all captions of an image in the same batch, with the same view.
        shard: The part of each batch to read; all of it by default.
        targets: Maps for supervised attention, if any.
        predictions: What other captioners predict for the words, if it is to be learned.

    Returns:
        The dataset and the number of batches per epoch. Each batch of a shard with several
        devices comes as one part per device, one after the other.
    """
    rows = readable_rows(table, source)
    lengths, image_index = table.lengths[rows], table.image_index[rows]

    @functools.lru_cache(maxsize=2)
    def epoch_plan(epoch: int) -> tuple[list[np.ndarray], Views]:
        count = int(table.image_index.max()) + 1 if by_image else len(table)
        views = Views.draw(count, seed, epoch)
        if by_image:
            plan = plan_images(image_index, lengths, batch_size, seed, epoch)
            return plan, views[table.image_index]
        return plan_epoch(lengths, batch_size, seed, epoch), views

    steps = len(epoch_plan(first_epoch)[0])

    def batch(number: int) -> tuple[np.ndarray, Views]:
        epoch, step = divmod(number, steps)
        plan, views = epoch_plan(epoch)
        chosen = rows[plan[step]]
        return chosen, views[chosen]

    reader = _BatchReader(source, table, by_image, shard, targets, predictions)
    return reader.dataset(batch, first_epoch * steps + first_step), steps


def scoring_batches(
    source: InputSource, table: CaptionTable, batch_size: int, shard: Shard = _WHOLE
) -> tuple[tf.data.Dataset, int]:
    """Every caption once, in plain views, for teacher-forced scores.

    Images come with all their captions, so that the encoder sees each of them only once.

    Args:
        source: Images or annotations.
        table: The captions.
        batch_size: Captions per batch.
        shard: As in `training_batches`.

    Returns:
        The dataset and the number of batches.
    """
    plan = scoring_plan(source, table, batch_size)
    reader = _BatchReader(source, table, source.key == ImageSource.key, shard)
    return reader.dataset(lambda number: (plan[number], None), 0, len(plan)), len(plan)


def scoring_plan(source: InputSource, table: CaptionTable, batch_size: int) -> list[np.ndarray]:
    """Rows of the caption table in each batch of `scoring_batches`."""
    rows = readable_rows(table, source)
    lengths, image_index = table.lengths[rows], table.image_index[rows]
    if source.key == ImageSource.key:
        plan = plan_images(image_index, lengths, batch_size, seed=0, epoch=0)
    else:
        plan = plan_epoch(lengths, batch_size, seed=0, epoch=0)
    return [rows[part] for part in plan]


@dataclass(frozen=True, eq=False)
class _BatchReader:
    """Reads the parts of batches that belong to the devices of a shard."""

    source: InputSource
    table: CaptionTable
    by_image: bool
    shard: Shard
    targets: AttentionTargets | None = None
    predictions: WordPredictions | None = None

    def part(self, rows: np.ndarray, views: Views | None, device: int) -> dict[str, np.ndarray]:
        """Reads one device's part of the batch that consists of these rows of the table."""
        part = self.shard.part(len(rows), device)
        # Padded before it is divided, so that all devices see the same few lengths.
        tokens = pad_tokens([self.table.tokens[row] for row in rows])[part]
        rows, views = rows[part], None if views is None else views[part]
        images = self.table.image_index[rows]
        read = self._teaching(rows, views, tokens.shape[1] - 1)
        if not self.by_image:
            return {self.source.key: self.source.read(images, views), "tokens": tokens} | read
        once, first, place = np.unique(images, return_index=True, return_inverse=True)
        inputs = self.source.read(once, None if views is None else views[first])
        # One row per caption nevertheless: devices divide a batch by its rows.
        index = images.astype(np.int32)
        found = {self.source.key: inputs[place], "tokens": tokens, "image_index": index}
        return found | read

    def _teaching(self, rows: np.ndarray, views: Views | None, words: int) -> dict[str, np.ndarray]:
        """Reads what teaches attention and words beside the captions."""
        read = {}
        if self.targets is not None:
            mirrored = views.mirrored if views is not None and self.source.mirrored else None
            maps = self.targets.read(self.table, rows, words, mirrored)
            read[ATTENTION_TARGETS] = maps
        if self.predictions is not None:
            found = self.predictions.read(rows, words)
            read |= dict(zip((PREDICTED_WORDS, PREDICTED_SHARES), found, strict=True))
        return read

    def dataset(
        self,
        batch: Callable[[int], tuple[np.ndarray, Views | None]],
        first: int,
        last: int | None = None,
    ) -> tf.data.Dataset:
        """Batches `first` ... `last - 1`, each as one part per device."""
        devices = self.shard.devices
        specs = {self.source.key: self.source.spec, "tokens": tf.TensorSpec([None, None], tf.int32)}
        if self.by_image:
            specs["image_index"] = tf.TensorSpec([None], tf.int32)
        if self.targets is not None:
            cells = int(np.prod(self.targets.maps.shape[1:]))
            specs[ATTENTION_TARGETS] = tf.TensorSpec([None, None, cells], tf.float16)
        if self.predictions is not None:
            kept = [None, None, self.predictions.words.shape[1]]
            specs[PREDICTED_WORDS] = tf.TensorSpec(kept, tf.int32)
            specs[PREDICTED_SHARES] = tf.TensorSpec(kept, tf.float16)

        def read_part(index: np.ndarray) -> tuple[np.ndarray, ...]:
            number, device = divmod(int(index), devices)
            return tuple(self.part(*batch(number), device).values())

        def read(index: tf.Tensor) -> dict[str, tf.Tensor]:
            parts = tf.numpy_function(read_part, [index], [spec.dtype for spec in specs.values()])
            return {
                name: tf.ensure_shape(part, spec.shape)
                for (name, spec), part in zip(specs.items(), parts, strict=True)
            }

        end = None if last is None else last * devices
        return prefetched(read, first * devices, end, ahead=2 * devices)
