"""What the rewards of sequence-level training share: captions as ids, and their scale."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sat_tf.vocabulary import END, START
from training.datasets.batches import CaptionTable

SCALE = 10.0
"""The most that a caption is worth, as in the published CIDEr-D."""


class CaptionReward:
    """What captions of training pictures are worth, each by itself; a subclass gives `score`."""

    def __call__(self, pictures: np.ndarray, captions: np.ndarray) -> np.ndarray:
        """Rewards of captions.

        Args:
            pictures: int `[N]`, which picture each caption is about.
            captions: int `[N, T]`, words up to `<end>`; what follows does not count.

        Returns:
            float32 `[N]`.
        """
        rewards = [
            self.score(words_of(caption), picture)
            for picture, caption in zip(pictures, captions, strict=True)
        ]
        return np.array(rewards, np.float32)

    def score(self, words: Sequence[int], picture: int) -> float:
        """What one caption is worth, 0 to `SCALE`; words are ids, `<end>` among them."""
        raise NotImplementedError


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
