"""Free-running steps equal teacher forcing."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf

from sat_tf.layers.attention_lstm import State
from sat_tf.layers.decoder_types import AttentionMemory
from tests.sat_tf.layers.decoder_numpy import (
    KINDS,
    SAMPLED,
    SEED,
    SWITCHES,
    B,
    G,
    K,
    L,
    M,
    N,
    T,
    make_batch,
    make_decoder,
    random,
)


@pytest.mark.parametrize(
    ("previous_word", "portable", "bottleneck"),
    [(False, False, None), (True, False, None), (True, True, None), (False, False, 9)],
)
@pytest.mark.parametrize("kind", KINDS)
def test_free_running_steps_equal_teacher_forcing_for_several_rows_an_image(
    kind, previous_word, portable, bottleneck
):
    attends, selection = KINDS[kind]["attends"], KINDS[kind]["selection"]
    options = {"attention_previous_word": previous_word, "bottleneck_dim": bottleneck}
    decoder = make_decoder(attends, initial_layers=2, **options)
    annotations, _ = make_batch()
    words = np.random.default_rng(2).integers(0, K, [B * G, T]).astype(np.int32)
    output = decoder(np.repeat(annotations, G, axis=0), words, selection=selection)
    attended, state = decoder.prepare_memory(annotations)
    state = tf.nest.map_structure(lambda x: tf.repeat(x, G, axis=0), state)
    for time in range(T):
        logits, state, attention = decoder.step(
            attended, words[:, time], state, selection, portable=portable
        )
        np.testing.assert_allclose(logits, output.logits[:, time], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(
            attention.alignment_scores, output.alignment_scores[:, time], rtol=1e-4, atol=1e-5
        )
        np.testing.assert_allclose(attention.beta, output.beta[:, time], rtol=1e-4)


NONE, ALL = (tuple([on] * len(SWITCHES)) for on in (False, True))
ALONE = [tuple(switch == one for one in SWITCHES) for switch in SWITCHES]
ALL_BUT_ONE = [tuple(not on for on in switches) for switches in ALONE]
CASES = [("soft", switches) for switches in (NONE, ALL, *ALONE, *ALL_BUT_ONE)]
CASES += itertools.product(["hard argmax", "hard sample", "none"], [NONE, ALL])


@pytest.mark.parametrize(("kind", "switches"), CASES)
def test_steps_from_projected_annotations_equal_plain_ones(kind, switches):
    attends, selection = (KINDS | {"hard sample": SAMPLED})[kind].values()
    options = dict(zip(SWITCHES, switches, strict=True))
    decoder = make_decoder(attends, **options)
    annotations, _ = make_batch()
    words = np.random.default_rng(2).integers(0, K, [B * G, T]).astype(np.int32)
    attended, state = decoder.prepare_memory(annotations)
    projected = decoder.project(attended)
    width = 4 * N + (M if options["output_context"] else 0)
    assert projected.annotations.shape == (B, L if attends else 1, width)
    state = other = tf.nest.map_structure(lambda x: tf.repeat(x, G, axis=0), state)
    for time in range(T):
        now = words[:, time]
        logits, state, attention = decoder.step(attended, now, state, selection, SEED + time)
        found, other, seen = decoder.step(projected, now, other, selection, SEED + time)
        np.testing.assert_allclose(found, logits, rtol=1e-4, atol=1e-5)
        for one, two in zip(other + seen[1:], state + attention[1:], strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5)


def test_a_step_projects_each_of_its_words_once(monkeypatch):
    decoder = make_decoder()
    annotations, _ = make_batch()
    attended, state = decoder.prepare_memory(annotations)
    state = State(*(tf.repeat(part, G, axis=0) for part in state))
    words = np.resize(np.array([3, 1, 3, 4], np.int32), B * G)
    seen, project = [], decoder.cell.project_words
    monkeypatch.setattr(
        decoder.cell, "project_words", lambda x: (seen.append(len(x)), project(x))[1]
    )
    logits, after, _ = decoder.step(attended, words, state, "expectation")
    assert seen == [3]
    for row in range(B * G):
        first = tf.nest.map_structure(lambda x, row=row: x[row : row + 1], state)
        alone = AttentionMemory(*(x[row // G : row // G + 1] for x in attended[:2]))
        expected, one, _ = decoder.step(alone, words[row : row + 1], first, "expectation")
        np.testing.assert_allclose(logits[row], expected[0], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(after.hidden[row], one.hidden[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", [{}, {"attention_previous_word": True}, {"bottleneck_dim": 9}])
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_teacher_forcing_are_those_of_its_steps(kind, options):
    attends, selection = KINDS[kind]["attends"], KINDS[kind]["selection"]
    decoder = make_decoder(attends, **options)
    annotations, words = make_batch()
    target = random(B, T, K, seed=30)

    def gradients(logits_of):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(target * logits_of())
        return tape.gradient(loss, decoder.trainable_variables)

    def by_steps():
        attended, state = decoder.prepare_memory(annotations)
        logits = []
        for time in range(T):
            now, state, _ = decoder.step(attended, words[:, time], state, selection)
            logits.append(now)
        return tf.stack(logits, axis=1)

    output = gradients(lambda: decoder(annotations, words, selection=selection).logits)
    for one, other in zip(output, gradients(by_steps), strict=True):
        if one is None or other is None:
            assert one is other  # arg max gives the attention MLP no gradient
        else:
            np.testing.assert_allclose(*map(tf.convert_to_tensor, (one, other)), 2e-4, 1e-4)
