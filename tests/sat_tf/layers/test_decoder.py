"""The decoder against plain NumPy, its free-running steps, samples and precision."""

import dataclasses
import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from sat_tf.config import DecoderConfig
from sat_tf.layers.decoder import RNNDecoder
from tests.sat_tf.layers.decoder_numpy import (
    KINDS,
    SAMPLED,
    SEED,
    SIZES,
    UNIFORM,
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

SHAPES = ({"initial_layers": 1}, {"initial_layers": 2}, {"bottleneck_dim": 9}, {"gate": False})
TAUGHT = list(itertools.product([*KINDS, "uniform"], SHAPES))


@pytest.mark.parametrize(("kind", "options"), TAUGHT)
def test_teacher_forcing_equals_a_loop_in_numpy(kind, options):
    attends, selection = (KINDS | {"uniform": UNIFORM})[kind].values()
    decoder = make_decoder(attends, **options)
    annotations, words = make_batch()
    output = run_both_ways(lambda a, w: decoder(a, w, selection=selection), annotations, words)
    logits, alpha, beta = by_hand(decoder, annotations, words, selection)
    np.testing.assert_allclose(output.logits, logits, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(softmax(output.alignment_scores.numpy()), alpha, rtol=1e-3)
    np.testing.assert_allclose(output.beta, beta, rtol=1e-3)
    np.testing.assert_array_equal(output.log_prob, np.zeros([B, T]))


def test_a_configuration_or_its_fields_by_name_make_the_same_decoder():
    config = DecoderConfig(**SIZES, gate=False, output_dropout=0.5)
    decoder = RNNDecoder(K, config, hidden_dropout=0.5)
    assert decoder.config == dataclasses.replace(config, hidden_dropout=0.5)
    by_name = RNNDecoder(K, **SIZES, gate=False, output_dropout=0.5, hidden_dropout=0.5)
    again = RNNDecoder.from_config(decoder.get_config())
    assert by_name.config == again.config == decoder.config


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
    attended, state = decoder.begin(annotations)
    assert attended.annotations.dtype == state.hidden.dtype == tf.bfloat16
    assert decoder.project(attended).annotations.dtype == tf.bfloat16
    assert state.cell.dtype == tf.float32
    # It computes the same thing, roughly.
    expected = plain(annotations, words)
    np.testing.assert_allclose(output.logits, expected.logits, atol=0.15)


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
def test_inputs_that_do_not_fit_are_an_error(wrap, annotations, words, options, message):
    decoder = RNNDecoder(K, **SIZES)
    call = wrap(lambda *arguments: decoder(*arguments, **options))
    with pytest.raises(ValueError, match=message):
        call(np.zeros(annotations, np.float32), np.zeros(words, np.int32))


@pytest.mark.parametrize("bottleneck", [None, 9])
@pytest.mark.parametrize("kind", KINDS)
def test_free_steps_equal_teacher_forcing_with_rows(kind, bottleneck):
    attends, selection = KINDS[kind]["attends"], KINDS[kind]["selection"]
    decoder = make_decoder(attends, initial_layers=2, bottleneck_dim=bottleneck)
    annotations, _ = make_batch()
    words = np.random.default_rng(2).integers(0, K, [B * G, T]).astype(np.int32)
    output = decoder(np.repeat(annotations, G, axis=0), words, selection=selection)
    attended, state = decoder.begin(annotations)
    state = tf.nest.map_structure(lambda x: tf.repeat(x, G, axis=0), state)
    for time in range(T):
        logits, state, attention = decoder.step(attended, words[:, time], state, selection)
        np.testing.assert_allclose(logits, output.logits[:, time], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(
            attention.alignment_scores, output.alignment_scores[:, time], rtol=1e-4, atol=1e-5
        )
        np.testing.assert_allclose(attention.beta, output.beta[:, time], rtol=1e-4)


@pytest.mark.parametrize("gate", [False, True])
@pytest.mark.parametrize("kind", [*KINDS, "hard sample"])
def test_steps_from_projected_annotations_equal_plain_ones(kind, gate):
    attends, selection = (KINDS | {"hard sample": SAMPLED})[kind].values()
    decoder = make_decoder(attends, gate=gate)
    annotations, _ = make_batch()
    words = np.random.default_rng(2).integers(0, K, [B * G, T]).astype(np.int32)
    attended, state = decoder.begin(annotations)
    projected = decoder.project(attended)
    assert projected.annotations.shape == (B, L if attends else 1, 4 * N + M)
    state = other = tf.nest.map_structure(lambda x: tf.repeat(x, G, axis=0), state)
    for time in range(T):
        now = words[:, time]
        logits, state, attention = decoder.step(attended, now, state, selection, SEED + time)
        found, other, seen = decoder.step(projected, now, other, selection, SEED + time)
        np.testing.assert_allclose(found, logits, rtol=1e-4, atol=1e-5)
        for one, two in zip(other + seen[1:], state + attention[1:], strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5)


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
            output = decoder(
                annotations, words, selection=selection, seed=SEED, training=True, samples=samples
            )
            logits = tf.reshape(output.logits, [B, samples, T, K])
            loss = tf.reduce_mean(tf.reduce_sum(target[:, None] * logits, axis=[0, 2, 3]))
        return output, tape.gradient(loss, decoder.trainable_variables)

    (one, gradients), (three, others) = run(1), run(3)
    for part, wanted in zip(three, one, strict=True):
        for sample in range(3):
            np.testing.assert_allclose(part.numpy()[ROWS + sample], wanted, rtol=1e-4, atol=1e-5)
    for got, wanted in zip(others, gradients, strict=True):
        if got is not None or wanted is not None:
            np.testing.assert_allclose(*map(tf.convert_to_tensor, (got, wanted)), 2e-4, 1e-4)


def test_samples_are_drawn_each_for_itself():
    decoder = make_decoder()
    annotations, words = make_batch()
    switch = tf.constant([True, False])
    options = {"selection": "sample", "seed": SEED, "use_expectation": switch, "samples": 20}
    output = decoder(annotations, words, **options)
    rows = tf.reshape(output.log_prob, [B, 20, T]).numpy()
    np.testing.assert_array_equal(rows[0], np.zeros([20, T]))
    assert all(len(np.unique(rows[1, :, t])) > 1 for t in range(T))
    soft = decoder(annotations, words)
    np.testing.assert_allclose(output.logits[:20], tf.repeat(soft.logits[:1], 20, axis=0), 1e-4)


@pytest.mark.parametrize("samples", [1, 2])
@pytest.mark.parametrize("kind", [*KINDS, "hard"])
def test_captions_of_an_image_are_taught_as_if_each_had_the_image_for_itself(kind, samples):
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
            output = decoder(annotations, words, captions=captions, **options)
            loss = tf.reduce_sum(target * output.logits) + tf.reduce_sum(output.log_prob)
        of_annotations = tape.gradient(loss, annotations)
        return output, tf.reduce_sum(tf.reshape(of_annotations, [B, -1, L, D]), axis=1)

    (together, gradient), (apart, wanted) = (
        run(annotations, G),
        run(np.repeat(annotations, G, axis=0), 1),
    )
    for got, row in zip(together, apart, strict=True):
        np.testing.assert_allclose(got, row, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(gradient, wanted, rtol=1e-3, atol=1e-4)
