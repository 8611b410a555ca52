"""The plan of an epoch, and `tf.data` around its batches.

Neighbours in length share a batch, so that little of it is padding. The paper draws each
minibatch from one length (Xu et al. 2015, Sec. 4.3); here batches stay full, and a few of them
mix neighbouring lengths.

Images to train on may be seen in random views, mirrored and cropped, drawn from (seed, epoch,
caption) alone, so that a resumed run sees the same views.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import tensorflow as tf

from sat_tf.text.vocabulary import PAD
from training.data.captions import CaptionTable
from training.data.examples import DataError
from training.data.image_loader import ImageSource, InputSource, Views

MAX_PADDING = 0.05
"""Share of padding among an epoch's tokens that it stays below."""


def plan_epoch(lengths: np.ndarray, batch_size: int, seed: int, epoch: int) -> list[np.ndarray]:
    """Plans the batches of an epoch: every caption once, in random order and company.

    Captions are sorted by length, shuffled within each length, and cut into full batches, so that
    only a batch across the border of two lengths has padding. If that is still too much (few
    captions, or a batch size near their number), the worst batches are cut in two. The cuts depend
    on the lengths alone: every epoch has equally many batches of the same shapes, with at most as
    many different lengths as the captions have.

    Args:
        lengths: `[N]` tokens per caption.
        batch_size: Maximum number of captions per batch.
        seed: Decides the order together with `epoch`.
        epoch: At least 0, as `seed`.

    Returns:
        One int32 array of caption indices per batch.
    """
    rng = np.random.default_rng([seed, epoch])
    shuffled = rng.permutation(len(lengths)).astype(np.int32)
    by_length = shuffled[np.argsort(lengths[shuffled], kind="stable")]
    batches = np.split(by_length, _cuts(np.sort(lengths), batch_size))
    return [batches[index] for index in rng.permutation(len(batches))]


def plan_images(
    image_index: np.ndarray, lengths: np.ndarray, batch_size: int, seed: int, epoch: int
) -> list[np.ndarray]:
    """Plans an epoch that keeps all captions of an image in one batch.

    Images with longest captions of similar lengths share a batch. There is more padding than
    in `plan_epoch`, as the captions of an image differ in length.

    Args:
        image_index: `[N]` image of each caption.
        lengths, seed, epoch: As in `plan_epoch`.
        batch_size: Approximate number of captions per batch: all batches have equally many
            images, except for the last ones.

    Returns:
        One int array of caption indices per batch.
    """
    _, image, captions = np.unique(image_index, return_inverse=True, return_counts=True)
    longest = np.zeros(len(captions), np.int64)
    np.maximum.at(longest, image, lengths)
    size = max(1, round(batch_size / captions.mean()))
    rows = np.split(np.argsort(image, kind="stable"), np.cumsum(captions)[:-1])
    plan = plan_epoch(longest, size, seed, epoch)
    return [np.concatenate([rows[index] for index in batch]) for batch in plan]


def _cuts(ordered: np.ndarray, batch_size: int) -> list[int]:
    """Returns the positions at which captions, sorted by length, are cut into batches."""
    count = len(ordered)
    edges = list(range(0, count, batch_size)) + [count]
    if len(edges) > 2 and count % batch_size:
        # The last two batches share the rest: a batch of one would be a noisy step.
        edges[-2] = (edges[-3] + count) // 2
    sums = np.concatenate([[0], np.cumsum(ordered, dtype=np.int64)])  # tokens of the first i

    def padding(start: int, stop: int) -> int:
        return int(ordered[stop - 1]) * (stop - start) - int(sums[stop] - sums[start])

    wasted = [padding(*batch) for batch in zip(edges, edges[1:], strict=False)]
    while sum(wasted) and sum(wasted) >= MAX_PADDING * (sums[-1] + sum(wasted)):
        worst = int(np.argmax(wasted))
        start, stop = edges[worst], edges[worst + 1]
        # The cut that saves the most padding; it always lies between two lengths.
        middles = np.arange(start + 1, stop)
        saved = (middles - start) * (int(ordered[stop - 1]) - ordered[middles - 1].astype(np.int64))
        middle = int(middles[np.argmax(saved)])
        edges.insert(worst + 1, middle)
        wasted[worst : worst + 1] = [padding(start, middle), padding(middle, stop)]
    return edges[1:-1]


Batch = dict[str, tf.Tensor]


@dataclass(frozen=True)
class Shard:
    """One process' part of each batch: the parts of its devices."""

    first: int = 0  # index of its first device among those of all processes
    devices: int = 1  # number of its devices
    total: int = 1  # number of devices of all processes

    def part(self, size: int, device: int) -> slice:
        """Returns the rows of a batch of `size` for one of its devices, 0 ... devices - 1.

        The sizes of the parts differ by at most one; a part may be empty.
        """
        place = self.first + device
        return slice(-(-size * place // self.total), -(-size * (place + 1) // self.total))


_WHOLE = Shard()


class Teaching(Protocol):
    """Another teacher than the captions, word by word: maps for attention, or predictions."""

    specs: dict[str, tf.TensorSpec]
    """Name in a batch -> shape and dtype."""

    def read(
        self, table: CaptionTable, rows: np.ndarray, words: int, mirrored: np.ndarray | None
    ) -> dict[str, np.ndarray]:
        """Reads `[n, words, ...]` by name, in the order of `specs`.

        Args:
            table: The captions.
            rows: `[n]`, rows of the table.
            words: Words per caption, `<end>` and padding included.
            mirrored: bool `[n]`, images flipped left to right; None if none is.
        """
        ...


def training_batches(
    source: InputSource,
    table: CaptionTable,
    batch_size: int,
    seed: int,
    by_image: bool = False,
    teaching: Sequence[Teaching] = (),
) -> tuple[int, Callable[[int, int, Shard], tf.data.Dataset]]:
    """Plans endless shuffled, length-bucketed batches.

    An epoch depends on `(seed, epoch)` alone, so a resumed run sees the same batches. Where an
    image turns out to be unreadable, the first caption of the same part of the batch whose image
    can be read, or else of the table, takes the place of its captions.

    Args:
        source: Images or annotations.
        table: The captions.
        batch_size: Captions per batch.
        seed: Seed of the order and of the views.
        by_image: Keep all captions of an image in the same batch, with the same view.
        teaching: Other teachers than the captions.

    Returns:
        The number of batches per epoch; and a function that returns a shard's batches from an
        epoch and a step of it on. Each batch of a shard with several devices is one part per
        device, one after the other.
    """

    @functools.lru_cache(maxsize=2)
    def epoch_plan(epoch: int) -> tuple[list[np.ndarray], Views | None]:
        views = None
        if source.mirrored or source.random_crop:
            count = int(table.image_index.max()) + 1 if by_image else len(table)
            views = Views.draw(count, seed, epoch)
        # Not those found by reading: which these are depends on where a run was resumed.
        rows = _rows_without(table, source.known)
        lengths = table.lengths[rows]
        if by_image:
            plan = plan_images(table.image_index[rows], lengths, batch_size, seed, epoch)
            views = None if views is None else views[table.image_index]
        else:
            plan = plan_epoch(lengths, batch_size, seed, epoch)
        return [rows[batch] for batch in plan], views

    steps = len(epoch_plan(0)[0])
    reader = _BatchReader(source, table, by_image, teaching)

    def batch(number: int) -> tuple[np.ndarray, Views | None]:
        epoch, step = divmod(number, steps)
        plan, views = epoch_plan(epoch)
        return plan[step], None if views is None else views[plan[step]]

    def batches(epoch: int, step: int = 0, shard: Shard = _WHOLE) -> tf.data.Dataset:
        return reader.dataset(batch, shard, epoch * steps + step)

    return steps, batches


def scoring_batches(
    source: InputSource, table: CaptionTable, batch_size: int, shard: Shard = _WHOLE
) -> tuple[tf.data.Dataset, int]:
    """Every caption once, in plain views, for teacher-forced scores.

    Images come with all their captions, so that the encoder sees each of them only once.

    Returns:
        The dataset and the number of batches.
    """
    plan = scoring_plan(source, table, batch_size)
    reader = _BatchReader(source, table, source.key == ImageSource.key)
    return reader.dataset(lambda number: (plan[number], None), shard, 0, len(plan)), len(plan)


def scoring_plan(source: InputSource, table: CaptionTable, batch_size: int) -> list[np.ndarray]:
    """Returns the rows of the caption table in each batch of `scoring_batches`."""
    rows = readable_rows(table, source)
    lengths, image_index = table.lengths[rows], table.image_index[rows]
    if source.key == ImageSource.key:
        plan = plan_images(image_index, lengths, batch_size, seed=0, epoch=0)
    else:
        plan = plan_epoch(lengths, batch_size, seed=0, epoch=0)
    return [rows[part] for part in plan]


def readable_rows(table: CaptionTable, source: InputSource) -> np.ndarray:
    """Returns the rows of the caption table with a readable image; reads all images.

    Raises:
        DataError: There is none.
    """
    return _rows_without(table, source.skipped)


def _rows_without(table: CaptionTable, unreadable: Mapping[int, str]) -> np.ndarray:
    rows = np.flatnonzero(~np.isin(table.image_index, list(unreadable))).astype(np.int32)
    if not len(rows):
        raise DataError("No image that has a caption can be read.")
    return rows


def pad_tokens(tokens: Sequence[np.ndarray]) -> np.ndarray:
    """Stacks rows of ids into an int32 array `[B, T]`, with `<pad>` after their ends."""
    lengths = np.fromiter(map(len, tokens), np.int64, len(tokens))
    padded = np.full((len(tokens), lengths.max(initial=0)), PAD, np.int32)
    if len(tokens):
        padded[np.arange(padded.shape[1]) < lengths[:, None]] = np.concatenate(tokens)
    return padded


@dataclass(frozen=True, eq=False)
class _BatchReader:
    """Reads the parts of batches that belong to devices."""

    source: InputSource
    table: CaptionTable
    by_image: bool
    teaching: Sequence[Teaching] = ()

    def read(self, rows: np.ndarray, views: Views | None, part: slice) -> list[np.ndarray]:
        """Reads a part of the batch that consists of these rows of the table."""
        # Padded before it is divided, so that all devices see the same few lengths.
        tokens = pad_tokens([self.table.tokens[row] for row in rows])[part]
        rows, views = rows[part].copy(), None if views is None else views[part]
        mirrored = views.mirrored if views is not None and self.source.mirrored else None
        images = self.table.image_index[rows]
        if self.by_image:
            once, first, place = np.unique(images, return_index=True, return_inverse=True)
            # One row per caption nevertheless: devices divide a batch by its rows.
            inputs = self.source.read(once, None if views is None else views[first])[place]
        else:
            inputs = self.source.read(images, views)
        bad = np.isin(images, list(self.source.found))
        if bad.any():
            good = int(np.argmin(bad))
            row, one = rows[good], inputs[good]
            if bad.all():
                row, one = self._stand_in(tokens.shape[1])
            inputs[bad], rows[bad], tokens[bad] = one, row, 0
            tokens[bad, : self.table.lengths[row]] = self.table.tokens[row]
            images = self.table.image_index[rows]
            if mirrored is not None:
                mirrored[bad] = mirrored[good] and not bad.all()
        found = [inputs, tokens]
        if self.by_image:
            found.append(images.astype(np.int32))
        for one in self.teaching:
            found += one.read(self.table, rows, tokens.shape[1] - 1, mirrored).values()
        return found

    def _stand_in(self, longest: int) -> tuple[int, np.ndarray]:
        """Returns the first caption of at most this length with a readable image, and its input."""
        for row in np.flatnonzero(self.table.lengths <= longest):
            image = self.table.image_index[row : row + 1]
            inputs = self.source.read(image)
            if int(image[0]) not in self.source.found:
                return int(row), inputs[0]
        raise DataError("No image that has a caption can be read.")

    def dataset(
        self,
        batch: Callable[[int], tuple[np.ndarray, Views | None]],
        shard: Shard,
        first: int,
        last: int | None = None,
    ) -> tf.data.Dataset:
        """Batches `first` ... `last - 1`, each as one part per device of a shard."""
        devices = shard.devices
        specs = {self.source.key: self.source.spec, "tokens": tf.TensorSpec([None, None], tf.int32)}
        if self.by_image:
            specs["image_index"] = tf.TensorSpec([None], tf.int32)
        for one in self.teaching:
            specs |= one.specs

        def read_part(index: np.ndarray) -> list[np.ndarray]:
            number, device = divmod(int(index), devices)
            rows, views = batch(number)
            return self.read(rows, views, shard.part(len(rows), device))

        def read(index: tf.Tensor) -> Batch:
            parts = tf.numpy_function(read_part, [index], [spec.dtype for spec in specs.values()])
            return {
                name: tf.ensure_shape(part, spec.shape)
                for (name, spec), part in zip(specs.items(), parts, strict=True)
            }

        end = None if last is None else last * devices
        return prefetched(read, first * devices, end, ahead=2 * devices)


def prefetched(
    read: Callable[[tf.Tensor], Batch], first: int, last: int | None = None, ahead: int = 2
) -> tf.data.Dataset:
    """Dataset of `read(first)`, ..., `read(last - 1)`.

    Avoids `Dataset.from_generator`, which sets malloc's trim threshold to 128 kB for the whole
    process: every larger tensor is then mapped and cleared anew, and training spends a third of
    its time in page faults.

    Args:
        read: Gives a batch by number, a scalar int64.
        first: Number of the first batch.
        last: Number after the last batch; None makes the dataset endless, and declares it so:
            otherwise, multiple workers would ask each other at every step whether it has ended.
        ahead: Batches read before they are asked for.
    """
    numbers = tf.data.Dataset.range(first, tf.int64.max if last is None else last)
    if last is None:
        numbers = numbers.repeat()
    # Nothing here can be tuned, and dropping an iterator waits for the end of the tuning thread's
    # nap, which doubles from 10 ms to a minute.
    options = tf.data.Options()
    options.autotune.enabled = False
    # Autograph would cost 50 ms at every start, and `read` does not need it.
    read = tf.autograph.experimental.do_not_convert(read)
    return numbers.map(read).prefetch(ahead).with_options(options)
