"""The loop of every search: steps the model and records tokens, parents and running totals."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from sat_tf.errors import invalid_value, positive
from sat_tf.vocabulary import END, START

FLOOR = -1e9
"""Log-probability and score of a hypothesis that does not exist; finite, so that JSON holds it."""

Nest = Any
Step = Callable[..., tuple[tf.Tensor, Nest, Nest]]
"""`(tokens [N], state) -> (log_probs [N, V], state, auxiliary)`; see `beam_search`."""
Select = Callable[[Any, tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor, tf.Tensor]]
"""`(index, live [B, K], log_probs [B * K, V]) -> (parent, token, total)`, each `[B, K]`."""


class Rules(NamedTuple):
    """The captions a search may write; see `beam_search`."""

    beam: int
    max_length: int
    length_power: float
    forbidden: tuple[int, ...]
    never_empty: bool


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


def make_rules(
    beam: int, max_length: int, length_power: float, forbidden: Sequence[int], never_empty: bool
) -> Rules:
    """Returns the rules of a search.

    Raises:
        ValueError: One is out of its range.
    """
    for name, value in (("beam", beam), ("max_length", max_length)):
        positive(name, value)
    if not 0.0 <= length_power < math.inf:
        raise invalid_value("length_power", "a finite number of at least 0", length_power)
    ids = tuple(int(token) for token in forbidden)
    return Rules(int(beam), int(max_length), float(length_power), ids, bool(never_empty))


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
    # The first step stays outside the loop, which must know beforehand what it will write. All
    # slots of an image still hold the same prefix, so it is stepped once.
    carry, first = _advance(step, select, rules, 0, carry)
    auxiliary = tf.nest.map_structure(lambda x: tf.repeat(x, rules.beam, axis=0), first[-1])
    first = (*first[:-1], auxiliary)
    arrays = _write(_arrays_for(first, rules), 0, first)

    def searches(index, carry: _Carry):
        return (index < rules.max_length) & tf.reduce_any(_is_live(carry))

    def one_step(index, carry: _Carry, arrays):
        carry, written = _advance(step, select, rules, index, carry)
        return index + 1, carry, _write(arrays, index, written)

    def until_half_have_ended(begin, carry: _Carry, arrays):
        def most_are_live(index, carry: _Carry):
            count = tf.reduce_sum(tf.cast(_is_live(carry), tf.int32))
            most = 2 * count > tf.size(carry.images)
            # At least one step: an array that nothing was written to cannot be read.
            return searches(index, carry) & (most | (index == begin))

        index, after, part = _loop(most_are_live, one_step, begin, carry, _arrays_for(first, rules))
        steps = tf.range(begin, index)
        part = tf.nest.map_structure(lambda array: array.gather(steps), part)
        part = _scatter_images(part, carry.images, batch_size, rules.beam)
        arrays = tf.nest.map_structure(lambda array, x: array.scatter(steps, x), arrays, part)
        return index, _drop_ended(after, rules.beam), arrays

    body = until_half_have_ended if tf.nest.flatten(constants) else one_step
    steps, _, arrays = _loop(searches, body, tf.constant(1), carry, arrays)
    return Trace(*tf.nest.map_structure(lambda array: array.gather(tf.range(steps)), arrays))


def _advance(step: Step, select: Select, rules: Rules, index, carry: _Carry) -> tuple[_Carry, Nest]:
    """Takes one step: the next carry, and (token, parent, total, auxiliary) to write."""
    given = (carry.constants,) if tf.nest.flatten(carry.constants) else ()
    log_probs, state, auxiliary = step(carry.tokens, carry.state, *given)
    log_probs = tf.cast(log_probs, tf.float32)
    # Only the first step, outside the loop, has a Python number as its index.
    first = isinstance(index, int) and rules.never_empty
    allowed = allowed_tokens(log_probs.shape[1], rules.forbidden, first)
    log_probs = tf.where(tf.math.is_finite(log_probs) & allowed, log_probs, -math.inf)
    parent, token, total = select(index, carry.live, log_probs)
    # Finished hypotheses keep their places: the lowest ranks have no slot left.
    in_use = (tf.range(rules.beam) < carry.room) & (total > FLOOR)
    total = tf.where(in_use, total, -math.inf)
    ends = token == END
    room = carry.room - tf.reduce_sum(tf.cast(in_use & ends, tf.int32), axis=1, keepdims=True)
    state = _pack_like(carry.state, state)
    if rules.beam > 1:  # otherwise each prefix is its own parent
        rows = tf.reshape(flat_rows(parent, carry.live.shape[1]), [-1])
        state = tf.nest.map_structure(lambda x: tf.gather(x, rows), state)
    live = tf.where(ends, -math.inf, total)
    tokens = tf.reshape(token, [-1])
    carry = carry._replace(tokens=tokens, state=state, live=live, room=room)
    return carry, (token, parent, total, () if auxiliary is None else auxiliary)


def _loop(condition, body, index, carry: _Carry, arrays: Nest):
    """Runs `body` while `condition(index, carry)`; the number of images may change."""
    invariants = (
        tf.TensorShape([]),
        tf.nest.map_structure(_rows_unknown, carry),
        tf.nest.map_structure(lambda _: tf.TensorShape(None), arrays),
    )
    start = (index, carry, arrays)
    return tf.while_loop(lambda index, carry, _: condition(index, carry), body, start, invariants)


def _arrays_for(written: Nest, rules: Rules) -> Nest:
    return tf.nest.map_structure(
        lambda x: tf.TensorArray(x.dtype, rules.max_length, element_shape=_rows_unknown(x)), written
    )


def _write(arrays: Nest, index, written: Nest) -> Nest:
    written = tf.nest.pack_sequence_as(arrays, tf.nest.flatten(written))
    return tf.nest.map_structure(lambda array, x: array.write(index, x), arrays, written)


def _is_live(carry: _Carry) -> tf.Tensor:
    """Marks the images `[P]` that have a live prefix."""
    return tf.reduce_any(carry.live > -math.inf, axis=1)


def _drop_ended(carry: _Carry, beam: int) -> _Carry:
    """Keeps the live images and everything that belongs to them."""
    kept = tf.cast(tf.where(_is_live(carry))[:, 0], tf.int32)
    rows = tf.reshape(kept[:, tf.newaxis] * beam + tf.range(beam), [-1])
    by_image = (carry.live, carry.room, carry.constants, carry.images)
    tokens, state = tf.nest.map_structure(lambda x: tf.gather(x, rows), (carry.tokens, carry.state))
    return _Carry(tokens, state, *tf.nest.map_structure(lambda x: tf.gather(x, kept), by_image))


def _scatter_images(written: Nest, images: tf.Tensor, batch_size, beam: int) -> Nest:
    """Puts what was written for some images `[S, P, ...]` in its place among all `[S, B, ...]`."""
    count = tf.size(images)
    missing = tf.fill([batch_size], count)
    places = tf.tensor_scatter_nd_update(missing, images[:, tf.newaxis], tf.range(count))
    rows = tf.reshape(places[:, tf.newaxis] * beam + tf.range(beam), [-1])

    def scatter(x: tf.Tensor, places: tf.Tensor, over: int, filler: float = 0):
        padding = [[0, 0], [0, over], *[[0, 0]] * (x.shape.rank - 2)]
        return tf.gather(tf.pad(x, padding, constant_values=filler), places, axis=1)

    token, parent, total, auxiliary = written
    return (
        scatter(token, places, 1),
        scatter(parent, places, 1),
        scatter(total, places, 1, -math.inf),
        tf.nest.map_structure(lambda x: scatter(x, rows, beam), auxiliary),
    )


def allowed_tokens(vocabulary: int | None, forbidden: Sequence[int], first: bool) -> np.ndarray:
    """Marks the tokens that a step may generate, bool `[V]`; known when the graph is made.

    Args:
        vocabulary: V.
        forbidden: Token ids that are never generated.
        first: For the first step of captions that are never empty, which bars `END` too.

    Raises:
        ValueError: V is unknown.
    """
    if vocabulary is None:
        raise invalid_value("step", "log-probabilities of a known number of tokens", vocabulary)
    barred = (*forbidden, END) if first else tuple(forbidden)
    return ~np.isin(np.arange(vocabulary), barred)


def flat_rows(parent: tf.Tensor, beam: int) -> tf.Tensor:
    """Returns the rows `b * K + parent[b, ...]` of the `[B * K]` prefixes."""
    first = tf.range(tf.shape(parent)[0]) * beam
    return parent + tf.reshape(first, [-1] + [1] * (parent.shape.rank - 1))


def _pack_like(state: Nest, new_state: Nest) -> Nest:
    """Packs `new_state` like `state`: a list for a tuple is fine, a missing part is not."""
    flat, expected = tf.nest.flatten(new_state), tf.nest.flatten(state)
    if len(flat) != len(expected):
        raise invalid_value("step", f"{len(expected)} state tensors from it", len(flat))
    return tf.nest.pack_sequence_as(state, flat)


def _rows_unknown(x: tf.Tensor) -> tf.TensorShape:
    return tf.TensorShape([None]).concatenate(x.shape[1:])
