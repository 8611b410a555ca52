"""Search over one image in NumPy, equal to `sat_tf.search`: beam, then consensus.

Shapes: K hypotheses of the beam, the first R of them live; V tokens; T most of a caption; H
captions found, at most K.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from sat_tf.config import SearchConfig
from sat_tf.text.vocabulary import END, PAD, START

_FLOOR = -1e9  # as `sat_tf.search.FLOOR`: what is less likely does not exist

ORDERS, SIGMA = 4, 6.0  # of the n-grams and lengths of `rank_by_consensus`

Step = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, Sequence[np.ndarray]]]


class Found(NamedTuple):
    """Captions of an image, the best first.

    Attributes:
        tokens: int32 `[H, T]`, words, then `END` if the caption ended by itself, then `PAD`.
        lengths: int `[H]`, words.
        totals: float32 `[H, T]`, log-probability up to each token, nats.
        log_probs: float32 `[H]`, log-probability of the caption, its end included, nats.
        scores: float32 `[H]`, `log p / length^p`.
        auxiliary: `[H, T', ...]` each, the step's other outputs for each token: alpha and beta.
            T' is the number of steps, at most T; values without a token are arbitrary.
    """

    tokens: np.ndarray
    lengths: np.ndarray
    totals: np.ndarray
    log_probs: np.ndarray
    scores: np.ndarray
    auxiliary: tuple[np.ndarray, ...]

    def take(self, order: np.ndarray) -> Found:
        """Returns these captions in another order."""
        return Found(*(part[order] for part in self[:-1]), tuple(p[order] for p in self.auxiliary))


def beam_search(step: Step, search: SearchConfig) -> Found:
    """Finds the best captions of an image; see `sat_tf.search`.

    After each step the best `K - n` continuations are kept, n being the hypotheses that have
    ended. Of equal ones the lower row, then the lower token is taken.

    Args:
        step: `(tokens int32 [R], parents int [R]) -> (log_probs [R, V], auxiliary)`. It keeps the
            state: row r continues row `parents[r]` of the call before. Further rows are ignored.
        search: The settings; K is its beam.

    Returns:
        At most K captions.
    """
    beam, limit = search.beam, search.max_length
    # Of the live hypotheses, then, in the lower half, of those that ended.
    tokens = np.full([2 * beam, limit], PAD, np.int32)
    totals = np.zeros([2 * beam, limit], np.float32)
    rows = np.zeros([2 * beam, limit], np.intp)  # of the step's outputs, beside each token
    seen: list[Sequence[np.ndarray]] = []  # auxiliary outputs of each step
    live, ended = 1, 0
    last, parents, before = np.array([START], np.int32), np.zeros(1, np.intp), np.zeros(1, "f4")
    for time in range(limit):
        log_probs, auxiliary = step(last, parents)
        reached = before[:, np.newaxis] + log_probs[:live]
        reached[~np.isfinite(reached)] = -np.inf
        reached[:, search.forbidden] = -np.inf
        if time == 0:
            reached[:, END] = -np.inf
        if search.no_repeat_ngram:
            reached[_repeating(tokens[:live, :time], search.no_repeat_ngram)] = -np.inf
        from_row, token, total = _best(reached, beam - ended)
        seen.append(auxiliary)
        ends = token == END
        first, ended = beam + ended, ended + np.count_nonzero(ends)
        live = len(token) - np.count_nonzero(ends)
        for grown, value in ((tokens, token), (totals, total), (rows, from_row)):
            whole = grown[from_row]
            whole[:, time] = value
            grown[:live], grown[first : beam + ended] = whole[~ends], whole[ends]
        last, parents, before = token[~ends], from_row[~ends], total[~ends]
        if not live:
            break
    # Those that ended come first: of equal scores the caption that ended first.
    chosen = np.r_[beam : beam + ended, :live]
    return _ranked(tokens[chosen], totals[chosen], rows[chosen], seen, search)


def _ranked(
    tokens: np.ndarray,
    totals: np.ndarray,
    rows: np.ndarray,
    seen: Sequence[Sequence[np.ndarray]],
    search: SearchConfig,
) -> Found:
    """Sorts captions by score, and collects the steps' outputs for each token."""
    written = np.count_nonzero(tokens != PAD, axis=1)
    lengths = written - (tokens == END).any(axis=1)
    log_probs = totals[np.arange(len(totals)), written - 1]
    scores = log_probs / np.maximum(lengths, 1).astype("f4") ** np.float32(search.length_power)
    auxiliary = tuple(
        np.stack([output[rows[:, time]] for time, output in enumerate(outputs)], axis=1)
        for outputs in zip(*seen, strict=True)
    )
    found = Found(tokens, lengths, totals, log_probs, scores, auxiliary)
    return found.take(np.argsort(-scores, kind="stable"))


def _repeating(tokens: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the rows, and their tokens, that would complete an n-gram which is there already."""
    length = tokens.shape[1]
    if length < n:
        return np.zeros([2, 0], np.intp)
    there = sliding_window_view(tokens, n, axis=1)
    same = there[:, :, :-1] == tokens[:, np.newaxis, length - n + 1 :]
    rows, starts = np.nonzero(same.all(axis=2))
    return rows, there[rows, starts, -1]


def _best(totals: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns rows, tokens and totals of the `count` best of `[R, V]`, best first."""
    least = -np.inf
    if count <= totals.shape[1]:  # so many are at least as good as the best of their tokens
        least = np.partition(totals.max(axis=0), -count)[-count]
    flat = totals.ravel()
    candidates = np.flatnonzero((flat >= least) & (flat > _FLOOR))
    order = candidates[np.argsort(-flat[candidates], kind="stable")][:count]
    rows, tokens = np.divmod(order, totals.shape[1])
    return rows, tokens.astype(np.int32), flat[order]


def rank_by_consensus(found: Found, sharpness: float) -> Found:
    """Orders captions by expected similarity to a caption of the image, highest first.

    Minimum Bayes risk: `expected_similarity` of `sat_tf.search` for the captions of one image.
    """
    scores = sharpness * found.scores.astype(np.float64)
    weights = np.exp(scores - scores.max())
    near = np.exp(-(np.subtract.outer(found.lengths, found.lengths) ** 2) / (2 * SIGMA**2))
    words = np.where(found.tokens == END, PAD, found.tokens)[:, : found.lengths.max()]
    # An n-gram's number is that of the pair of its first n - 1 words and its last one.
    grams, overlap = np.zeros_like(words, np.int64), 0.0
    for n in range(ORDERS):
        last = words[:, n:]
        pairs = grams[:, : last.shape[1]] * (words.max() + 1) + last
        _, grams = np.unique(pairs, return_inverse=True)
        grams = grams.reshape(last.shape)
        overlap += _overlap(_count(grams, last != PAD))
    agreed = (overlap / ORDERS * near @ (weights / weights.sum())).astype(np.float32)
    return found.take(np.argsort(-agreed, kind="stable"))


def _count(grams: np.ndarray, there: np.ndarray) -> np.ndarray:
    """Counts each n-gram in each caption: `[H, n-grams]`, of numbers `[H, T - n + 1]`."""
    captions, kinds = len(grams), grams.max(initial=0) + 1
    places = grams + kinds * np.arange(captions)[:, np.newaxis]
    return np.bincount(places[there], minlength=captions * kinds).reshape(captions, kinds)


def _overlap(counts: np.ndarray) -> np.ndarray:
    """Computes `<min(c_i, c_j), c_j> / |c_i| |c_j|`, `[H, H]`."""
    shared = np.einsum("ijg,jg->ij", np.minimum(counts[:, np.newaxis], counts), counts)
    norms = np.sqrt((counts**2).sum(axis=1))
    return shared / np.maximum(np.multiply.outer(norms, norms), 1)
