"""CIDEr-D with the document frequencies of captions other than those that are scored.

pycocoevalcap takes them from the references of the images it scores, so that fewer images give
another scale: a score grows or falls with their number. Here they stay those of the training
captions, for rewards (`training.teach.rewards`) and for the score after each epoch alike.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

ORDERS = 4

_SCALE = 10.0  # that of the published CIDEr-D
_SIGMA = 6.0  # width of the Gaussian length penalty, words

Gram = tuple[Hashable, ...]


def count_grams(words: Sequence[Hashable]) -> Counter[Gram]:
    """Counts the n-grams of orders 1 to 4."""
    return Counter(
        tuple(words[i : i + n]) for n in range(1, ORDERS + 1) for i in range(len(words) - n + 1)
    )


class Vectors(NamedTuple):
    """tf-idf vectors of a caption's n-grams, by order."""

    weights: list[dict[Gram, float]]
    norms: list[float]
    pairs: int


class CiderD:
    """CIDEr-D of captions, 0 to 10.

    mean_n 10 mean_j exp(-(l - l_j)^2 / 2 sigma^2) <min(g, g_j), g_j> / |g| |g_j|

    over orders n = 1..4 and references j; g are tf-idf vectors of n-grams.

    Args:
        images: The captions of each image whose n-grams give the document frequencies, each as
            `count_grams` of it. Images without captions do not count.

    References:
        Vedantam et al. (2015), arXiv:1411.5726.
    """

    def __init__(self, images: Iterable[Sequence[Counter[Gram]]]) -> None:
        documents: Counter[Gram] = Counter()
        count = 0
        for captions in images:
            documents.update({gram for grams in captions for gram in grams})
            count += bool(captions)
        self._unknown = math.log(max(count, 1))
        # An n-gram of one image counts like an unknown one; most are.
        self._known = {gram: math.log(count / n) for gram, n in documents.items() if n > 1}

    def vectors(self, grams: Counter[Gram]) -> Vectors:
        """Returns the tf-idf vectors of a caption."""
        weights: list[dict[Gram, float]] = [{} for _ in range(ORDERS)]
        for gram, count in grams.items():
            weights[len(gram) - 1][gram] = count * self._known.get(gram, self._unknown)
        norms = [math.sqrt(sum(w * w for w in order.values())) for order in weights]
        # The published code takes the number of bigrams for the length.
        return Vectors(weights, norms, sum(n for gram, n in grams.items() if len(gram) == 2))

    def score(self, caption: Vectors, references: Sequence[Vectors]) -> float:
        """Returns CIDEr-D of a caption under its image's references, at least one."""
        total = sum(_similarity(caption, reference) for reference in references)
        return _SCALE * total / (ORDERS * len(references))


def _similarity(caption: Vectors, reference: Vectors) -> float:
    """Sums the similarity over the orders."""
    total = 0.0
    for order in range(ORDERS):
        theirs = reference.weights[order]
        shared = sum(
            min(weight, theirs[gram]) * theirs[gram]
            for gram, weight in caption.weights[order].items()
            if gram in theirs
        )
        if shared:
            total += shared / (caption.norms[order] * reference.norms[order])
    return total * math.exp(-((caption.pairs - reference.pairs) ** 2) / (2.0 * _SIGMA**2))
