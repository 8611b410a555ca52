"""The caption of an image, as every way of captioning returns it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Caption:
    """The caption of one image.

    Attributes:
        text: The caption.
        words: Its `T` words (characters, if the vocabulary is of characters).
        score: `log_prob / T^p`, nats.
        log_prob: Log-probability of the caption, nats: the sum of `log_probs` and of the end's; a
            caption that the length limit cut has no end.
        log_probs: float32 `[T]`, log-probability of each word, nats.
        alpha: `[T, h, w]`, attention map of each word; None without attention.
        beta: `[T]`, gate of each word; None without attention.
        alternatives: The other hypotheses of the beam, best first: (text, score). The order is
            that of consensus if the search ranks by it.
    """

    text: str
    words: tuple[str, ...]
    score: float
    log_prob: float
    log_probs: np.ndarray
    alpha: np.ndarray | None
    beta: np.ndarray | None
    alternatives: tuple[tuple[str, float], ...] = ()
