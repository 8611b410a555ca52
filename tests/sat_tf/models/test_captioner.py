"""The captioner: training, precision, configuration, several samples a caption, search."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from sat_tf.objectives import make_objective
from sat_tf.objectives.estimators import MovingAverageBaseline
from sat_tf.text.vocabulary import END, PAD, START, UNK
from tests.sat_tf.models.captioner_models import (
    KINDS,
    L,
    as_dataset,
    compile_model,
    fit,
    make_batch,
    make_model,
    randomise,
)


@pytest.mark.parametrize("kind", KINDS)
def test_a_few_captions_are_learned_by_heart(kind):
    model = make_model(kind)
    smoothed = make_objective(model.config.attention, label_smoothing=0.01)
    compile_model(model, 2e-2, clip_norm=5.0, objective=smoothed)
    before = model.get_weights()
    logs = fit(model, make_batch(), epochs=40)
    assert set(logs[0]) == {"gradient_norm", "loss", *model.objective.log_names}
    assert all(np.isfinite(list(entry.values())).all() for entry in logs)
    assert logs[-1]["nll"] < 0.5 * logs[0]["nll"]
    assert logs[-1]["loss"] < logs[0]["loss"]
    moved = [np.any(a != b) for a, b in zip(before, model.get_weights(), strict=True)]
    names = [w.path for w in model.weights]
    still = {name for name, change in zip(names, moved, strict=True) if not change}
    assert all("scenes_cnn" in name or "conv" in name for name in still), still
    if kind == "hard":
        # It has followed the returns, which rise from one batch to the next.
        assert logs[-1]["reward"] > logs[1]["baseline"]
        assert logs[1]["baseline"] < float(model.baseline.value) < 0.0


def test_evaluation_gives_the_likelihood_a_token():
    model = compile_model(randomise(make_model(decoder={"output_dropout": 0.5})))
    batch = make_batch(5)
    got = model.evaluate(as_dataset(batch, 2), verbose=0, return_dict=True)["nll"]
    log_prob = tf.nn.log_softmax(model(batch).logits).numpy()
    targets = batch["tokens"][:, 1:]
    picked = np.take_along_axis(log_prob, targets[..., None], -1)[..., 0]
    np.testing.assert_allclose(got, -picked[targets != PAD].mean(), rtol=1e-5)


def test_the_encoder_sees_an_image_once_for_all_its_captions(monkeypatch):
    model = randomise(make_model(trainable=True))
    batch = make_batch(5, inputs="images")
    batch["images"] = batch["images"][[0, 1, 0, 2, 1]]
    expected = model(batch).logits
    seen, encode = [], type(model.encoder).call
    monkeypatch.setattr(
        type(model.encoder), "call", lambda self, x, **k: (seen.append(x), encode(self, x, **k))[1]
    )
    batch["image_index"] = np.array([7, 2, 7, 0, 2], np.int32)
    np.testing.assert_allclose(model(batch).logits, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(seen[0], batch["images"][[0, 1, 3]])


@pytest.mark.parametrize("kind", KINDS)
def test_captions_that_share_annotations_have_the_loss_and_gradient_of_captions_apart(kind):
    model = compile_model(randomise(make_model(kind, decoder={"initial_layers": 2})))
    batch = make_batch(5)
    batch["annotations"] = batch["annotations"][[0, 1, 0, 2, 1]]
    shared = batch | {"image_index": np.array([7, 2, 7, 0, 2], np.int32)}

    def step(batch):
        with tf.GradientTape() as tape:
            loss = model.objective(model, batch, tf.constant([3, 4])).loss
        return loss, *map(tf.convert_to_tensor, tape.gradient(loss, model.trainable_variables))

    for got, wanted in zip(step(shared), step(batch), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def test_annotations_are_dropped_for_an_image_and_words_for_a_caption():
    batch = make_batch(4) | {"image_index": np.array([1, 1, 0, 1], np.int32)}
    batch["tokens"][:] = batch["tokens"][0]

    def rows(**dropout):
        model = randomise(make_model(decoder=dropout))
        logits = model(batch, training=True, seed=tf.constant([3, 4])).logits.numpy()
        return [bool(np.allclose(logits[0], row, atol=1e-5)) for row in logits]

    batch["annotations"][:] = batch["annotations"][0]
    assert rows(annotation_dropout=0.5) == [True, True, False, True]
    assert rows(output_dropout=0.5) == [True, False, False, False]


def test_mixed_precision_trains_with_float32_losses():
    keras.config.set_dtype_policy("mixed_bfloat16")
    model = make_model("hard", trainable=True)
    batch = make_batch(inputs="images")
    taught = model(batch)
    assert {part.dtype for part in taught} == {tf.float32}
    terms = model.objective.terms(taught, batch["tokens"][:, 1:], baseline=model.baseline)
    assert terms.loss.dtype == tf.float32
    assert model.annotate(batch).dtype == tf.bfloat16
    assert {w.dtype for w in model.weights} == {"float32"}
    before = model.get_weights()
    model.compile(optimizer="adam", jit_compile=False, run_eagerly=True)
    (logs,) = fit(model, batch)
    assert np.isfinite(list(logs.values())).all()
    assert any(np.any(a != b) for a, b in zip(before, model.get_weights(), strict=True))
    assert model.search(model.annotate(batch)).auxiliary[0].dtype == tf.float32


def test_a_batch_without_images_and_annotations_is_an_error():
    batch = {"tokens": make_batch()["tokens"]}
    with pytest.raises(ValueError, match=r"`batch`: expected `annotations` or `images` in it"):
        make_model()(batch)


def test_only_the_moving_average_follows_the_returns():
    assert make_model("hard", preset="rloo", samples=3).baseline is None
    options = {"samples": 3, "reward_to_go": True}
    model = make_model("hard", **options)
    assert isinstance(model.baseline, MovingAverageBaseline)
    model.compile(optimizer="adam", jit_compile=False, run_eagerly=True)
    (logs,) = fit(model, make_batch())
    np.testing.assert_allclose(model.baseline.value, logs["reward"], rtol=1e-5)


@pytest.mark.parametrize(
    ("kind", "inference"), [("soft", "expectation"), ("hard", "argmax"), ("none", "expectation")]
)
def test_the_search_reports_what_teacher_forcing_sees(kind, inference):
    model = randomise(make_model(kind, inference=inference))
    annotations = make_batch(3)["annotations"]
    found = tf.function(model.search, autograph=False)(annotations)
    alpha, beta = (part.numpy() for part in found.auxiliary)
    assert alpha.shape == (3, 3, 6, 1 if kind == "none" else L)
    words = found.token_ids.numpy()
    assert not np.isin(words, (START, UNK)).any()
    tokens = np.pad(words.reshape(9, -1), [(0, 0), (1, 0)], constant_values=START)
    taught = model({"annotations": np.repeat(annotations, 3, axis=0), "tokens": tokens})
    every_alpha = tf.nn.softmax(taught.alignment_scores).numpy()
    every_log_prob = tf.nn.log_softmax(taught.logits).numpy()
    for row, k in np.ndindex(3, 3):
        length, words = int(found.lengths[row, k]), found.token_ids[row, k].numpy()
        expected = every_alpha[3 * row + k, :length]
        np.testing.assert_allclose(alpha[row, k, :length], expected, rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(alpha[row, k, :length].sum(-1), np.ones(length), rtol=1e-5)
        expected = taught.beta[3 * row + k, :length]
        np.testing.assert_allclose(beta[row, k, :length], expected, rtol=1e-4)
        # A caption cut at the horizon was never asked for its end.
        count = length + (length < 5)
        assert length == 5 or words[length] == END
        total = every_log_prob[3 * row + k, np.arange(count), words[:count]].sum()
        np.testing.assert_allclose(found.log_probs[row, k], total, rtol=1e-4)
