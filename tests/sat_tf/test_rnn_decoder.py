"""The teacher-forced RNN decoder against plain NumPy; configurations and precision."""

from __future__ import annotations

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from sat_tf.config import DecoderConfig
from sat_tf.layers.attention import BahdanauAttention
from sat_tf.layers.decoder import AttentionLSTMCell, DeepOutput, InitialState, State
from sat_tf.layers.rnn_decoder import Picture, RNNDecoder
from tests.sat_tf.decoder_numpy import (
    SEED,
    SIZES,
    SWITCHES,
    A,
    B,
    D,
    G,
    K,
    L,
    M,
    N,
    T,
    by_hand,
    make_batch,
    make_decoder,
    random,
    run_both_ways,
    softmax,
)

KINDS = {
    "soft": {"attends": True, "selection": "expectation"},
    "hard argmax": {"attends": True, "selection": "argmax"},
    "none": {"attends": False, "selection": "expectation"},
}
SAMPLED = {"attends": True, "selection": "sample"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layers", [1, 2])
def test_teacher_forcing_equals_a_loop_in_numpy(kind, layers):
    attends, selection = KINDS[kind]["attends"], KINDS[kind]["selection"]
    decoder = make_decoder(attends, initial_layers=layers)
    annotations, words = make_batch()
    taught = run_both_ways(lambda a, w: decoder(a, w, selection=selection), annotations, words)
    logits, alpha, beta = by_hand(decoder, annotations, words, selection)
    np.testing.assert_allclose(taught.logits, logits, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(softmax(taught.alignment_scores.numpy()), alpha, rtol=1e-3)
    np.testing.assert_allclose(taught.beta, beta, rtol=1e-3)
    np.testing.assert_array_equal(taught.log_prob, np.zeros([B, T]))


@pytest.mark.parametrize("switches", itertools.product([False, True], repeat=4))
def test_teacher_forcing_equals_numpy_with_every_switch(switches):
    decoder = make_decoder(**dict(zip(SWITCHES, switches, strict=True)))
    annotations, words = make_batch()
    taught = decoder(annotations, words)
    logits, _, beta = by_hand(decoder, annotations, words)
    np.testing.assert_allclose(taught.logits, logits, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(taught.beta, beta, rtol=1e-3)
    assert np.all(beta == 1.0) != switches[0]


def test_alpha_changes_with_the_words_read():
    """The state is inside the attention: it would be the same at every step otherwise."""
    annotations, words = make_batch()
    decoder = make_decoder()
    alpha = softmax(decoder(annotations, words).alignment_scores.numpy())
    np.testing.assert_allclose(alpha.sum(-1), np.ones([B, T]), rtol=1e-5)
    assert np.abs(alpha[:, 1:] - alpha[:, :-1]).max(axis=-1).min() > 1e-3
    changed = words.copy()
    changed[:, 0] = (words[:, 0] + 1) % K
    other = softmax(decoder(annotations, changed).alignment_scores.numpy())
    # The first glance comes before the first word is read.
    np.testing.assert_allclose(other[:, 0], alpha[:, 0], rtol=1e-6)
    assert np.abs(other[:, 1:] - alpha[:, 1:]).max() > 1e-3


def test_words_to_come_change_nothing():
    annotations, words = make_batch()
    decoder = make_decoder()
    changed = words.copy()
    changed[:, -1] = (words[:, -1] + 1) % K
    np.testing.assert_array_equal(
        decoder(annotations, changed).logits[:, :-1], decoder(annotations, words).logits[:, :-1]
    )


def test_samples_are_fixed_by_the_seed_and_differ_between_steps():
    annotations, words = np.zeros([200, L, D], np.float32), np.zeros([200, T], np.int32)
    decoder = make_decoder()

    def log_prob(seed):
        return decoder(annotations, words, selection="sample", seed=seed).log_prob.numpy()

    # With equal annotations alpha is uniform, whatever is drawn.
    np.testing.assert_allclose(log_prob(SEED), np.full([200, T], -np.log(L)), rtol=1e-5)
    annotations[:] = random(L, D)
    once = log_prob(SEED)
    np.testing.assert_array_equal(once, log_prob(SEED))
    assert np.any(once != log_prob(SEED + 1))
    assert np.any(once[:, 0] != once[0, 0])


def test_rows_switched_to_the_expectation_are_soft_attention():
    annotations, words = make_batch()
    decoder = make_decoder()
    switch = tf.constant([True, False])
    taught = decoder(annotations, words, selection="sample", seed=SEED, use_expectation=switch)
    soft = decoder(annotations, words)
    hard = decoder(annotations, words, selection="sample", seed=SEED)
    np.testing.assert_allclose(taught.logits[0], soft.logits[0], rtol=1e-5)
    np.testing.assert_allclose(taught.logits[1], hard.logits[1], rtol=1e-5)
    assert np.abs(soft.logits[1] - hard.logits[1]).max() > 1e-3
    np.testing.assert_array_equal(taught.log_prob[0], np.zeros(T))
    np.testing.assert_array_equal(taught.log_prob[1], hard.log_prob[1])


ROWS = 3 * np.arange(B)


@pytest.mark.parametrize("kind", KINDS)
def test_samples_share_all_but_where_they_look(kind):
    """Without a draw they are the same rows, dropout masks included; so are their gradients."""
    attends, selection = KINDS[kind]["attends"], KINDS[kind]["selection"]
    names = ("annotation", "initial", "embedding", "hidden", "output")
    noise = {f"{name}_dropout": 0.5 for name in names}
    decoder = make_decoder(attends, initial_layers=2, **noise)
    annotations, words = make_batch()
    target = random(B, T, K, seed=30)

    def run(samples):
        with tf.GradientTape() as tape:
            taught = decoder(
                annotations, words, selection=selection, seed=SEED, training=True, samples=samples
            )
            logits = tf.reshape(taught.logits, [B, samples, T, K])
            loss = tf.reduce_mean(tf.reduce_sum(target[:, None] * logits, axis=[0, 2, 3]))
        return taught, tape.gradient(loss, decoder.trainable_variables)

    (one, gradients), (three, others) = run(1), run(3)
    for part, wanted in zip(three, one, strict=True):
        for sample in range(3):
            np.testing.assert_allclose(part.numpy()[ROWS + sample], wanted, rtol=1e-4, atol=1e-5)
    for got, wanted in zip(others, gradients, strict=True):
        if got is not None or wanted is not None:
            np.testing.assert_allclose(*map(tf.convert_to_tensor, (got, wanted)), 2e-4, 1e-4)


def test_samples_are_drawn_each_for_itself_from_one_set_of_keys(monkeypatch):
    decoder = make_decoder()
    annotations, words = make_batch()
    shapes, keys = [], decoder.attention.keys

    def spy(annotations):
        shapes.append(annotations.shape)
        return keys(annotations)

    monkeypatch.setattr(decoder.attention, "keys", spy)
    switch = tf.constant([True, False])
    options = {"selection": "sample", "seed": SEED, "use_expectation": switch, "samples": 20}
    taught = decoder(annotations, words, **options)
    assert shapes == [annotations.shape]
    rows = tf.reshape(taught.log_prob, [B, 20, T]).numpy()
    np.testing.assert_array_equal(rows[0], np.zeros([20, T]))
    assert all(len(np.unique(rows[1, :, t])) > 1 for t in range(T))
    soft = decoder(annotations, words)
    np.testing.assert_allclose(taught.logits[:20], tf.repeat(soft.logits[:1], 20, axis=0), 1e-4)


@pytest.mark.parametrize("samples", [1, 2])
@pytest.mark.parametrize("kind", [*KINDS, "hard"])
def test_captions_of_a_picture_are_taught_as_if_each_had_the_picture_for_itself(kind, samples):
    attends, selection = (KINDS | {"hard": SAMPLED})[kind].values()
    decoder = make_decoder(attends, initial_layers=2)
    annotations, _ = make_batch()
    words = np.random.default_rng(2).integers(0, K, [B * G, T]).astype(np.int32)
    target = random(B * G * samples, T, K, seed=30)

    def run(annotations, captions):
        annotations = tf.constant(annotations)
        with tf.GradientTape() as tape:
            tape.watch(annotations)
            options = {"selection": selection, "seed": SEED, "samples": samples}
            taught = decoder(annotations, words, captions=captions, **options)
            loss = tf.reduce_sum(target * taught.logits) + tf.reduce_sum(taught.log_prob)
        of_annotations = tape.gradient(loss, annotations)
        return taught, tf.reduce_sum(tf.reshape(of_annotations, [B, -1, L, D]), axis=1)

    (together, gradient), (apart, wanted) = (
        run(annotations, G),
        run(np.repeat(annotations, G, axis=0), 1),
    )
    for got, row in zip(together, apart, strict=True):
        np.testing.assert_allclose(got, row, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(gradient, wanted, rtol=1e-3, atol=1e-4)


def test_the_state_each_location_was_chosen_from_is_reported():
    annotations, words = make_batch()
    decoder = make_decoder()
    picture, state = decoder.look_once(annotations)
    taught = decoder(annotations, words)
    np.testing.assert_allclose(taught.hidden[:, 0], state.hidden, rtol=1e-5)
    for time in range(T):
        scores = decoder.attention(taught.hidden[:, time], picture.keys)
        np.testing.assert_allclose(scores, taught.alignment_scores[:, time], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_free_running_steps_equal_teacher_forcing_for_several_rows_a_picture(kind):
    attends, selection = KINDS[kind]["attends"], KINDS[kind]["selection"]
    decoder = make_decoder(attends, initial_layers=2)
    annotations, _ = make_batch()
    words = np.random.default_rng(2).integers(0, K, [B * G, T]).astype(np.int32)
    taught = decoder(np.repeat(annotations, G, axis=0), words, selection=selection)
    picture, state = decoder.look_once(annotations)
    state = tf.nest.map_structure(lambda x: tf.repeat(x, G, axis=0), state)
    for time in range(T):
        logits, state, look = decoder.step(picture, words[:, time], state, selection)
        np.testing.assert_allclose(logits, taught.logits[:, time], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(
            look.alignment_scores, taught.alignment_scores[:, time], rtol=1e-4, atol=1e-5
        )
        np.testing.assert_allclose(look.beta, taught.beta[:, time], rtol=1e-4)


@pytest.mark.parametrize("kind", [*KINDS, "hard sample"])
@pytest.mark.parametrize("switches", itertools.product([False, True], repeat=4))
def test_steps_from_projected_annotations_equal_plain_ones(kind, switches):
    attends, selection = (KINDS | {"hard sample": SAMPLED})[kind].values()
    options = dict(zip(SWITCHES, switches, strict=True))
    decoder = make_decoder(attends, **options)
    annotations, _ = make_batch()
    words = np.random.default_rng(2).integers(0, K, [B * G, T]).astype(np.int32)
    picture, state = decoder.look_once(annotations)
    projected = decoder.project(picture)
    width = 4 * N + (M if options["output_context"] else 0)
    assert projected.annotations.shape == (B, L if attends else 1, width)
    state = other = tf.nest.map_structure(lambda x: tf.repeat(x, G, axis=0), state)
    for time in range(T):
        now = words[:, time]
        logits, state, look = decoder.step(picture, now, state, selection, SEED + time)
        found, other, seen = decoder.step(projected, now, other, selection, SEED + time)
        np.testing.assert_allclose(found, logits, rtol=1e-4, atol=1e-5)
        for one, two in zip(other + seen[1:], state + look[1:], strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5)


def test_a_step_projects_each_of_its_words_once(monkeypatch):
    decoder = make_decoder()
    annotations, _ = make_batch()
    picture, state = decoder.look_once(annotations)
    state = State(*(tf.repeat(part, G, axis=0) for part in state))
    words = np.resize(np.array([3, 1, 3, 4], np.int32), B * G)
    seen, project = [], decoder.cell.project_words
    monkeypatch.setattr(
        decoder.cell, "project_words", lambda x: (seen.append(len(x)), project(x))[1]
    )
    logits, after, _ = decoder.step(picture, words, state, "expectation")
    assert seen == [3]
    for row in range(B * G):
        first = tf.nest.map_structure(lambda x, row=row: x[row : row + 1], state)
        alone = Picture(*(x[row // G : row // G + 1] for x in picture[:2]))
        expected, one, _ = decoder.step(alone, words[row : row + 1], first, "expectation")
        np.testing.assert_allclose(logits[row], expected[0], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(after.hidden[row], one.hidden[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_teacher_forcing_are_those_of_its_steps(kind):
    attends, selection = KINDS[kind]["attends"], KINDS[kind]["selection"]
    decoder = make_decoder(attends)
    annotations, words = make_batch()
    target = random(B, T, K, seed=30)

    def gradients(logits_of):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(target * logits_of())
        return tape.gradient(loss, decoder.trainable_variables)

    def by_steps():
        picture, state = decoder.look_once(annotations)
        logits = []
        for time in range(T):
            now, state, _ = decoder.step(picture, words[:, time], state, selection)
            logits.append(now)
        return tf.stack(logits, axis=1)

    taught = gradients(lambda: decoder(annotations, words, selection=selection).logits)
    for one, other in zip(taught, gradients(by_steps), strict=True):
        if one is None or other is None:
            assert one is other  # arg max gives the attention MLP no gradient
        else:
            np.testing.assert_allclose(*map(tf.convert_to_tensor, (one, other)), 2e-4, 1e-4)


def test_every_weight_gets_a_gradient():
    decoder = make_decoder(initial_layers=2)
    annotations, words = make_batch()
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.square(decoder(annotations, words).logits))
    variables = decoder.trainable_variables
    for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
        assert gradient is not None, variable.path
        assert np.abs(tf.convert_to_tensor(gradient)).max() > 0.0, variable.path


# --- configurations and precision ---

LAYERS = {
    "BahdanauAttention": (BahdanauAttention(A), (N, D)),
    "AttentionLSTMCell": (AttentionLSTMCell(N), (M, D)),
    "InitialState": (InitialState(N, 3, 0.1), ((None, D),)),
    "DeepOutput": (DeepOutput(K, M, False, True, False, 0.1, 0.2), (N, D)),
    "RNNDecoder": (RNNDecoder(K, D, False, DecoderConfig(**SIZES, gate=False)), ()),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_are_registered_and_come_back_from_their_configuration(name):
    layer, _ = LAYERS[name]
    registered = keras.saving.get_registered_object(f"sat_tf>{name}")
    assert registered is type(layer)
    copy = registered.from_config(layer.get_config())
    assert copy.get_config() == layer.get_config()


@pytest.mark.parametrize("attends", [True, False])
def test_a_decoder_copied_by_configuration_and_weights_answers_the_same(attends):
    decoder = make_decoder(attends, initial_layers=2, output_tanh=False)
    copy = RNNDecoder.from_config(decoder.get_config())
    copy.set_weights(decoder.get_weights())
    annotations, words = make_batch()
    for one, other in zip(decoder(annotations, words), copy(annotations, words), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("attends", [True, False])
@pytest.mark.parametrize("everywhere", [True, False])
def test_mixed_precision_keeps_distributions_in_float32(attends, everywhere):
    plain = make_decoder(attends)
    policy = "mixed_bfloat16"
    if everywhere:
        keras.config.set_dtype_policy(policy)
    decoder = RNNDecoder(K, D, attends, DecoderConfig(**SIZES), dtype=policy)
    decoder.set_weights(plain.get_weights())
    annotations, words = make_batch()
    taught = decoder(annotations, words)
    assert {part.dtype for part in taught} == {tf.float32}
    assert {w.dtype for w in decoder.weights} == {"float32"}
    picture, state = decoder.look_once(annotations)
    assert picture.annotations.dtype == state.hidden.dtype == tf.bfloat16
    assert decoder.project(picture).annotations.dtype == tf.bfloat16
    assert state.memory.dtype == tf.float32
    # It computes the same thing, roughly.
    expected = plain(annotations, words)
    np.testing.assert_allclose(taught.logits, expected.logits, atol=0.15)


def test_mixed_precision_has_the_gradients_of_float32_roughly():
    """The annotations' too, by way of keys and contexts: an encoder may learn from them."""
    annotations, words = make_batch()
    annotations = tf.constant(annotations)
    plain = make_decoder()
    mixed = RNNDecoder(K, D, True, DecoderConfig(**SIZES), dtype="mixed_bfloat16")
    mixed.set_weights(plain.get_weights())
    gradients = []
    for decoder in (plain, mixed):
        with tf.GradientTape() as tape:
            tape.watch(annotations)
            loss = tf.reduce_mean(tf.square(decoder(annotations, words).logits))
        gradients.append(tape.gradient(loss, [annotations, *decoder.trainable_weights]))
    for expected, gradient in zip(*gradients, strict=True):
        expected, gradient = tf.convert_to_tensor(expected), tf.convert_to_tensor(gradient)
        assert np.linalg.norm(gradient - expected) < 0.05 * np.linalg.norm(expected)
