"""The decoder's parts and the teacher-forced RNN decoder against plain NumPy."""

from __future__ import annotations

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from sat_tf.config import DecoderConfig
from sat_tf.layers.attention import BahdanauAttention
from sat_tf.layers.decoder import AttentionLSTMCell, DeepOutput, InitialState, State
from sat_tf.layers.dropout import dropout
from sat_tf.layers.rnn_decoder import RNNDecoder
from sat_tf.layers.unroll import step_seeds

B, G, T, L, D, N, M, A, K = 2, 3, 4, 5, 6, 7, 3, 4, 8
SEED = tf.constant([3, 4])
SIZES = {"embedding_dim": M, "attention_dim": A, "hidden_dim": N}
SWITCHES = ("gate", "output_previous_word", "output_context", "output_tanh")


def random(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def randomise(layer, scale=0.7):
    """Weights, biases included, that are nowhere zero."""
    layer.set_weights([scale * random(*w.shape, seed=i) for i, w in enumerate(layer.weights)])
    return layer


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def softmax(x):
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def dense(layer, x):
    y = x @ layer.kernel.numpy()
    return y + layer.bias.numpy() if layer.use_bias else y


def lstm(cell, embeddings, context, hidden, memory):
    """Equations 1-3."""
    gates = (
        dense(cell.word_projection, embeddings)
        + dense(cell.context_projection, context)
        + dense(cell.recurrent_projection, hidden)
    )
    i, f, o, g = np.split(gates, 4, axis=-1)
    memory = sigmoid(f) * memory + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(memory), memory


def initial(layer, mean):
    def mlp(layers):
        outputs = mean
        for part in layers[:-1]:
            outputs = np.maximum(dense(part.dense, outputs), 0.0)
        return np.tanh(dense(layers[-1], outputs))

    return mlp(layer.hidden_mlp), mlp(layer.memory_mlp)


def equation_7(layer, hidden, context, embeddings):
    outputs = dense(layer.hidden_projection, hidden)
    if layer.context:
        outputs = outputs + dense(layer.context_projection, context)
    if layer.previous_word:
        outputs = outputs + embeddings
    return dense(layer.word_projection, np.tanh(outputs) if layer.tanh else outputs)


def by_hand(decoder, annotations, words, selection="expectation"):
    """The whole decoder, step by step: logits, alpha, beta."""
    hidden, memory = initial(decoder.initial_state, annotations.mean(axis=1))
    logits, alphas, betas = [], [], []
    for time in range(words.shape[1]):
        embeddings = decoder.embedding.embeddings.numpy()[words[:, time]]
        beta = np.ones([len(words), 1])
        if decoder.gate is not None:
            beta = sigmoid(dense(decoder.gate, hidden))
        if decoder.attends:
            inside = dense(decoder.attention.key_projection, annotations)
            inside = inside + dense(decoder.attention.query_projection, hidden)[:, None]
            alpha = softmax(np.tanh(inside) @ decoder.attention.score_vector.numpy())
            weights = np.eye(L)[alpha.argmax(-1)] if selection == "argmax" else alpha
            context = beta * np.einsum("bl,bld->bd", weights, annotations)
        else:
            alpha = np.ones([len(words), 1])
            context = beta * annotations.mean(axis=1)
        hidden, memory = lstm(decoder.cell, embeddings, context, hidden, memory)
        logits.append(equation_7(decoder.deep_output, hidden, context, embeddings))
        alphas.append(alpha)
        betas.append(beta[:, 0])
    return np.stack(logits, 1), np.stack(alphas, 1), np.stack(betas, 1)


def make_decoder(attends=True, **options):
    return randomise(RNNDecoder(K, D, attends, DecoderConfig(**SIZES, **options)))


def make_batch():
    words = np.random.default_rng(1).integers(0, K, [B, T]).astype(np.int32)
    return random(B, L, D, seed=20), words


def run_both_ways(function, *arguments):
    """Eager and as a graph, which must agree."""
    eager, graph = function(*arguments), tf.function(function)(*arguments)
    for one, other in zip(tf.nest.flatten(eager), tf.nest.flatten(graph), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    return eager


# --- the parts ---


def test_the_cell_is_equations_1_to_3():
    cell = AttentionLSTMCell(N)
    cell.build(M, D)
    randomise(cell)
    embeddings, context = random(B, M, seed=30), random(B, D, seed=31)
    hidden, memory = random(B, N, seed=32), random(B, N, seed=33)
    got = run_both_ways(
        lambda e, z, h, c: cell(cell.project_words(e), z, State(h, c)),
        *(tf.constant(x) for x in (embeddings, context, hidden, memory)),
    )
    expected = lstm(cell, embeddings, context, hidden, memory)
    np.testing.assert_allclose(got.hidden, expected[0], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(got.memory, expected[1], rtol=1e-4, atol=1e-6)


def test_each_recurrent_gate_starts_orthogonal_and_different():
    cell = AttentionLSTMCell(N)
    cell.build(M, D)
    gates = np.split(cell.recurrent_projection.kernel.numpy(), 4, axis=-1)
    for gate in gates:
        np.testing.assert_allclose(gate @ gate.T, np.eye(N), atol=1e-5)
    for one, other in itertools.combinations(gates, 2):
        assert np.abs(one - other).max() > 0.1


def test_without_layers_the_initial_state_is_zero_whatever_the_picture():
    layer = InitialState(N, 0)
    layer.build((None, D))
    state = layer(random(B, D, seed=30))
    assert layer.weights == []
    np.testing.assert_array_equal(state.hidden, np.zeros([B, N]))
    np.testing.assert_array_equal(state.memory, np.zeros([B, N]))


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_the_initial_state_is_two_mlps_of_the_mean_annotation(layers):
    layer = InitialState(N, layers)
    layer.build((None, D))
    randomise(layer)
    mean = random(B, D, seed=30)
    got = run_both_ways(lambda x: layer(x), mean)
    expected = initial(layer, mean)
    np.testing.assert_allclose(got.hidden, expected[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(got.memory, expected[1], rtol=1e-4, atol=1e-5)
    assert len(layer.weights) == 2 * 2 * layers
    assert np.abs(expected[0] - expected[1]).max() > 1e-2


@pytest.mark.parametrize("switches", itertools.product([False, True], repeat=3))
def test_the_deep_output_is_equation_7_with_every_switch(switches):
    layer = DeepOutput(K, M, *switches)
    layer.build(N, D)
    randomise(layer)
    hidden, context, embeddings = random(B, T, N), random(B, T, D), random(B, T, M)
    got = run_both_ways(lambda *inputs: layer(*inputs), hidden, context, embeddings)
    expected = equation_7(layer, hidden, context, embeddings)
    np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-5)


# --- dropout ---


def test_dropout_zeroes_its_share_and_scales_the_rest():
    outputs = dropout(tf.ones([100, 100]), 0.25, SEED, 0).numpy()
    assert set(np.unique(outputs.round(4))) == {0.0, np.float32(1.3333)}
    assert abs((outputs == 0.0).mean() - 0.25) < 0.02


def test_dropout_leaves_inputs_alone_without_a_seed_or_a_rate():
    inputs = tf.ones([3])
    assert dropout(inputs, 0.5, None, 0) is inputs
    assert dropout(inputs, 0.0, SEED, 0) is inputs


def test_dropout_masks_are_fixed_by_seed_and_salt():
    def mask(seed, salt):
        return dropout(tf.ones([200]), 0.5, tf.constant(seed), salt).numpy()

    np.testing.assert_array_equal(mask([1, 2], 0), mask([1, 2], 0))
    assert np.any(mask([1, 2], 0) != mask([1, 3], 0))
    assert np.any(mask([1, 2], 0) != mask([1, 2], 1))


DROPOUTS = (
    "annotation_dropout",
    "initial_dropout",
    "embedding_dropout",
    "hidden_dropout",
    "output_dropout",
)


@pytest.mark.parametrize("name", DROPOUTS)
def test_every_dropout_acts_in_training_only(name):
    decoder = make_decoder(initial_layers=2, **{name: 0.5})
    plain = make_decoder(initial_layers=2)
    annotations, words = make_batch()
    without = plain(annotations, words).logits
    np.testing.assert_allclose(decoder(annotations, words, seed=SEED).logits, without, rtol=1e-6)
    trained = decoder(annotations, words, seed=SEED, training=True).logits
    assert np.abs(trained - without).max() > 1e-3
    again = decoder(annotations, words, seed=SEED, training=True).logits
    np.testing.assert_array_equal(trained, again)
    other = decoder(annotations, words, seed=SEED + 1, training=True).logits
    assert np.abs(trained - other).max() > 1e-3


def test_no_two_dropouts_share_random_numbers_nor_do_the_samples(monkeypatch):
    """Whatever is drawn from one seed begins with the same random numbers."""
    seeds = []

    def spy(inputs, rate, seed, salt):
        if rate:
            seeds.append(tf.random.experimental.stateless_fold_in(seed, salt))
        return inputs

    monkeypatch.setattr("sat_tf.layers.rnn_decoder.dropout", spy)
    monkeypatch.setattr("sat_tf.layers.decoder.dropout", spy)
    decoder = make_decoder(initial_layers=3, **dict.fromkeys(DROPOUTS, 0.5))
    decoder(*make_batch(), seed=SEED, training=True)
    assert len(seeds) == 2 * 2 + 4
    seeds += list(step_seeds(SEED, 50))
    assert len({tuple(seed.numpy()) for seed in seeds}) == len(seeds)


# --- the RNN decoder ---

KINDS = {
    "soft": {"attends": True, "selection": "expectation"},
    "hard argmax": {"attends": True, "selection": "argmax"},
    "none": {"attends": False, "selection": "expectation"},
}


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
    assert picture.keys.dtype == state.hidden.dtype == tf.bfloat16
    assert state.memory.dtype == tf.float32
    # It computes the same thing, roughly.
    expected = plain(annotations, words)
    np.testing.assert_allclose(taught.logits, expected.logits, atol=0.15)
