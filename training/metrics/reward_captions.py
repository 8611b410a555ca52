"""Captions as the rewards of sequence-level training see them: as ids."""

from __future__ import annotations

import numpy as np

from sat_tf.vocabulary import END, START
from training.datasets.batches import CaptionTable


def references_of(table: CaptionTable) -> list[list[np.ndarray]]:
    """The captions of each picture, by its number in `table.image_index`; some may have none."""
    references: list[list[np.ndarray]] = [[] for _ in range(int(table.image_index.max()) + 1)]
    for picture, tokens in zip(table.image_index, table.tokens, strict=True):
        references[picture].append(tokens)
    return references


def words_of(caption: np.ndarray) -> list[int]:
    """Ids without `<start>`, up to the first `<end>` and with it.

    The end is a word: without it a caption that breaks off ("a man on a") would be worth as much
    as one that ends.
    """
    words = []
    for word in caption.tolist():
        if word != START:
            words.append(word)
        if word == END:
            break
    return words
