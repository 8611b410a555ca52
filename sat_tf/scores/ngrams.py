"""BLEU and ROUGE-L of captions, as pycocoevalcap 1.2 defines them, from counts of each image."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from sat_tf.scores.cider import ORDERS as BLEU_ORDERS
from sat_tf.scores.cider import CiderD, count_grams

# pycocoevalcap's guards against division by zero, so that scores agree to the last digit.
_TINY, _SMALL = 1e-15, 1e-9
_BETA = 1.2  # of ROUGE-L: weight of recall


def bleu_statistics(captions: Sequence[str], references: Sequence[Sequence[str]]) -> np.ndarray:
    """Computes the contribution of each image to the totals of `bleu_scores`, `[N, 10]`."""
    rows = np.zeros((len(captions), 2 * BLEU_ORDERS + 2))
    for row, caption, others in zip(rows, captions, references, strict=True):
        words, theirs = caption.split(), [text.split() for text in others]
        most: Counter = Counter()
        for other in theirs:
            most |= count_grams(other)
        for gram, count in count_grams(words).items():
            row[len(gram) - 1] += min(count, most[gram])
        row[BLEU_ORDERS:-2] = [max(len(words) - n, 0) for n in range(BLEU_ORDERS)]
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
    correct, guess = totals[..., :BLEU_ORDERS], totals[..., BLEU_ORDERS : 2 * BLEU_ORDERS]
    length, reference_length = totals[..., -2], totals[..., -1]
    precision = np.where(correct > 0, (correct + _TINY) / (guess + _SMALL), np.nan)
    bleu = 100.0 * np.cumprod(precision, axis=-1) ** (1.0 / np.arange(1, BLEU_ORDERS + 1))
    ratio = (length + _TINY) / (reference_length + _SMALL)
    penalty = np.exp(np.minimum(0.0, 1.0 - 1.0 / ratio))
    result = {f"bleu_{n + 1}": bleu[..., n] * penalty for n in range(BLEU_ORDERS)}
    result |= {f"bleu_{n + 1}_no_bp": bleu[..., n] for n in range(BLEU_ORDERS)}
    return result | {"brevity_ratio": length / np.maximum(reference_length, _SMALL)}


def cider_scores(captions: Sequence[str], references: Sequence[Sequence[str]]) -> np.ndarray:
    """Computes the CIDEr of each image, `[N]`, 0-1000, with the frequencies of these references.

    All are NaN where no n-gram tells one image from another.

    References:
        Vedantam et al. (2015), arXiv:1411.5726.
    """
    counts = [[count_grams(text.split()) for text in others] for others in references]
    cider = CiderD(counts)
    documents = Counter(gram for some in counts for gram in set().union(*some))
    if all(count == len(counts) for count in documents.values()):
        return np.full(len(counts), np.nan)
    pairs = zip(captions, counts, strict=True)
    return np.array(
        [
            100.0
            * cider.score(cider.vectors(count_grams(text.split())), [*map(cider.vectors, some)])
            for text, some in pairs
        ]
    )


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
