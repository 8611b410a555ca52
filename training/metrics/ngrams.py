"""N-grams of captions as ids, for the rewards of sequence-level training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from sat_tf.vocabulary import END, START
from training.datasets.batches import CaptionTable

ORDERS = 4

Gram = tuple[int, ...]


def captions_by_picture(table: CaptionTable) -> list[list[np.ndarray]]:
    """The captions of each picture of a table, by `table.image_index`; of some there are none."""
    captions: list[list[np.ndarray]] = [[] for _ in range(int(table.image_index.max()) + 1)]
    for picture, tokens in zip(table.image_index, table.tokens, strict=True):
        captions[picture].append(tokens)
    return captions


def words_of(caption: np.ndarray) -> list[int]:
    """Ids without `<start>`, up to the first `<end>` and with it."""
    words = []
    for word in caption.tolist():
        if word != START:
            words.append(word)
        if word == END:
            break
    return words


def count_grams(words: Sequence[int]) -> Counter[Gram]:
    """How often each n-gram of orders 1 to 4 occurs."""
    return Counter(
        tuple(words[i : i + n]) for n in range(1, ORDERS + 1) for i in range(len(words) - n + 1)
    )
