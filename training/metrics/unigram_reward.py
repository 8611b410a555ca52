"""Right words, and few of them missing: a reward of sequence-level training beside CIDEr-D."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from training.metrics.meteor import ALPHA
from training.metrics.reward_captions import SCALE, CaptionReward, words_of


class UnigramReward(CaptionReward):
    """METEOR's mean of unigram precision and recall, by words that are the same, 0 to 10.

    `10 max_j P_j R_j / (alpha P_j + (1 - alpha) R_j)`: with j the picture's captions, m the words
    that caption and reference share, each as often as in both, `P = m / l` and `R = m / l_j`.
    Alpha is METEOR's 0.85: what a caption leaves out costs more than what it adds. METEOR's stems,
    synonyms and penalty for order are left out, which would take Java at every step. The end of
    a caption is a word.

    Args:
        references: Of each picture its captions, int arrays `<start> ... <end>`.

    References:
        Denkowski and Lavie (2014), "Meteor Universal: Language Specific Translation Evaluation for
        Any Target Language", eq. 1-3.
    """

    def __init__(self, references: Sequence[Sequence[np.ndarray]]) -> None:
        self._references = [
            [Counter(words_of(caption)) for caption in captions] for captions in references
        ]

    def score(self, words: Sequence[int], picture: int) -> float:
        """The mean with the reference for which it is largest."""
        caption = Counter(words)
        return SCALE * max(_mean(caption, other) for other in self._references[picture])


def _mean(caption: Counter[int], reference: Counter[int]) -> float:
    shared = (caption & reference).total()
    # P R / (alpha P + (1 - alpha) R), both sides times l l_j / m.
    return shared / (ALPHA * reference.total() + (1.0 - ALPHA) * caption.total())
