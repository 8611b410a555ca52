"""Captions from a step function: greedy, sampled, and batched beam search, in the graph.

They run eagerly, in `tf.function(autograph=False)` and in an export, the batch size unknown until
run time. All share one loop (`sat_tf.decoding_loop`), which writes (parent, token, log-probability)
and the step's auxiliary outputs to TensorArrays; sequences are read off afterwards, following all
parents back at once.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from sat_tf.decoding_loop import FLOOR, Nest, Rules, Step, Trace, flat_rows, invalid, run
from sat_tf.vocabulary import END, PAD, START

_BLOCK = 32  # tokens
_BLOCKS_A_TOKEN = 4  # With fewer to choose from, sorting all tokens is as quick.


class Hypotheses(NamedTuple):
    """Captions of a batch, best first.

    Where fewer than `K` captions are possible, or `step` left no finite log-probability to go on
    with, the places over hold `PAD` ids, length 0, and `FLOOR` as log-probability and score.

    Attributes:
        token_ids: `[B, K, T]` int32, `T = max_length + 1`: words, then `END`, then `PAD`.
        lengths: `[B, K]` int32, words without `END`.
        log_probs: `[B, K]` float32, nats, the sum over the words and `END`. A caption cut at
            `max_length` was never asked for its `END`, so none is added.
        scores: `[B, K]` float32, `log_probs / max(lengths, 1) ** length_power`; descending.
        auxiliary: Nest of `[B, K, T, ...]`: what `step` returned beside each word, along the
            caption's own ancestry; zero at positions `>= lengths`.
    """

    token_ids: tf.Tensor
    lengths: tf.Tensor
    log_probs: tf.Tensor
    scores: tf.Tensor
    auxiliary: Nest


def beam_search(
    step: Step,
    state: Nest,
    *,
    batch_size: int | tf.Tensor,
    beam: int,
    max_length: int,
    length_power: float = 0.0,
    forbidden: Sequence[int] = (PAD, START),
    never_empty: bool = True,
    pictures: Nest = (),
) -> Hypotheses:
    """The `beam` best captions found by beam search with a shrinking beam.

    After each step an image keeps its best `beam - n` continuations, `n` the hypotheses it has
    finished; those that are `END` finish. The search ends when no image has a live one left. What
    is live at `max_length` words is ended by force and competes by score. Equal continuations go to
    the lower flat index `slot * V + token`. A beam of 1 is greedy search; one as wide as the tree
    of captions is exact. Log-probabilities rank within the search, scores the results.

    Args:
        step: `(tokens [N] int32, state) -> (log_probs [N, V], state, auxiliary)`, V known when the
            graph is made. At the first word `N = B`, since all prefixes of an image are the same;
            then `N = B * beam`, row `b * beam + k` the k-th prefix of image `b`. A token whose
            log-probability (nats) is not finite is never taken, nor a caption whose sum is below
            `FLOOR`. State and auxiliary are nests of `[N, ...]`, the state's other axes constant.
            Rows not in use are stepped too, and ignored.
        state: Nest of `[B, ...]`, reordered at every step: what no step changes (annotations,
            their keys) is cheaper captured by `step` than put here, or given as `pictures`.
        batch_size: `B`, an int or a scalar tensor.
        beam: `K`, prefixes an image, and captions returned.
        max_length: The most words a caption may have.
        length_power: `p` in `score = log_prob / length ** p`; 0 leaves the sum as it is.
        forbidden: Token ids never generated.
        never_empty: `END` is not allowed to be the first token.
        pictures: Nest of `[B, ...]` that no step changes. Where it is not empty, `step` is
            `(tokens, state, pictures)`, and once half of the images or more have no live
            hypothesis, it is called for the others alone: with their rows, and their parts of
            this.

    Returns:
        `Hypotheses`. An image's do not depend on the other images of its batch.

    Raises:
        ValueError: For an argument out of range, or a `step` that drops or adds state.

    References:
        Xu et al. (2015), arXiv:1502.03044, whose code searches with a shrinking beam;
        Wu et al. (2016), arXiv:1609.08144, for normalising by a power of the length.
    """
    rules = _rules(beam, max_length, length_power, forbidden, never_empty)
    select = functools.partial(_best_continuations, rules.beam)
    return _resolve(run(step, state, select, batch_size, rules, pictures), batch_size, rules)


def greedy(step: Step, state: Nest, **options: Any) -> Hypotheses:
    """The most probable token at every step: `beam_search` with a beam of 1, its other options."""
    return beam_search(step, state, beam=1, **options)


def sample(
    step: Step,
    state: Nest,
    *,
    batch_size: int | tf.Tensor,
    max_length: int,
    seed: tf.Tensor | Sequence[int],
    temperature: float = 1.0,
    length_power: float = 0.0,
    forbidden: Sequence[int] = (PAD, START),
    never_empty: bool = True,
) -> Hypotheses:
    """One caption an image, each token drawn from `softmax(log_probs / temperature)`.

    Tokens that may not be generated are left out of the softmax. `log_probs` of the result are
    those `step` gave, whatever the temperature. Arguments as in `beam_search` with `K = 1`, and:

    Args:
        seed: `[2]` int32; the same seed gives the same captions. An image's draw depends on its
            place in the batch, not on the other images.
        temperature: Above 0; below 1 sharpens.
    """
    rules = _rules(1, max_length, length_power, forbidden, never_empty)
    if not 0.0 < temperature < math.inf:
        raise invalid("temperature", "a number above 0 (`greedy` is its limit)", temperature)
    seed = tf.convert_to_tensor(seed, tf.int32)

    def select(index, live: tf.Tensor, log_probs: tf.Tensor):
        # The arg max of Gumbel-perturbed logits is a draw from their softmax, and is a valid index
        # even for a row without a single allowed token.
        uniform = tf.random.stateless_uniform(
            tf.shape(log_probs), tf.random.fold_in(seed, index), minval=1e-30
        )
        noisy = log_probs / temperature - tf.math.log(-tf.math.log(uniform))
        token = tf.argmax(noisy, axis=-1, output_type=tf.int32)[:, None]
        log_prob = live + tf.gather(log_probs, token, batch_dims=1)
        return tf.zeros_like(token), token, log_prob

    return _resolve(run(step, state, select, batch_size, rules), batch_size, rules)


def _rules(beam, max_length, length_power, forbidden, never_empty) -> Rules:
    for name, value in (("beam", beam), ("max_length", max_length)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise invalid(name, "an integer of at least 1", value)
    if not 0.0 <= length_power < math.inf:
        raise invalid("length_power", "a finite number of at least 0", length_power)
    ids = tuple(int(token) for token in forbidden)
    return Rules(beam, max_length, float(length_power), ids, bool(never_empty))


def _best_continuations(beam: int, _, live: tf.Tensor, log_probs: tf.Tensor):
    """The `beam` best (parent, token, total) `[B, K]` of every image, best first.

    Of K prefixes an image, or of the one before the first word.

    No more than `beam` continuations of one prefix can be among the best of its image, so each row
    is cut to `beam` before rows are compared: the whole `[B, K * V]` is never sorted.
    """
    slots, count = live.shape[1], min(beam, log_probs.shape[1])
    totals, tokens = top_tokens(log_probs, count)
    totals = tf.expand_dims(live, 2) + tf.reshape(totals, [-1, slots, count])
    totals, tokens = (tf.reshape(x, [-1, slots * count]) for x in (totals, tokens))
    if slots * count < beam:  # The one prefix of the first step, and a tiny vocabulary.
        missing = [[0, 0], [0, beam - slots * count]]
        totals = tf.pad(totals, missing, constant_values=-math.inf)
        tokens = tf.pad(tokens, missing, constant_values=PAD)
    totals, best = tf.math.top_k(totals, beam)
    tokens = tf.gather(tokens, best, batch_dims=1)
    return tf.minimum(best // count, slots - 1), tokens, totals


def top_tokens(log_probs: tf.Tensor, count: int) -> tuple[tf.Tensor, tf.Tensor]:
    """`tf.math.top_k` of rows `[R, V]`, quicker where V is large beside `count`.

    The best tokens lie in the blocks whose own best are the best: after one pass for the blocks'
    maxima, `count` blocks a row are left to sort.

    Args:
        log_probs: float32 `[R, V]`, V known, no NaN.
        count: Tokens a row, at most V.

    Returns:
        Log-probabilities and tokens `[R, count]`, best first, of equal ones the lower token first.
        Which token a log-probability of -inf comes with means nothing.
    """
    vocabulary = log_probs.shape[1]
    if count == 1 or vocabulary < _BLOCKS_A_TOKEN * count * _BLOCK:
        return tf.math.top_k(log_probs, count)
    over = -vocabulary % _BLOCK
    padded = tf.pad(log_probs, [[0, 0], [0, over]], constant_values=-math.inf)
    blocks = tf.reshape(padded, [-1, (vocabulary + over) // _BLOCK, _BLOCK])
    _, best = tf.math.top_k(tf.reduce_max(blocks, axis=2), count)
    # In their order, so that of equal tokens the lower one comes first.
    best = tf.sort(best, axis=1)
    tokens = tf.reshape(best[:, :, None] * _BLOCK + tf.range(_BLOCK), [-1, count * _BLOCK])
    left = tf.reshape(tf.gather(blocks, best, batch_dims=1), [-1, count * _BLOCK])
    found, places = tf.math.top_k(left, count)
    tokens = tf.gather(tokens, places, batch_dims=1)
    return found, tf.minimum(tokens, vocabulary - 1)


def _resolve(trace: Trace, batch_size: tf.Tensor, rules: Rules) -> Hypotheses:
    """Ranks everything that finished and reads its words off the parents."""
    beam, horizon = rules.beam, rules.max_length + 1
    index = tf.range(tf.shape(trace.tokens)[0])[:, None, None]
    ends = trace.tokens == END
    # Whatever is live after the last step has `max_length` words and ends there.
    complete = ends | (index == rules.max_length - 1)
    lengths = tf.where(ends, index, index + 1)
    normaliser = tf.cast(tf.maximum(lengths, 1), tf.float32) ** rules.length_power
    scores = tf.where(complete, trace.log_probs / normaliser, -math.inf)

    def by_image(x: tf.Tensor) -> tf.Tensor:
        return tf.reshape(tf.transpose(x, [1, 0, 2]), [batch_size, -1])

    scores, chosen = tf.math.top_k(by_image(scores), beam)
    exists = scores > -math.inf
    lengths = tf.where(exists, tf.gather(by_image(lengths), chosen, batch_dims=1), 0)
    log_probs = tf.gather(by_image(trace.log_probs), chosen, batch_dims=1)

    slots = _ancestry(trace, chosen // beam, chosen % beam)
    position = tf.range(horizon)
    is_word = position < lengths[:, :, None]
    is_end = (position == lengths[:, :, None]) & exists[:, :, None]
    words = tf.gather(tf.reshape(trace.tokens, [-1]), _written_at(slots, batch_size, rules))
    words = tf.where(is_word, words, tf.where(is_end, END, PAD))
    # A step's auxiliary outputs lie at the prefix it went on from, one slot earlier.
    parents = tf.pad(slots[:, :, :-1], [[0, 0], [0, 0], [1, 0]])
    rows = _written_at(parents, batch_size, rules)
    auxiliary = tf.nest.map_structure(lambda x: _along(x, rows, is_word), trace.auxiliary)
    log_probs = tf.where(exists, log_probs, FLOOR)
    return Hypotheses(words, lengths, log_probs, tf.where(exists, scores, FLOOR), auxiliary)


def _ancestry(trace: Trace, last_step: tf.Tensor, last_slot: tf.Tensor) -> tf.Tensor:
    """The slot `[B, K, S]` that held each hypothesis after each step, by its parents.

    `last_step` and `last_slot` `[B, K]` say where a hypothesis ended; without meaning after that.
    """
    steps = tf.shape(trace.tokens)[0]
    slots = tf.TensorArray(tf.int32, size=steps, element_shape=last_slot.shape)

    def body(index, slot, slots):
        slot = tf.where(last_step == index, last_slot, slot)
        parent = tf.gather(trace.parents[index], slot, batch_dims=1)
        return index - 1, parent, slots.write(index, slot)

    start = (steps - 1, tf.zeros_like(last_slot), slots)
    slots = tf.while_loop(lambda index, *_: index >= 0, body, start)[2]
    return tf.transpose(slots.stack(), [1, 2, 0])


def _written_at(slots: tf.Tensor, batch_size: tf.Tensor, rules: Rules) -> tf.Tensor:
    """Flat indices `[B, K, T]` into `[S * B * K]` of `slots` `[B, K, S]`; zero from `S` on."""
    steps = tf.shape(slots)[2]
    index = flat_rows(slots, rules.beam) + tf.range(steps) * (batch_size * rules.beam)
    index = tf.pad(index, [[0, 0], [0, 0], [0, rules.max_length + 1 - steps]])
    return tf.ensure_shape(index, [None, rules.beam, rules.max_length + 1])


def _along(x: tf.Tensor, rows: tf.Tensor, keep: tf.Tensor) -> tf.Tensor:
    """`x` `[S, N, ...]` at the flat `rows` `[B, K, T]`, zero where not `keep`."""
    inner = tf.shape(x)[2:]
    x = tf.gather(tf.reshape(x, tf.concat([[-1], inner], 0)), rows)
    keep = tf.reshape(keep, tf.concat([tf.shape(keep), tf.ones_like(inner)], 0))
    # Not a product: rows not in use may hold anything, NaN included.
    return tf.where(keep, x, tf.zeros_like(x))
