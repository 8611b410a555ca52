"""Captioners and layers used as any Keras model is: saved, compiled, scaled, quantised."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import sat_tf
from sat_tf.config import AttentionConfig, SearchConfig
from sat_tf.layers.attention import attention_entropy, attention_weights
from sat_tf.objectives import make_objective
from sat_tf.objectives.reward import RewardObjective
from tests.sat_tf.models.captioner_models import (
    KINDS,
    VOCABULARY,
    D,
    as_dataset,
    make_batch,
    make_config,
    make_model,
    randomise,
)

RNG = np.random.default_rng(0)
ANNOTATIONS = RNG.normal(size=[4, 5, 3]).astype(np.float32)
WORDS = RNG.integers(1, 20, [4, 6]).astype(np.int32)


def decoder(**options) -> sat_tf.RNNDecoder:
    return sat_tf.RNNDecoder(20, embedding_dim=6, attention_dim=7, hidden_dim=8, **options)


def plain_model(locations: int | None = 5) -> keras.Model:
    annotations, words = keras.Input((locations, 3)), keras.Input((None,), dtype="int32")
    return keras.Model([annotations, words], decoder()(annotations, words).logits)


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_captioner_comes_back_with_its_policy(tmp_path, kind):
    config = make_config(kind, decoder={"initial_layers": 2})
    model = sat_tf.Captioner(config, VOCABULARY, dtype="mixed_bfloat16", name="mine")
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert (loaded.name, loaded.dtype_policy.name) == ("mine", "mixed_bfloat16")
    assert loaded.config == config
    for found, expected in zip(loaded(make_batch()), model(make_batch()), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_a_loss_or_targets_beside_the_objective_are_errors():
    model = make_model()
    for wrong in ({"loss": "mse"}, {"metrics": ["accuracy"]}):
        with pytest.raises(ValueError, match="expected none, as the objective has its own"):
            model.compile("adam", **wrong)
    with pytest.raises(ValueError, match="argument `loss`"):
        model.compile("adam", "mse")
    with pytest.raises(ValueError, match="argument `optimizer`"):
        model.compile(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD()))
    model.compile("adam", jit_compile=False)
    batch = make_batch()
    with pytest.raises(ValueError, match="targets or sample weights"):
        model.fit(tf.data.Dataset.from_tensors((batch, batch["tokens"])), verbose=0)
    assert model.train_on_batch(batch, return_dict=True)["loss"] > 0


@pytest.mark.parametrize("method", ["fit", "train_on_batch"])
def test_targets_and_weights_as_arguments_are_errors(method):
    model, batch = make_model(), make_batch()
    model.compile("adam", jit_compile=False)
    call = getattr(model, method)
    expected = "argument `{}`: expected none, as a batch holds all"
    with pytest.raises(ValueError, match=expected.format("sample_weight")):
        call(batch, sample_weight=np.zeros(4))
    with pytest.raises(ValueError, match=expected.format("y")):
        call(batch, batch["tokens"])
    if method == "fit":
        with pytest.raises(ValueError, match=expected.format("class_weight")):
            call(batch, class_weight={0: 1.0})


def test_an_objective_whose_baseline_the_model_lacks_is_an_error():
    model = make_model("soft")
    model.compile("adam", jit_compile=False, objective=make_objective(AttentionConfig("hard")))
    with pytest.raises(ValueError, match="`baseline`: expected the MovingAverageBaseline"):
        model.fit(as_dataset(make_batch(), 4), verbose=0)


def test_a_reward_is_not_compiled_by_xla(monkeypatch):
    model = make_model()
    reward = RewardObjective(lambda *_: 0, 2, model.config.attention, SearchConfig(max_length=4))
    with pytest.raises(ValueError, match="`jit_compile`: expected False with this objective"):
        model.compile("sgd", objective=reward, jit_compile=True)
    gpu = [tf.config.PhysicalDevice("/physical_device:GPU:0", "GPU")]
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda *_: gpu)
    model.compile("sgd")
    assert model.jit_compile
    model.compile("sgd", objective=reward)
    assert not model.jit_compile


@pytest.mark.parametrize("preset", ["arctic", "rloo"])
def test_a_caption_of_padding_leaves_training_finite(preset):
    model = make_model("hard", preset=preset)
    model.compile("adam", jit_compile=False)
    batch = make_batch()
    batch["tokens"][1, 1:] = 0
    logs = model.fit(as_dataset(batch, 4), epochs=2, verbose=0).history
    assert all(np.isfinite(values).all() for values in logs.values())
    assert all(np.isfinite(weight).all() for weight in model.get_weights())


@pytest.mark.slow
def test_hard_attention_is_compiled_by_xla_for_batches_of_unknown_size():
    model = make_model("hard")
    model.compile("adam", jit_compile=True)
    logs = model.fit(as_dataset(make_batch(), 3), verbose=0).history
    assert np.isfinite(logs["loss"]).all()


def test_the_number_of_locations_may_be_unknown():
    model = plain_model(locations=None)
    for locations in (5, 2):
        assert model([ANNOTATIONS[:, :locations], WORDS]).shape == (4, 6, 20)
    captioner = randomise(make_model())
    search = tf.function(
        lambda a: captioner.search(a).token_ids, input_signature=[tf.TensorSpec([None, None, D])]
    )
    annotations = make_batch()["annotations"]
    np.testing.assert_array_equal(search(annotations), captioner.search(annotations).token_ids)


def test_the_mean_annotation_does_not_overflow_float16():
    layer = decoder(dtype="mixed_float16")
    found = layer(np.full([2, 196, 3], 400.0, np.float32), WORDS[:2])
    assert np.isfinite(found.logits).all()


def test_a_score_of_minus_infinity_takes_a_location_out():
    scores = tf.constant([[1.0, 2.0, -np.inf]])
    with tf.GradientTape() as tape:
        tape.watch(scores)
        entropy = attention_entropy(scores)
    np.testing.assert_allclose(entropy, attention_entropy(scores[:, :2]), rtol=1e-6)
    assert np.isfinite(tape.gradient(entropy, scores)).all()
    drawn = attention_weights(scores, "sample", seed=tf.constant([1, 2]))
    expected = tf.nn.log_softmax(scores)[0, int(tf.argmax(drawn.weights[0]))]
    np.testing.assert_allclose(drawn.log_prob[0], expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["Adam", "RMSprop", "Adagrad"])
def test_a_word_moves_as_far_however_often_it_occurs(name):
    embedding = decoder().embedding
    words = keras.Input((None,), dtype="int32")
    model = keras.Model(words, embedding(words))
    embedding.embeddings.assign(keras.ops.zeros([20, 6]))
    optimizer = getattr(keras.optimizers, name)(0.1)
    model.compile(optimizer, lambda _, found: 1e3 * found)  # far above Adagrad's first square, 0.1
    model.train_on_batch(np.array([[3] + [4] * 64]), np.zeros([1, 65]))
    once, often = embedding.embeddings.numpy()[3:5]
    np.testing.assert_allclose(often, once, rtol=1e-2)
