"""The teacher-forced RNN decoder against plain NumPy, and its precision."""

from __future__ import annotations

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from sat_tf.layers.rnn_decoder import RNNDecoder
from tests.sat_tf.layers.decoder_numpy import (
    KINDS,
    SEED,
    SIZES,
    SWITCHES,
    UNIFORM,
    B,
    D,
    K,
    L,
    T,
    by_hand,
    make_batch,
    make_decoder,
    random,
    run_both_ways,
    softmax,
)


@pytest.mark.parametrize("kind", [*KINDS, "uniform"])
@pytest.mark.parametrize(("layers", "bottleneck"), [(1, None), (2, None), (1, 9)])
def test_teacher_forcing_equals_a_loop_in_numpy(kind, layers, bottleneck):
    attends, selection = (KINDS | {"uniform": UNIFORM})[kind].values()
    decoder = make_decoder(attends, initial_layers=layers, bottleneck_dim=bottleneck)
    annotations, words = make_batch()
    output = run_both_ways(lambda a, w: decoder(a, w, selection=selection), annotations, words)
    logits, alpha, beta = by_hand(decoder, annotations, words, selection)
    np.testing.assert_allclose(output.logits, logits, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(softmax(output.alignment_scores.numpy()), alpha, rtol=1e-3)
    np.testing.assert_allclose(output.beta, beta, rtol=1e-3)
    np.testing.assert_array_equal(output.log_prob, np.zeros([B, T]))


@pytest.mark.parametrize("switches", itertools.product([False, True], repeat=len(SWITCHES)))
def test_teacher_forcing_equals_numpy_with_every_switch(switches):
    decoder = make_decoder(**dict(zip(SWITCHES, switches, strict=True)))
    annotations, words = make_batch()
    output = decoder(annotations, words)
    logits, alpha, beta = by_hand(decoder, annotations, words)
    np.testing.assert_allclose(output.logits, logits, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(softmax(output.alignment_scores.numpy()), alpha, rtol=1e-3)
    np.testing.assert_allclose(output.beta, beta, rtol=1e-3)
    assert np.all(beta == 1.0) != switches[0]


def test_a_uniform_map_reads_what_the_mean_annotation_at_every_location_gives():
    annotations, words = make_batch()
    decoder = make_decoder()
    mean = np.broadcast_to(annotations.mean(axis=1, keepdims=True), annotations.shape)
    output = decoder(annotations, words, selection="uniform")
    np.testing.assert_allclose(output.logits, decoder(mean, words).logits, rtol=1e-3, atol=1e-4)
    assert np.ptp(output.alignment_scores, axis=-1).min() > 1e-3


def test_a_bottleneck_leaves_the_decoder_narrow():
    wide = RNNDecoder(K, **SIZES)
    narrow = RNNDecoder(K, **SIZES, bottleneck_dim=5)
    for decoder in (wide, narrow):
        decoder.build((None, None, 500))
    assert narrow.count_params() < wide.count_params() / 5
    assert RNNDecoder.from_config(narrow.get_config()).bottleneck_dim == 5
    with pytest.raises(ValueError, match="bottleneck_dim.*got 0"):
        RNNDecoder(K, **SIZES, bottleneck_dim=0)


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
    # The first step attends before the first word is read.
    np.testing.assert_allclose(other[:, 0], alpha[:, 0], rtol=1e-6)
    assert np.abs(other[:, 1:] - alpha[:, 1:]).max() > 1e-3


def test_alpha_reads_the_previous_word_by_choice():
    annotations, words = make_batch()
    changed = words.copy()
    changed[:, 0] = (words[:, 0] + 1) % K
    decoder = make_decoder(attention_previous_word=True)
    alpha, other = (
        softmax(decoder(annotations, w).alignment_scores.numpy()[:, 0]) for w in (words, changed)
    )
    assert np.abs(other - alpha).max(axis=-1).min() > 1e-3


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
    output = decoder(annotations, words, selection="sample", seed=SEED, use_expectation=switch)
    soft = decoder(annotations, words)
    hard = decoder(annotations, words, selection="sample", seed=SEED)
    np.testing.assert_allclose(output.logits[0], soft.logits[0], rtol=1e-5)
    np.testing.assert_allclose(output.logits[1], hard.logits[1], rtol=1e-5)
    assert np.abs(soft.logits[1] - hard.logits[1]).max() > 1e-3
    np.testing.assert_array_equal(output.log_prob[0], np.zeros(T))
    np.testing.assert_array_equal(output.log_prob[1], hard.log_prob[1])


def test_the_state_each_location_was_chosen_from_is_reported():
    annotations, words = make_batch()
    decoder = make_decoder()
    attended, state = decoder.prepare_memory(annotations)
    output = decoder(annotations, words)
    np.testing.assert_allclose(output.hidden[:, 0], state.hidden, rtol=1e-5)
    for time in range(T):
        scores = decoder.attention.scores(output.hidden[:, time], attended.keys)
        np.testing.assert_allclose(scores, output.alignment_scores[:, time], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("attends", [True, False])
@pytest.mark.parametrize("everywhere", [True, False])
def test_mixed_precision_keeps_distributions_in_float32(attends, everywhere):
    plain = make_decoder(attends)
    policy = "mixed_bfloat16"
    if everywhere:
        keras.config.set_dtype_policy(policy)
    decoder = RNNDecoder(K, attends=attends, **SIZES, dtype=policy)
    decoder.build((None, None, D))
    decoder.set_weights(plain.get_weights())
    annotations, words = make_batch()
    output = decoder(annotations, words)
    assert {part.dtype for part in output} == {tf.float32}
    assert {w.dtype for w in decoder.weights} == {"float32"}
    attended, state = decoder.prepare_memory(annotations)
    assert attended.annotations.dtype == state.hidden.dtype == tf.bfloat16
    assert decoder.project(attended).annotations.dtype == tf.bfloat16
    assert state.memory.dtype == tf.float32
    # It computes the same thing, roughly.
    expected = plain(annotations, words)
    np.testing.assert_allclose(output.logits, expected.logits, atol=0.15)


def test_mixed_precision_has_the_gradients_of_float32_roughly():
    """The annotations' too, by way of keys and contexts: an encoder may learn from them."""
    annotations, words = make_batch()
    annotations = tf.constant(annotations)
    plain = make_decoder()
    mixed = RNNDecoder(K, **SIZES, dtype="mixed_bfloat16")
    mixed.build((None, None, D))
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


@pytest.mark.parametrize(
    ("annotations", "words", "options", "message"),
    [
        ([B, 2, L, D], [B, T], {}, r"`annotations`: expected shape \[B, L, D\], got shape \(2, 2,"),
        ([B, D], [B, T], {}, r"`annotations`: expected shape \[B, L, D\]"),
        ([B + 1, L, D], [B, T], {}, r"`words`: expected shape \[3, T\], captions=1 per image"),
        ([B, L, D], [4, T], {"captions": 3}, r"`words`: expected shape \[6, T\], captions=3 per"),
        ([B, L, D], [B], {}, r"`words`: expected shape \[2, T\].*got shape \(2,\)"),
        ([B, L, D], [B, 0], {}, r"`words`: expected at least one word.*got shape \(2, 0\)"),
        ([B, L, D], [B, T], {"seed": 5}, r"`seed`: expected two integers, int32.*got shape \(\)"),
    ],
)
@pytest.mark.parametrize("wrap", [lambda f: f, tf.function], ids=["eager", "graph"])
def test_inputs_that_do_not_fit_are_an_error_that_says_so(
    wrap, annotations, words, options, message
):
    decoder = RNNDecoder(K, **SIZES)
    call = wrap(lambda *arguments: decoder(*arguments, **options))
    with pytest.raises(ValueError, match=message):
        call(np.zeros(annotations, np.float32), np.zeros(words, np.int32))


def test_checks_leave_nothing_in_a_graph_of_unknown_sizes():
    decoder = make_decoder()
    signature = [tf.TensorSpec([None, L, D]), tf.TensorSpec([None, None], tf.int32)]
    call = tf.function(decoder, input_signature=signature, autograph=False)
    operations = call.get_concrete_function().graph.get_operations()
    assert not [one.name for one in operations if one.type.startswith(("Assert", "Ensure"))]
