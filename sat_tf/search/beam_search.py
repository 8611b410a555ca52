"""Batched beam search with a shrinking beam, inside the graph."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import tensorflow as tf

from sat_tf.errors import invalid_value
from sat_tf.ops.top_tokens import top_tokens
from sat_tf.search.consensus import rank_by_consensus
from sat_tf.search.hypotheses import Hypotheses, read_hypotheses
from sat_tf.search.loop import Nest, Step, make_rules, run
from sat_tf.vocabulary import PAD, START


def beam_search(
    step: Step,
    state: Nest,
    *,
    batch_size: int | tf.Tensor,
    beam: int,
    max_length: int,
    length_power: float = 0.0,
    consensus: float = 0.0,
    forbidden: Sequence[int] = (PAD, START),
    never_empty: bool = True,
    constants: Nest = (),
) -> Hypotheses:
    """Finds the best captions of each image: `max_y log p(y) / length(y)^p`, over a beam.

    After each step an image keeps its best `beam - n` continuations, `n` being the hypotheses it
    has finished; a continuation by `END` is finished. The search stops when no image has a live
    hypothesis left. Those still live at `max_length` words end there and compete by score. Ties
    go to the lower flat index `slot * V + token`. A beam as wide as the tree of captions is exact.
    Log-probabilities rank within the search, scores rank the results.

    Works eagerly, in `tf.function(autograph=False)` and in an export, with a batch size that is
    unknown until run time.

    Args:
        step: `(tokens [N] int32, state) -> (log_probs [N, V], state, auxiliary)`, V static. At the
            first word `N = B`, since all prefixes of an image are the same; then `N = B * beam`,
            row `b * beam + k` being prefix k of image `b`. A token whose log-probability (nats) is
            not finite is never taken, nor a caption whose sum is below `FLOOR`. State and
            auxiliary are nests of `[N, ...]`; only the first axis of the state may change. Rows
            not in use are stepped too and ignored.
        state: Nest of `[B, ...]`, reordered at every step. Values that no step changes
            (annotations, keys) belong into `constants`.
        batch_size: `B`, an int or a scalar tensor.
        beam: `K`, prefixes kept per image, and captions returned.
        max_length: The most words of a caption.
        length_power: `p` in `score = log_prob / length ** p`; 0 ranks by the sum.
        consensus: If above 0, the captions found are ranked by what they have in common, each
            with weight `exp(consensus * score)`; see `sat_tf.search.consensus`.
        forbidden: Token ids that are never generated.
        never_empty: `END` may not be the first token.
        constants: Nest of `[B, ...]` that no step changes. If it is not empty, `step` is called
            with `(tokens, state, constants)`, and as soon as half of the images have finished,
            for the others alone, with their rows of everything.

    Returns:
        `Hypotheses`. Those of an image do not depend on the other images of the batch; its scores
        may differ by rounding, by up to 2.4e-7 if the power of the length is not 0.

    Raises:
        ValueError: An argument is out of range, or `step` drops or adds state.

    References:
        Xu et al. (2015), arXiv:1502.03044, whose code searches with a shrinking beam;
        Wu et al. (2016), arXiv:1609.08144, for the power of the length.
    """
    rules = make_rules(beam, max_length, length_power, forbidden, never_empty)
    if not 0.0 <= consensus < math.inf:
        raise invalid_value("consensus", "a finite number of at least 0", consensus)
    select = functools.partial(_best_continuations, rules.beam)
    trace = run(step, state, select, batch_size, rules, constants)
    found = read_hypotheses(trace, batch_size, rules)
    return rank_by_consensus(found, consensus) if consensus else found


def _best_continuations(beam: int, _, live: tf.Tensor, log_probs: tf.Tensor):
    """Returns the `beam` best (parent, token, total) `[B, K]` of every image, best first.

    No more than `beam` continuations of one prefix can be among the best of its image, so each row
    is cut to `beam` before rows are compared: `[B, K * V]` is never sorted as a whole.
    """
    slots, count = live.shape[1], min(beam, log_probs.shape[1])
    totals, tokens = top_tokens(log_probs, count)
    totals = tf.expand_dims(live, 2) + tf.reshape(totals, [-1, slots, count])
    totals, tokens = (tf.reshape(x, [-1, slots * count]) for x in (totals, tokens))
    if slots * count < beam:  # the first step has one prefix per image
        missing = [[0, 0], [0, beam - slots * count]]
        totals = tf.pad(totals, missing, constant_values=-math.inf)
        tokens = tf.pad(tokens, missing, constant_values=PAD)
    totals, best = tf.math.top_k(totals, beam)
    tokens = tf.gather(tokens, best, batch_dims=1)
    return tf.minimum(best // count, slots - 1), tokens, totals
