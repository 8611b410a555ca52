"""The layers as Keras layers: conventions, functional models, `keras.layers.RNN`, default seeds."""

import itertools
import json

import keras
import numpy as np
import pytest
import tensorflow as tf

import sat_tf
from tests.sat_tf.layers.decoder_numpy import (
    SIZES,
    A,
    B,
    D,
    K,
    L,
    M,
    N,
    T,
    build,
    lstm,
    make_batch,
    random,
)


def run_layer_test(layer_class, init_kwargs, call_args, tmp_path):
    """Checks configuration, shapes, symbolic call, dtypes, gradients, and saving in a model.

    Args:
        layer_class: A registered subclass of `keras.layers.Layer`.
        init_kwargs: Arguments of its constructor.
        call_args: NumPy arguments of its call, nested or not, with a batch as first axis.
        tmp_path: Empty folder.
    """
    layer = layer_class(**init_kwargs)
    outputs = layer(**call_args)
    _check_configuration(layer, init_kwargs)
    _check_dtype_policy(layer, init_kwargs, call_args)
    _check_gradients(layer, call_args)
    _check_functional_model(layer, call_args, outputs, tmp_path)


def _check_configuration(layer, init_kwargs):
    config = layer.get_config()
    assert {name: config[name] for name in init_kwargs} == init_kwargs
    assert json.loads(json.dumps(config)) == config
    name = keras.saving.get_registered_name(type(layer))
    assert keras.saving.get_registered_object(name) is type(layer)
    assert type(layer).from_config(config).get_config() == config


def _check_dtype_policy(layer, init_kwargs, call_args):
    mixed = type(layer)(**init_kwargs, dtype="mixed_bfloat16")
    outputs = mixed(**call_args)
    for found, wanted in zip(
        tf.nest.flatten(mixed(**_symbolic(call_args))), tf.nest.flatten(outputs), strict=True
    ):
        assert found.dtype == wanted.dtype.name
    assert {weight.dtype for weight in mixed.weights} <= {"float32"}
    assert mixed.get_config()["dtype"]["config"]["name"] == "mixed_bfloat16"
    for output in tf.nest.flatten(outputs):
        assert np.isfinite(tf.cast(output, tf.float32)).all()


def _check_gradients(layer, call_args):
    with tf.GradientTape() as tape:
        outputs = tf.nest.flatten(layer(**call_args))
        loss = tf.add_n([tf.reduce_sum(tf.square(output)) for output in outputs])
    gradients = tape.gradient(loss, layer.trainable_variables)
    for variable, gradient in zip(layer.trainable_variables, gradients, strict=True):
        assert gradient is not None, variable.path
        assert np.abs(tf.convert_to_tensor(gradient)).max() > 0.0, variable.path


def _check_functional_model(layer, call_args, outputs, tmp_path):
    """Symbolic shapes and dtypes are those of the call; a saved model answers the same."""
    inputs = _symbolic(call_args)
    symbolic = layer(**inputs)
    tf.nest.assert_same_structure(symbolic, outputs)
    for found, wanted in zip(tf.nest.flatten(symbolic), tf.nest.flatten(outputs), strict=True):
        assert found.dtype == wanted.dtype.name
        assert tf.TensorShape(found.shape).is_compatible_with(wanted.shape), found.shape
        assert found.shape[-1] == wanted.shape[-1] or len(found.shape) == 2, found.shape
    model = keras.Model(tf.nest.flatten(inputs), tf.nest.flatten(symbolic))
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    arguments = tf.nest.flatten(call_args)
    answers = tf.nest.flatten(again(arguments))
    for found, wanted in zip(answers, tf.nest.flatten(outputs), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def _symbolic(call_args):
    return tf.nest.map_structure(
        lambda array: keras.Input(array.shape[1:], dtype=str(array.dtype)), call_args
    )


ANNOTATIONS, WORDS = make_batch()
HIDDEN, MEMORY = random(B, N, seed=1), random(B, N, seed=2)
DROPOUTS = ("annotation", "initial", "embedding", "hidden", "output")
RATES = {f"{name}_dropout": 0.25 for name in DROPOUTS}

LAYERS = {
    "attention": (
        sat_tf.BahdanauAttention,
        {"attention_dim": A},
        {"hidden": HIDDEN, "annotations": ANNOTATIONS},
    ),
    "cell": (
        sat_tf.AttentionLSTMCell,
        {"hidden_dim": N, "embedding_dim": M},
        {"inputs": random(B, M + D), "states": [HIDDEN, MEMORY]},
    ),
    "initial state": (
        sat_tf.InitialState,
        {"hidden_dim": N, "layers": 3, "dropout": 0.1},
        {"mean_annotation": random(B, D)},
    ),
    "deep output": (
        sat_tf.DeepOutput,
        {"vocabulary_size": K, "embedding_dim": M, "hidden_dropout": 0.1},
        {"hidden": HIDDEN, "context": random(B, D), "embeddings": random(B, M)},
    ),
    "decoder": (
        sat_tf.RNNDecoder,
        {"vocabulary_size": K, **SIZES, "initial_layers": 2, **RATES},
        {"annotations": ANNOTATIONS, "words": WORDS},
    ),
    "decoder without attention": (
        sat_tf.RNNDecoder,
        {"vocabulary_size": K, **SIZES, "attends": False, "gate": False},
        {"annotations": ANNOTATIONS, "words": WORDS},
    ),
    "encoder": (
        sat_tf.Encoder,
        {"backbone": "scenes_cnn", "image_size": 16, "trainable": True},
        {"images": np.random.default_rng(0).uniform(0, 255, [B, 16, 16, 3]).astype("float32")},
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_follow_the_conventions_of_keras(name, tmp_path):
    run_layer_test(*LAYERS[name], tmp_path)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sat_tf.BahdanauAttention(0), "`attention_dim`: expected a number of at least 1"),
        (lambda: sat_tf.RNNDecoder("100"), "`vocabulary_size`: expected int, got '1"),
        (
            lambda: sat_tf.RNNDecoder(9, output_dropout="0.1"),
            "`--decoder.output_dropout`: expected float",
        ),
        (lambda: sat_tf.InitialState(4, layers=-2), "`layers`: expected a number of at least 0"),
        (lambda: sat_tf.InitialState(4, dropout=1.0), r"`dropout`: expected a number in \[0, 1\)"),
    ],
)
def test_an_argument_out_of_range_is_an_error(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# --- the cell and its first state ---


def test_keras_rnn_takes_the_cell():
    cell = build(sat_tf.AttentionLSTMCell(N, M), (None, M + D))
    inputs = random(B, T, M + D)
    outputs, hidden, state_cell = keras.layers.RNN(cell, return_sequences=True, return_state=True)(
        inputs
    )
    expected = np.zeros([B, N]), np.zeros([B, N])
    for time in range(T):
        expected = lstm(cell, inputs[:, time, :M], inputs[:, time, M:], *expected)
        np.testing.assert_allclose(outputs[:, time], expected[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(hidden, expected[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(state_cell, expected[1], rtol=1e-4, atol=1e-5)


def test_each_recurrent_gate_starts_orthogonal_and_different():
    cell = sat_tf.AttentionLSTMCell(N, M)
    cell.build((None, M + D))
    gates = np.split(cell.recurrent_projection.kernel.numpy(), 4, axis=-1)
    for gate in gates:
        np.testing.assert_allclose(gate @ gate.T, np.eye(N), atol=1e-5)
    for one, other in itertools.combinations(gates, 2):
        assert np.abs(one - other).max() > 0.1


def test_without_layers_the_initial_state_is_zero_for_every_image():
    layer = sat_tf.InitialState(N, 0)
    layer.build((None, D))
    state = layer(random(B, D, seed=30))
    assert layer.weights == []
    np.testing.assert_array_equal(state.hidden, np.zeros([B, N]))
    np.testing.assert_array_equal(state.cell, np.zeros([B, N]))


# --- default seeds ---


def make_decoder(**options):
    return sat_tf.RNNDecoder(K, **SIZES, **options)


DROPPING = {
    "initial state": (sat_tf.InitialState(N, 2, 0.5), [random(B, D)]),
    "deep output": (
        sat_tf.DeepOutput(K, M, dropout=0.5),
        [random(50, N), random(50, D), random(50, M)],
    ),
    "decoder": (make_decoder(output_dropout=0.5), [ANNOTATIONS, WORDS]),
    "decoder's annotations": (make_decoder(annotation_dropout=0.5), [ANNOTATIONS, WORDS]),
}


@pytest.mark.parametrize("name", DROPPING)
@pytest.mark.parametrize("wrap", [lambda f: f, tf.function], ids=["eager", "graph"])
def test_dropout_acts_in_training_without_a_seed(name, wrap):
    layer, arguments = DROPPING[name]

    def first(training):
        return tf.nest.flatten(layer(*arguments, training=training))[0]

    train, infer = wrap(lambda: first(True)), wrap(lambda: first(False))
    one, two, plain = train().numpy(), train().numpy(), infer().numpy()
    np.testing.assert_array_equal(plain, infer())
    assert np.abs(one - plain).max() > 1e-3
    assert np.abs(one - two).max() > 1e-3


@pytest.mark.parametrize("wrap", [lambda f: f, tf.function], ids=["eager", "graph"])
def test_locations_are_drawn_anew_without_a_seed(wrap):
    decoder = make_decoder()
    annotations, words = random(50, L, D), np.zeros([50, T], np.int32)
    draw = wrap(lambda: decoder(annotations, words, selection="sample").log_prob)
    assert np.any(draw().numpy() != draw().numpy())
    attended, state = decoder.begin(annotations)
    step = wrap(lambda: decoder.step(attended, words[:, 0], state, "sample")[2].log_prob)
    assert np.any(step().numpy() != step().numpy())


def test_replicas_draw_different_masks_without_a_seed():
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        decoder = make_decoder(output_dropout=0.5)
        decoder.build(ANNOTATIONS.shape)

    @tf.function(autograph=False)
    def run():
        return strategy.run(lambda: decoder(ANNOTATIONS, WORDS, training=True).logits)

    one, other = strategy.experimental_local_results(run())
    assert np.abs(one - other).max() > 1e-3


# --- the decoder in a functional model ---


def test_a_model_of_the_decoder_learns_by_compile_and_fit():
    annotations, words = keras.Input((L, D)), keras.Input((None,), dtype="int32")
    output = make_decoder(output_dropout=0.1)(annotations, words)
    model = keras.Model([annotations, words], output.logits)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.05), loss, jit_compile=False)
    targets = (WORDS + 1) % K
    history = model.fit([ANNOTATIONS, WORDS], targets, epochs=25, verbose=0).history["loss"]
    assert history[-1] < 0.7 * history[0]
    alpha = keras.Model([annotations, words], keras.ops.softmax(output.alignment_scores))
    np.testing.assert_allclose(np.sum(alpha([ANNOTATIONS, WORDS]), -1), np.ones([B, T]), rtol=1e-5)
