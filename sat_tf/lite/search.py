"""Search over one image in NumPy, by the rules of `sat_tf.search`: beam, then consensus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from sat_tf.config import SearchConfig
from sat_tf.vocabulary import END, PAD, START

_FLOOR = -1e9  # as `sat_tf.search.beam_search.FLOOR`: what is less likely does not exist

ORDERS, SIGMA = 4, 6.0  # of the n-grams and lengths of `rank_by_consensus`

Step = Callable[[np.ndarray, list[int]], tuple[np.ndarray, Sequence[np.ndarray]]]


@dataclass(frozen=True)
class Hypothesis:
    """A caption, or the beginning of one.

    Attributes:
        tokens: Its words, with `END` if it ended by itself.
        totals: float32, log-probability up to each token, nats.
        auxiliary: What the step returned beside each token: alpha and beta.
    """

    tokens: tuple[int, ...] = ()
    totals: tuple[np.float32, ...] = ()
    auxiliary: tuple[Sequence[np.ndarray], ...] = ()

    @property
    def length(self) -> int:
        """Number of words, without `END`."""
        return len(self.tokens) - (END in self.tokens)

    def score(self, length_power: float) -> np.float32:
        """Returns `log p / length^p`."""
        normaliser = np.float32(max(self.length, 1)) ** np.float32(length_power)
        return self.totals[-1] / normaliser

    def then(self, token: int, total: np.float32, auxiliary: Sequence[np.ndarray]) -> Hypothesis:
        """Returns the hypothesis with one more token."""
        return Hypothesis(
            (*self.tokens, token), (*self.totals, total), (*self.auxiliary, auxiliary)
        )


def beam_search(step: Step, search: SearchConfig) -> list[Hypothesis]:
    """Finds the best captions of an image; see `sat_tf.search.beam_search`.

    After each step the best `beam - n` continuations are kept, n being the hypotheses that have
    ended. Of equal ones the lower slot, then the lower token is taken.

    Args:
        step: `(tokens int32 [K], parents) -> (log_probs [K, V], auxiliary)`. It keeps the state:
            row k continues row `parents[k]` of the call before. Rows that are not in use hold
            `PAD`, and what they return is ignored.
        search: The settings; K is its beam.

    Returns:
        At most K hypotheses, the best score first.
    """
    live, parents, ended = [Hypothesis()], [0], []
    for length in range(search.max_length):
        last = [hypothesis.tokens[-1] if hypothesis.tokens else START for hypothesis in live]
        unused = search.beam - len(live)
        tokens = np.array(last + [PAD] * unused, np.int32)
        log_probs, auxiliary = step(tokens, parents + [0] * unused)
        log_probs = np.where(np.isfinite(log_probs), log_probs, -np.inf)[: len(live)]
        log_probs[:, list(search.forbidden)] = -np.inf
        if length < search.min_length:
            log_probs[:, END] = -np.inf
        if search.no_repeat_ngram:
            for row, hypothesis in zip(log_probs, live, strict=True):
                row[_repeating(hypothesis.tokens, search.no_repeat_ngram)] = -np.inf
        before = np.array([h.totals[-1] if h.totals else 0.0 for h in live], np.float32)
        room = search.beam - len(ended)
        grown, grown_parents = [], []
        for slot, token, total in _best(before[:, np.newaxis] + log_probs, room):
            rows = [output[slot] for output in auxiliary]
            hypothesis = live[slot].then(token, total, rows)
            if token == END:
                ended.append(hypothesis)
            else:
                grown.append(hypothesis)
                grown_parents.append(slot)
        live, parents = grown, grown_parents
        if not live:
            break
    # Sorting is stable: of equal scores the caption that ended first.
    return sorted(ended + live, key=lambda h: -h.score(search.length_power))[: search.beam]


def _repeating(tokens: Sequence[int], n: int) -> list[int]:
    """Returns the tokens that would complete an n-gram that is there already."""
    latest = tokens[len(tokens) - n + 1 :]
    starts = range(len(tokens) - n + 1)
    return [tokens[k + n - 1] for k in starts if tokens[k : k + n - 1] == latest]


def _best(totals: np.ndarray, count: int) -> list[tuple[int, int, np.float32]]:
    """Returns (slot, token, total) of the `count` best of `[slots, V]`, best first."""
    flat = totals.ravel()
    count = min(count, flat.size)
    candidates = np.flatnonzero(flat >= np.partition(flat, -count)[-count])
    order = candidates[np.argsort(-flat[candidates], kind="stable")][:count]
    return [
        (*map(int, divmod(index, totals.shape[1])), flat[index])
        for index in order
        if flat[index] > _FLOOR
    ]


def rank_by_consensus(
    found: Sequence[Hypothesis], length_power: float, sharpness: float
) -> list[Hypothesis]:
    """Orders hypotheses by their expected similarity to a caption of the image, highest first.

    Minimum Bayes risk: `expected_similarity` of `sat_tf.search` for the hypotheses of one image.
    """
    scores = sharpness * np.array([h.score(length_power) for h in found], np.float64)
    weights = np.exp(scores - scores.max())
    weights /= weights.sum()
    counts = [_count([token for token in h.tokens if token != END]) for h in found]
    lengths = np.array([h.length for h in found])
    overlap = np.array([[_overlap(ours, theirs) for theirs in counts] for ours in counts])
    near = np.exp(-((lengths[:, None] - lengths) ** 2) / (2 * SIGMA**2))
    agreed = (overlap * near @ weights).astype(np.float32)
    return [found[k] for k in np.argsort(-agreed, kind="stable")]


def _count(words: Sequence[int]) -> list[Counter]:
    """Counts n-grams, by order."""
    return [
        Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))
        for n in range(1, ORDERS + 1)
    ]


def _overlap(ours: list[Counter], theirs: list[Counter]) -> float:
    """Computes the mean over orders of `<min(c_i, c_j), c_j> / |c_i| |c_j|`."""
    total = 0.0
    for a, b in zip(ours, theirs, strict=True):
        norms = np.sqrt(sum(n * n for n in a.values())) * np.sqrt(sum(n * n for n in b.values()))
        if norms:
            total += sum(min(n, b[gram]) * b[gram] for gram, n in a.items()) / norms
    return total / ORDERS
