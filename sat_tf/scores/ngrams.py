"""BLEU, CIDEr and ROUGE-L of captions, as pycocoevalcap 1.2 defines them.

It takes the document frequencies of CIDEr from the references of the images it scores, so that
fewer images give another scale. `CiderD` can have those of other captions: of the training's, for
rewards (`training.teachers.rewards`) and for the score after each epoch.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

ORDERS = 4

# pycocoevalcap's guards against division by zero, so that scores agree to the last digit.
_TINY, _SMALL = 1e-15, 1e-9
_BETA = 1.2  # of ROUGE-L: weight of recall
_SCALE = 10.0  # that of the published CIDEr-D
_SIGMA = 6.0  # width of CIDEr-D's Gaussian length penalty, words

Gram = tuple[Hashable, ...]


def count_grams(words: Sequence[Hashable]) -> Counter[Gram]:
    """Counts the n-grams of orders 1 to 4."""
    return Counter(
        tuple(words[i : i + n]) for n in range(1, ORDERS + 1) for i in range(len(words) - n + 1)
    )


def bleu_statistics(captions: Sequence[str], references: Sequence[Sequence[str]]) -> np.ndarray:
    """Computes the contribution of each image to the totals of `bleu_scores`, `[N, 10]`."""
    rows = np.zeros((len(captions), 2 * ORDERS + 2))
    for row, caption, others in zip(rows, captions, references, strict=True):
        words, theirs = caption.split(), [text.split() for text in others]
        most: Counter = Counter()
        for other in theirs:
            most |= count_grams(other)
        for gram, count in count_grams(words).items():
            row[len(gram) - 1] += min(count, most[gram])
        row[ORDERS:-2] = [max(len(words) - n, 0) for n in range(ORDERS)]
        row[-2] = len(words)
        row[-1] = min(map(len, theirs), key=lambda length: (abs(length - len(words)), length))
    return rows


def bleu_scores(totals: np.ndarray) -> dict[str, np.ndarray]:
    """Computes corpus BLEU from summed statistics, for any number of corpora at once.

    BLEU-n = min(1, exp(1 - 1/ratio)) * (prod_{k<=n} correct_k / guess_k)^(1/n), with ratio =
    length / closest reference length; `_no_bp` omits the first factor. Both are NaN, undefined, if
    no k-gram of some order k <= n matches, as the geometric mean then has no logarithm.

    Args:
        totals: `[..., 10]`, sums over images of the clipped n-gram matches of the candidate by
            order (4), its n-grams by order (4), its words, and the words of the reference closest
            in length (the shorter of two).

    Returns:
        `bleu_n`, `bleu_n_no_bp` (0-100 or NaN) and `brevity_ratio`, each `[...]`.

    References:
        Papineni et al. (2002), "BLEU: a Method for Automatic Evaluation of Machine Translation".
    """
    correct, guess = totals[..., :ORDERS], totals[..., ORDERS : 2 * ORDERS]
    length, reference_length = totals[..., -2], totals[..., -1]
    precision = np.where(correct > 0, (correct + _TINY) / (guess + _SMALL), np.nan)
    bleu = 100.0 * np.cumprod(precision, axis=-1) ** (1.0 / np.arange(1, ORDERS + 1))
    ratio = (length + _TINY) / (reference_length + _SMALL)
    penalty = np.exp(np.minimum(0.0, 1.0 - 1.0 / ratio))
    result = {f"bleu_{n + 1}": bleu[..., n] * penalty for n in range(ORDERS)}
    result |= {f"bleu_{n + 1}_no_bp": bleu[..., n] for n in range(ORDERS)}
    return result | {"brevity_ratio": length / np.maximum(reference_length, _SMALL)}


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
        images: The captions of each image, for the document frequencies, each as
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


def cider_scores(captions: Sequence[str], references: Sequence[Sequence[str]]) -> np.ndarray:
    """Computes the CIDEr of each image, `[N]`, 0-1000, with the frequencies of these references.

    All are NaN where all images have the same n-grams.

    References:
        Vedantam et al. (2015), arXiv:1411.5726.
    """
    counts = [[count_grams(text.split()) for text in others] for others in references]
    cider = CiderD(counts)
    documents = Counter(gram for some in counts for gram in set().union(*some))
    if all(count == len(counts) for count in documents.values()):
        return np.full(len(counts), np.nan)
    own = (cider.vectors(count_grams(text.split())) for text in captions)
    pairs = zip(own, counts, strict=True)
    return np.array([100.0 * cider.score(one, [*map(cider.vectors, some)]) for one, some in pairs])


def rouge_scores(captions: Sequence[str], references: Sequence[Sequence[str]]) -> np.ndarray:
    """Computes the ROUGE-L of each image, `[N]`, 0-100.

    F = (1 + b^2) P R / (R + b^2 P), b = 1.2, with the largest P and R over its references: the
    words of the longest common subsequence over those of caption and reference.

    References:
        Lin (2004), "ROUGE: A Package for Automatic Evaluation of Summaries".
    """
    scores = np.zeros(len(captions))
    for place, (caption, others) in enumerate(zip(captions, references, strict=True)):
        words = caption.split()
        theirs = [text.split() for text in others]
        common = [_common_subsequence(words, other) for other in theirs]
        if any(common):
            precision = max(common) / len(words)
            recall = max(n / max(len(o), 1) for n, o in zip(common, theirs, strict=True))
            scores[place] = (1 + _BETA**2) * precision * recall / (recall + _BETA**2 * precision)
    return 100.0 * scores


def _common_subsequence(first: Sequence[str], second: Sequence[str]) -> int:
    """Returns the length of the longest common subsequence."""
    row = [0] * (len(second) + 1)
    for word in first:
        before = 0
        for place, other in enumerate(second, 1):
            above = row[place]
            row[place] = before + 1 if word == other else max(above, row[place - 1])
            before = above
    return row[-1]
