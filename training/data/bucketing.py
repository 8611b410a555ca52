"""Captions as ids, and the plan of an epoch: which captions make each batch.

Neighbours in length share a batch, so that little of it is padding. The paper draws each
minibatch from one length (Xu et al. 2015, Sec. 4.3); here batches stay full, and a few of them
mix neighbouring lengths.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from sat_tf.vocabulary import END, SPECIAL_TOKENS, START, Vocabulary
from training.data.examples import DataError, Split

if TYPE_CHECKING:
    from training.config import DataConfig


@dataclass(frozen=True, eq=False)
class CaptionTable:
    """The captions of a split as ids, one row each.

    Attributes:
        image_index: int32 `[N]`, index into the split's examples.
        caption_index: int32 `[N]`, index into that example's captions.
        tokens: N int32 arrays, each `<start> ... <end>`.
        dropped: Number of captions without a word.
        truncated: Number of captions cut to the maximum length.
    """

    image_index: np.ndarray
    caption_index: np.ndarray
    tokens: list[np.ndarray]
    dropped: int = 0
    truncated: int = 0

    def __len__(self) -> int:
        return len(self.tokens)

    def first_captions(self) -> CaptionTable:
        """Returns the table of only the first caption of each image."""
        _, rows = np.unique(self.image_index, return_index=True)
        tokens = [self.tokens[row] for row in rows]
        return CaptionTable(self.image_index[rows], self.caption_index[rows], tokens)

    @cached_property
    def lengths(self) -> np.ndarray:
        """int32 `[N]`: tokens per caption, `<start>` and `<end>` included."""
        return np.fromiter(map(len, self.tokens), np.int32, len(self.tokens))


def caption_table(
    split: Split, vocabulary: Vocabulary, max_length: int | None = None
) -> CaptionTable:
    """Encodes the captions of a split, in its order.

    Args:
        split: The split.
        vocabulary: Maps words to ids; unknown words become `<unk>`.
        max_length: Words after which a caption is cut, `<start>` and `<end>` not counted; None
            cuts none.

    Raises:
        DataError: No caption of the split has a word.
    """
    places, tokens, dropped, truncated = [], [], 0, 0
    for image_index, example in enumerate(split.examples):
        for caption_index, caption in enumerate(example.captions):
            ids = vocabulary.encode(caption)
            if not ids:
                dropped += 1
                continue
            kept = ids[:max_length]
            truncated += len(kept) < len(ids)
            places.append((image_index, caption_index))
            tokens.append(np.array([START, *kept, END], np.int32))
    if not tokens:
        raise DataError(f"No caption of the {split.name} split holds a word.")
    image_index, caption_index = np.array(places, np.int32).T.copy()
    return CaptionTable(image_index, caption_index, tokens, dropped, truncated)


def check_vocabulary(config: DataConfig, vocabulary: Vocabulary) -> None:
    """Checks that there is a word to learn.

    Raises:
        DataError: There is none; the message names the key.
    """
    if len(vocabulary) == len(SPECIAL_TOKENS):
        unit = config.unit.removesuffix("s")
        raise DataError(
            f"No {unit} occurs {config.min_count} times in the training captions: lower "
            "`--data.min_count`, or add captions."
        )


def plan_epoch(
    lengths: np.ndarray, batch_size: int, seed: int, epoch: int, max_padding: float = 0.05
) -> list[np.ndarray]:
    """Plans the batches of an epoch: every caption once, in random order and company.

    Captions are sorted by length, shuffled within each length, and cut into full batches, so that
    only a batch across the border of two lengths has padding. If that is still too much (few
    captions, or a batch size near their number), the worst batches are cut in two. The cuts depend
    on the lengths alone: every epoch has equally many batches of the same shapes, with at most as
    many different lengths as the captions have.

    Args:
        lengths: `[N]` tokens per caption.
        batch_size: Maximum number of captions per batch.
        seed: At least 0; decides the order together with `epoch`.
        epoch: At least 0.
        max_padding: Upper bound of the share of padding among the epoch's tokens.

    Returns:
        One int32 array of caption indices per batch.
    """
    rng = np.random.default_rng([seed, epoch])
    shuffled = rng.permutation(len(lengths)).astype(np.int32)
    by_length = shuffled[np.argsort(lengths[shuffled], kind="stable")]
    batches = np.split(by_length, _cuts(np.sort(lengths), batch_size, max_padding))
    return [batches[index] for index in rng.permutation(len(batches))]


def plan_images(
    image_index: np.ndarray, lengths: np.ndarray, batch_size: int, seed: int, epoch: int
) -> list[np.ndarray]:
    """Plans an epoch in which all captions of an image are in the same batch.

    Images whose longest captions have similar lengths share a batch. There is more padding than
    in `plan_epoch`, as the captions of an image differ in length.

    Args:
        image_index: `[N]` image of each caption.
        lengths: `[N]` tokens per caption.
        batch_size: Approximate number of captions per batch: all batches have equally many
            images, except for the last ones.
        seed: As in `plan_epoch`.
        epoch: As in `plan_epoch`.

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


def _cuts(ordered: np.ndarray, batch_size: int, max_padding: float) -> list[int]:
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
    while sum(wasted) and sum(wasted) >= max_padding * (sums[-1] + sum(wasted)):
        worst = int(np.argmax(wasted))
        start, stop = edges[worst], edges[worst + 1]
        # The cut that saves the most padding; it always lies between two lengths.
        middles = np.arange(start + 1, stop)
        saved = (middles - start) * (int(ordered[stop - 1]) - ordered[middles - 1].astype(np.int64))
        middle = int(middles[np.argmax(saved)])
        edges.insert(worst + 1, middle)
        wasted[worst : worst + 1] = [padding(start, middle), padding(middle, stop)]
    return edges[1:-1]
