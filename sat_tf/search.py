"""Batched beam search with a shrinking beam, inside the graph, then consensus.

`sample` of `sat_tf.objectives.reward` shares the loop.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from sat_tf.text.vocabulary import END, PAD, START
from sat_tf.util.errors import invalid_value
from sat_tf.util.fields import NonNegative, NonNegativeInt, PositiveInt, checked

FLOOR = -1e9
"""Log-probability and score of a hypothesis that does not exist; finite, so that JSON holds it."""

Nest = Any
Step = Callable[..., tuple[tf.Tensor, Nest, Nest]]
"""`(tokens [N], state) -> (log_probs [N, V], state, auxiliary)`; see `beam_search`."""
Select = Callable[[Any, tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor, tf.Tensor]]
"""`(index, live [B, K], log_probs [B * K, V]) -> (parent, token, total)`, each `[B, K]`."""


class Hypotheses(NamedTuple):
    """Captions of a batch, best first.

    If an image has fewer than `K` captions, because no more are possible or `step` gave no finite
    log-probability, the places left over hold `PAD` ids, length 0, and `FLOOR` as log-probability
    and score.

    Attributes:
        token_ids: int32 `[B, K, T]`, `T = max_length + 1`: words, then `END`, then `PAD`.
        lengths: int32 `[B, K]`, words without `END`.
        log_probs: float32 `[B, K]`, nats, the sum over the words and `END`. A caption cut at
            `max_length` was never asked for its `END`, so none is added.
        scores: float32 `[B, K]`, `log_probs / max(lengths, 1) ** length_power`; descending,
            unless captions are ranked by consensus.
        word_log_probs: float32 `[B, K, T]`, nats, the terms of `log_probs`: one for each word and
            one for `END`, then zeros.
        auxiliary: Nest of `[B, K, T, ...]`, the step's other outputs for each word, along the
            caption's own ancestry; zero at positions `>= lengths`.
    """

    token_ids: tf.Tensor
    lengths: tf.Tensor
    log_probs: tf.Tensor
    scores: tf.Tensor
    word_log_probs: tf.Tensor
    auxiliary: Nest


@checked
def beam_search(
    step: Step,
    state: Nest,
    *,
    batch_size: int | tf.Tensor,
    beam: PositiveInt,
    max_length: PositiveInt,
    length_power: NonNegative = 0.0,
    consensus: NonNegative = 0.0,
    forbidden: Sequence[int] = (PAD, START),
    no_repeat_ngram: NonNegativeInt = 0,
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
            row `b * beam + k` being prefix k of image `b`. A token with a log-probability (nats)
            that is not finite is never taken, nor a caption with a sum below `FLOOR`. State and
            auxiliary are nests of `[N, ...]`; only the first axis of the state may change. Rows
            not in use are stepped too and ignored.
        state: Nest of `[B, ...]`, reordered at every step. Values that no step changes
            (annotations, keys) belong into `constants`.
        batch_size: `B`, an int or a scalar tensor.
        beam: `K`, prefixes kept per image, and captions returned.
        max_length: The most words of a caption.
        length_power: `p` in `score = log_prob / length ** p`; 0 ranks by sum.
        consensus: If above 0, the captions found are ranked by their similarity, each
            with weight `exp(consensus * score)`; see `expected_similarity`.
        forbidden: Token ids that are never generated.
        no_repeat_ngram: If above 0, no caption has the same n tokens in a row twice.
        constants: Nest of `[B, ...]` that no step changes. If it is not empty, `step` is called
            with `(tokens, state, constants)`, and as soon as half of the images have finished,
            for the others alone, with their rows of everything.

    Returns:
        `Hypotheses`. Those of an image do not depend on the other images of the batch; its scores
        may differ by rounding, by up to 2.4e-7 if the power of the length is not 0.

    Raises:
        ValueError: An argument is out of range, or `step` drops or adds state.

    References:
        Xu et al. (2015), arXiv:1502.03044 (its code searches with a shrinking beam);
        Wu et al. (2016), arXiv:1609.08144, for the power of the length.
    """
    rules = Rules(beam, max_length, length_power, forbidden)
    if no_repeat_ngram:
        step = _without_repeats(step, no_repeat_ngram)
        state = (state, tf.fill([batch_size, max_length], -1))
    select = functools.partial(_best_continuations, rules.beam)
    trace = run(step, state, select, batch_size, rules, constants)
    found = read_hypotheses(trace, batch_size, rules)
    if not consensus:
        return found
    agreed = expected_similarity(found.token_ids, found.lengths, found.scores, consensus)
    agreed = tf.where(found.scores > FLOOR, agreed, -1.0)
    # Of equal captions the better score comes first.
    order = tf.math.top_k(agreed, agreed.shape[1]).indices
    return tf.nest.map_structure(lambda x: tf.gather(x, order, batch_dims=1), found)


def _without_repeats(step: Step, n: int) -> Step:
    """Bars tokens that would repeat an n-gram of the prefix.

    The state also holds each prefix, int32 `[N, max_length]`: right-aligned, -1 before it.
    """

    def restricted(tokens: tf.Tensor, state: Nest, *constants: Nest):
        state, written = state
        log_probs, state, auxiliary = step(tokens, state, *constants)
        written = tf.concat([written[:, 1:], tokens[:, tf.newaxis]], axis=1)
        rows, length = tf.shape(written)[0], written.shape[1]
        if length < n:
            return log_probs, (state, written), auxiliary
        # The n-gram at each place is repeated if its first n - 1 tokens are the latest ones.
        places = length - n + 1
        latest = written[:, length - n + 1 :]
        grams = tf.stack([written[:, k : k + places] for k in range(n)], axis=2)
        repeated = tf.reduce_all(grams[:, :, :-1] == latest[:, tf.newaxis], axis=2)
        repeated &= grams[:, :, -1] >= 0
        # Places without a repetition bar an additional token, which is then dropped.
        words = log_probs.shape[1]
        barred = tf.where(repeated, grams[:, :, -1], words)
        row = tf.broadcast_to(tf.range(rows)[:, tf.newaxis], tf.shape(barred))
        indices = tf.reshape(tf.stack([row, barred], axis=2), [-1, 2])
        counts = tf.scatter_nd(indices, tf.ones_like(indices[:, 0]), [rows, words + 1])
        log_probs = tf.where(counts[:, :words] > 0, -math.inf, tf.cast(log_probs, tf.float32))
        return log_probs, (state, written), auxiliary

    return restricted


def _best_continuations(beam: int, _, live: tf.Tensor, log_probs: tf.Tensor):
    """Returns the `beam` best (parent, token, total) `[B, K]` of every image, best first."""
    # No prefix has more than `beam` of them: `[B, K * V]` is never sorted as a whole.
    slots, count = live.shape[1], min(beam, log_probs.shape[1])
    totals, tokens = tf.math.top_k(log_probs, count)
    totals = tf.expand_dims(live, 2) + tf.reshape(totals, [-1, slots, count])
    totals, tokens = (tf.reshape(x, [-1, slots * count]) for x in (totals, tokens))
    if slots * count < beam:  # the first step has one prefix per image
        missing = [[0, 0], [0, beam - slots * count]]
        totals = tf.pad(totals, missing, constant_values=-math.inf)
        tokens = tf.pad(tokens, missing, constant_values=PAD)
    totals, best = tf.math.top_k(totals, beam)
    tokens = tf.gather(tokens, best, batch_dims=1)
    return tf.minimum(best // count, slots - 1), tokens, totals


# --- the loop of every search ---


class Rules(NamedTuple):
    """The captions a search may write; see `beam_search`."""

    beam: int
    max_length: int
    length_power: float
    forbidden: Sequence[int]


class Trace(NamedTuple):
    """Record of `S` steps: `[S, B, K]` each, auxiliary `[S, B * K, ...]`."""

    tokens: tf.Tensor
    parents: tf.Tensor
    log_probs: tf.Tensor  # running totals; -inf for a slot not in use
    auxiliary: Nest


class _Carry(NamedTuple):
    """Loop state of the `P` images still searched."""

    tokens: tf.Tensor  # [P * K]
    state: Nest
    live: tf.Tensor  # [P, K], totals of the prefixes; -inf for a slot not in use
    room: tf.Tensor  # [P, 1], slots left
    constants: Nest  # [P, ...]
    images: tf.Tensor  # [P], their places in the batch


def run(
    step: Step, state: Nest, select: Select, batch_size, rules: Rules, constants: Nest = ()
) -> Trace:
    """Steps until no image has a live prefix, at most `max_length` times; see `beam_search`."""
    carry = _Carry(
        tf.fill([batch_size], START),
        tf.nest.map_structure(tf.convert_to_tensor, state),
        tf.zeros([batch_size, 1]),
        tf.fill([batch_size, 1], rules.beam),
        tf.nest.map_structure(tf.convert_to_tensor, constants),
        tf.range(batch_size),
    )
    drops = bool(tf.nest.flatten(constants))
    # The first step stays outside the loop, which must know beforehand what it will write. All
    # slots of an image still hold the same prefix, so it is stepped once.
    carry, first = _advance(step, select, rules, 0, carry)
    repeat = functools.partial(tf.repeat, repeats=rules.beam, axis=0)
    first = first._replace(auxiliary=tf.nest.map_structure(repeat, first.auxiliary))
    arrays = tf.nest.map_structure(
        lambda x: tf.TensorArray(x.dtype, rules.max_length, element_shape=_rows_unknown(x)), first
    )
    arrays = _write(arrays, 0, first)
    if drops:
        carry = _without_ended(carry, rules.beam)

    def searches(index, carry: _Carry, _):
        return (index < rules.max_length) & tf.reduce_any(_is_live(carry))

    def one_step(index, carry: _Carry, arrays: Trace):
        images = carry.images
        carry, written = _advance(step, select, rules, index, carry)
        if drops:
            written = _among_all(written, images, batch_size, rules.beam)
            carry = _without_ended(carry, rules.beam)
        return index + 1, carry, _write(arrays, index, written)

    invariants = (
        tf.TensorShape([]),
        tf.nest.map_structure(_rows_unknown, carry),
        tf.nest.map_structure(lambda _: tf.TensorShape(None), arrays),
    )
    steps, _, arrays = tf.while_loop(
        searches, one_step, (tf.constant(1), carry, arrays), invariants
    )
    return tf.nest.map_structure(lambda array: array.gather(tf.range(steps)), arrays)


def _advance(
    step: Step, select: Select, rules: Rules, index, carry: _Carry
) -> tuple[_Carry, Trace]:
    """Takes one step: the next carry, and the record of the step."""
    given = (carry.constants,) if tf.nest.flatten(carry.constants) else ()
    log_probs, state, auxiliary = step(carry.tokens, carry.state, *given)
    log_probs = tf.cast(log_probs, tf.float32)
    # Only the first step, outside the loop, has a Python number as its index.
    allowed = allowed_tokens(log_probs.shape[1], rules.forbidden, first=isinstance(index, int))
    log_probs = tf.where(tf.math.is_finite(log_probs) & allowed, log_probs, -math.inf)
    parent, token, total = select(index, carry.live, log_probs)
    # Finished hypotheses keep their places: the lowest ranks have no slot left.
    in_use = (tf.range(rules.beam) < carry.room) & (total > FLOOR)
    total = tf.where(in_use, total, -math.inf)
    ends = token == END
    room = carry.room - tf.reduce_sum(tf.cast(in_use & ends, tf.int32), axis=1, keepdims=True)
    state = tf.nest.pack_sequence_as(carry.state, tf.nest.flatten(state))  # a list for a tuple
    if rules.beam > 1:  # otherwise each prefix is its own parent
        rows = tf.reshape(flat_rows(parent, carry.live.shape[1]), [-1])
        state = tf.nest.map_structure(lambda x: tf.gather(x, rows), state)
    live = tf.where(ends, -math.inf, total)
    tokens = tf.reshape(token, [-1])
    carry = carry._replace(tokens=tokens, state=state, live=live, room=room)
    return carry, Trace(token, parent, total, () if auxiliary is None else auxiliary)


def _write(arrays: Trace, index, written: Trace) -> Trace:
    written = tf.nest.pack_sequence_as(arrays, tf.nest.flatten(written))
    return tf.nest.map_structure(lambda array, x: array.write(index, x), arrays, written)


def _is_live(carry: _Carry) -> tf.Tensor:
    """Marks the images `[P]` that have a live prefix."""
    return tf.reduce_any(carry.live > -math.inf, axis=1)


def _without_ended(carry: _Carry, beam: int) -> _Carry:
    """Keeps the live images, and all that belongs to them, as soon as they are half or fewer."""
    live = _is_live(carry)

    def drop() -> _Carry:
        kept = tf.cast(tf.where(live)[:, 0], tf.int32)
        rows = _rows_of(kept, beam)
        by_row, by_image = (carry.tokens, carry.state), carry[2:]
        by_row = tf.nest.map_structure(lambda x: tf.gather(x, rows), by_row)
        return _Carry(*by_row, *tf.nest.map_structure(lambda x: tf.gather(x, kept), by_image))

    most = 2 * tf.math.count_nonzero(live, dtype=tf.int32) > tf.size(live)
    return tf.cond(most, lambda: carry, drop)


def _among_all(written: Trace, images: tf.Tensor, batch_size, beam: int) -> Trace:
    """Puts values of some images `[P, ...]` in their places among all `[B, ...]`."""
    rows, places = _rows_of(images, beam), images[:, tf.newaxis]

    def scatter(x: tf.Tensor, places: tf.Tensor, count) -> tf.Tensor:
        return tf.scatter_nd(places, x, tf.concat([[count], tf.shape(x)[1:]], axis=0))

    unused = tf.fill([batch_size, beam], -math.inf)
    return Trace(
        scatter(written.tokens, places, batch_size),
        scatter(written.parents, places, batch_size),
        tf.tensor_scatter_nd_update(unused, places, written.log_probs),
        tf.nest.map_structure(
            lambda x: scatter(x, rows[:, tf.newaxis], batch_size * beam), written.auxiliary
        ),
    )


def _rows_of(images: tf.Tensor, beam: int) -> tf.Tensor:
    """Returns the rows `[P * K]` of the prefixes of images `[P]`."""
    return tf.reshape(images[:, tf.newaxis] * beam + tf.range(beam), [-1])


def allowed_tokens(vocabulary: int | None, forbidden: Sequence[int], first: bool) -> np.ndarray:
    """Marks the tokens that a step may generate, bool `[V]`; known when the graph is made.

    The `first` step bars `END` too, as no caption is empty. A V that is not known is a
    `ValueError`.
    """
    if vocabulary is None:
        raise invalid_value("step", "log-probabilities of a known number of tokens", vocabulary)
    barred = (*forbidden, END) if first else tuple(forbidden)
    return ~np.isin(np.arange(vocabulary), barred)


def flat_rows(parent: tf.Tensor, beam: int) -> tf.Tensor:
    """Returns the rows `b * K + parent[b, ...]` of the `[B * K]` prefixes."""
    first = tf.range(tf.shape(parent)[0]) * beam
    return parent + tf.reshape(first, [-1] + [1] * (parent.shape.rank - 1))


def _rows_unknown(x: tf.Tensor) -> tf.TensorShape:
    return tf.TensorShape([None]).concatenate(x.shape[1:])


# --- captions, read off the trace of the loop ---


def read_hypotheses(trace: Trace, batch_size: int | tf.Tensor, rules: Rules) -> Hypotheses:
    """Ranks everything that finished, and reads its words by following the parents back."""
    beam = rules.beam
    index = tf.range(tf.shape(trace.tokens)[0])[:, None, None]
    ends = trace.tokens == END
    # A hypothesis that is live after the last step has `max_length` words and ends there.
    complete = ends | (index == rules.max_length - 1)
    lengths = tf.where(ends, index, index + 1)
    normaliser = tf.cast(tf.maximum(lengths, 1), tf.float32) ** rules.length_power
    scores = tf.where(complete, trace.log_probs / normaliser, -math.inf)

    by_image = lambda x: tf.reshape(tf.transpose(x, [1, 0, 2]), [batch_size, -1])  # noqa: E731

    scores, chosen = tf.math.top_k(by_image(scores), beam)
    exists = scores > -math.inf
    lengths = tf.where(exists, tf.gather(by_image(lengths), chosen, batch_dims=1), 0)
    log_probs = tf.gather(by_image(trace.log_probs), chosen, batch_dims=1)
    last_step = chosen // beam
    slots = _ancestry(trace, last_step, chosen % beam)
    position = tf.range(rules.max_length + 1)
    is_word = position < lengths[:, :, None]
    is_end = (position == lengths[:, :, None]) & exists[:, :, None]
    rows = _written_at(slots, trace, rules)
    words = tf.gather(tf.reshape(trace.tokens, [-1]), rows)
    # The log-probability of a token is the difference of two running totals.
    totals = tf.gather(tf.reshape(trace.log_probs, [-1]), rows)
    before = tf.pad(totals[:, :, :-1], [[0, 0], [0, 0], [1, 0]])
    written = (position <= last_step[:, :, None]) & exists[:, :, None]
    # A step's auxiliary outputs lie at the prefix that it extended, one slot earlier.
    parents = tf.pad(slots[:, :, :-1], [[0, 0], [0, 0], [1, 0]])
    rows = _written_at(parents, trace, rules)
    return Hypotheses(
        tf.where(is_word, words, tf.where(is_end, END, PAD)),
        lengths,
        tf.where(exists, log_probs, FLOOR),
        tf.where(exists, scores, FLOOR),
        tf.where(written, totals - before, 0.0),
        tf.nest.map_structure(lambda x: _along(x, rows, is_word), trace.auxiliary),
    )


def _ancestry(trace: Trace, last_step: tf.Tensor, last_slot: tf.Tensor) -> tf.Tensor:
    """Returns the slot `[B, K, S]` of each hypothesis after each step, up to its last."""
    steps = tf.shape(trace.tokens)[0]
    slots = tf.TensorArray(tf.int32, size=steps, element_shape=last_slot.shape)

    def body(index, slot, slots):
        slot = tf.where(last_step == index, last_slot, slot)
        parent = tf.gather(trace.parents[index], slot, batch_dims=1)
        return index - 1, parent, slots.write(index, slot)

    start = (steps - 1, tf.zeros_like(last_slot), slots)
    slots = tf.while_loop(lambda index, *_: index >= 0, body, start)[2]
    return tf.transpose(slots.stack(), [1, 2, 0])


def _written_at(slots: tf.Tensor, trace: Trace, rules: Rules) -> tf.Tensor:
    """Returns flat indices `[B, K, T]` into `[S * B * K]` of `slots` `[B, K, S]`; 0 from `S` on."""
    steps, rows = tf.shape(slots)[2], tf.shape(trace.tokens)[1] * rules.beam
    index = flat_rows(slots, rules.beam) + tf.range(steps) * rows
    index = tf.pad(index, [[0, 0], [0, 0], [0, rules.max_length + 1 - steps]])
    return tf.ensure_shape(index, [None, rules.beam, rules.max_length + 1])


def _along(x: tf.Tensor, rows: tf.Tensor, keep: tf.Tensor) -> tf.Tensor:
    """Returns `x` `[S, N, ...]` at the flat `rows` `[B, K, T]`, zero where `keep` is False."""
    inner = tf.shape(x)[2:]
    x = tf.gather(tf.reshape(x, tf.concat([[-1], inner], 0)), rows)
    keep = tf.reshape(keep, tf.concat([tf.shape(keep), tf.ones_like(inner)], 0))
    # Not a product: rows not in use may hold anything, NaN included.
    return tf.where(keep, x, tf.zeros_like(x))


# --- consensus: minimum Bayes risk by the similarity of n-grams ---

ORDERS = 4
SIGMA = 6.0
"""Width of the Gaussian over differences of length, words: CIDEr-D's."""


def expected_similarity(
    token_ids: tf.Tensor, lengths: tf.Tensor, scores: tf.Tensor, sharpness: float
) -> tf.Tensor:
    """Computes how similar each caption of a beam is expected to be to a caption of its image.

        consensus_i = sum_j w_j similarity(y_i, y_j),  w = softmax(sharpness * scores)

    The similarity is that of CIDEr-D without tf-idf: the mean over n-grams of n = 1..4 words of
    `<min(c_i, c_j), c_j> / |c_i| |c_j|`, c being counts, times a Gaussian over the difference of
    lengths with a width of 6 words. `<end>` is not a word.

    Args:
        token_ids: int32 `[B, K, T]`, words, then anything.
        lengths: int32 `[B, K]`, words.
        scores: float32 `[B, K]`; very low for a caption that does not exist.
        sharpness: 0 gives every caption the same weight.

    Returns:
        float32 `[B, K]`, 0 to 1.

    References:
        Kumar & Byrne (2004), "Minimum Bayes-Risk Decoding for Statistical Machine Translation";
        Vedantam et al. (2015), arXiv:1411.5726, for the similarity.
    """
    # Equality of all words of an image with all others takes [K, T, K, T]: one image at a time.
    return tf.map_fn(
        lambda image: tf.linalg.matvec(_similarity(*image[:2]), image[2]),
        (token_ids, lengths, tf.nn.softmax(sharpness * scores)),
        fn_output_signature=tf.TensorSpec(scores.shape[1:], tf.float32),
    )


def _similarity(tokens: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """Compares every caption of an image, rows of `[K, T]`, with every other: `[K, K]`."""
    is_word = tf.sequence_mask(lengths, tokens.shape[1])
    word = tf.where(is_word, tokens, -1)
    equal = (word[:, :, None, None] == word) & is_word[:, :, None, None]
    same, total = equal, 0.0
    for n in range(ORDERS):
        if n:  # an n-gram is equal if its first n - 1 words are, and the n-th
            same = same[:, :-1, :, :-1] & equal[:, n:, :, n:]
        # [K, T, K]: how often the n-gram that starts at word t of caption i is in j, in i itself.
        counts = tf.reduce_sum(tf.cast(same, tf.float32), axis=3)
        own = tf.transpose(tf.linalg.diag_part(tf.transpose(counts, [1, 0, 2])))
        norms = tf.sqrt(tf.reduce_sum(own, axis=1))  # one found c times adds c at each of them
        terms = tf.math.divide_no_nan(tf.minimum(own[:, :, None], counts) * counts, own[:, :, None])
        total += tf.math.divide_no_nan(tf.reduce_sum(terms, axis=1), norms[:, None] * norms)
    apart = tf.cast(lengths[:, None] - lengths, tf.float32)
    return total / ORDERS * tf.exp(-(apart**2) / (2 * SIGMA**2))
