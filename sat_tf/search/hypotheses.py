"""The captions that a search found, read off the trace of its loop."""

from __future__ import annotations

import math
from typing import NamedTuple

import tensorflow as tf

from sat_tf.search.loop import FLOOR, Nest, Rules, Trace, flat_rows
from sat_tf.vocabulary import END, PAD


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
        auxiliary: Nest of `[B, K, T, ...]`, what `step` returned beside each word, along the
            caption's own ancestry; zero at positions `>= lengths`.
    """

    token_ids: tf.Tensor
    lengths: tf.Tensor
    log_probs: tf.Tensor
    scores: tf.Tensor
    word_log_probs: tf.Tensor
    auxiliary: Nest


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

    def by_image(x: tf.Tensor) -> tf.Tensor:
        return tf.reshape(tf.transpose(x, [1, 0, 2]), [batch_size, -1])

    scores, chosen = tf.math.top_k(by_image(scores), beam)
    exists = scores > -math.inf
    lengths = tf.where(exists, tf.gather(by_image(lengths), chosen, batch_dims=1), 0)
    log_probs = tf.gather(by_image(trace.log_probs), chosen, batch_dims=1)
    last_step = chosen // beam
    slots = _ancestry(trace, last_step, chosen % beam)
    words, auxiliary = _read_words(trace, slots, lengths, exists, rules)
    written = (tf.range(rules.max_length + 1) <= last_step[:, :, None]) & exists[:, :, None]
    return Hypotheses(
        words,
        lengths,
        tf.where(exists, log_probs, FLOOR),
        tf.where(exists, scores, FLOOR),
        _word_log_probs(trace, slots, written, rules),
        auxiliary,
    )


def _ancestry(trace: Trace, last_step: tf.Tensor, last_slot: tf.Tensor) -> tf.Tensor:
    """Returns the slot `[B, K, S]` that held each hypothesis after each step.

    A hypothesis ended at `last_step` in `last_slot`, `[B, K]`; later slots are arbitrary.
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


def _read_words(trace: Trace, slots: tf.Tensor, lengths: tf.Tensor, exists: tf.Tensor, rules):
    """Returns token ids `[B, K, T]`, and the step's auxiliary outputs beside each word."""
    position = tf.range(rules.max_length + 1)
    is_word = position < lengths[:, :, None]
    is_end = (position == lengths[:, :, None]) & exists[:, :, None]
    words = tf.gather(tf.reshape(trace.tokens, [-1]), _written_at(slots, trace, rules))
    words = tf.where(is_word, words, tf.where(is_end, END, PAD))
    # A step's auxiliary outputs lie at the prefix that it extended, one slot earlier.
    parents = tf.pad(slots[:, :, :-1], [[0, 0], [0, 0], [1, 0]])
    rows = _written_at(parents, trace, rules)
    return words, tf.nest.map_structure(lambda x: _along(x, rows, is_word), trace.auxiliary)


def _word_log_probs(trace: Trace, slots: tf.Tensor, written: tf.Tensor, rules) -> tf.Tensor:
    """Returns the log-probability `[B, K, T]` of each token, as differences of running totals."""
    rows = _written_at(slots, trace, rules)
    totals = tf.gather(tf.reshape(trace.log_probs, [-1]), rows)
    before = tf.pad(totals[:, :, :-1], [[0, 0], [0, 0], [1, 0]])
    return tf.where(written, totals - before, 0.0)


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
