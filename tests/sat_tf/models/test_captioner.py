"""The captioner: training, precision, configuration."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from sat_tf.config import CaptionerConfig, EncoderConfig
from sat_tf.models.captioner import Captioner
from sat_tf.objectives import make_objective
from sat_tf.vocabulary import PAD
from tests.sat_tf.models.captioner_models import (
    KINDS,
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


def test_training_is_fixed_by_its_seed():
    def losses(seed):
        model = make_model("hard", decoder={"output_dropout": 0.5})
        model.compile(optimizer="adam", jit_compile=False, run_eagerly=True, seed=seed)
        return fit(model, make_batch(2))

    once = losses(1)
    assert once == losses(1)
    assert once != losses(2)


def test_a_gradient_longer_than_clip_norm_is_cut_to_it():
    def moved(clip_norm):
        model = randomise(make_model())
        before = model.get_weights()
        model.compile(
            optimizer=keras.optimizers.SGD(1.0),
            jit_compile=False,
            run_eagerly=True,
            clip_norm=clip_norm,
        )
        (logs,) = fit(model, make_batch())
        change = [a - b for a, b in zip(before, model.get_weights(), strict=True)]
        return np.sqrt(sum((part**2).sum() for part in change)), logs["gradient_norm"]

    free, norm = moved(0.0)
    np.testing.assert_allclose(free, norm, rtol=1e-3)
    assert free > 0.1
    clipped, reported = moved(0.1)
    np.testing.assert_allclose(clipped, 0.1, rtol=1e-3)
    np.testing.assert_allclose(reported, norm, rtol=1e-4)


@pytest.mark.parametrize("trainable", [False, True])
def test_only_a_trainable_encoder_learns_from_images(trainable):
    model = make_model(trainable=trainable)
    model.compile(optimizer="adam", jit_compile=False, run_eagerly=True)
    encoder = [w.numpy() for w in model.encoder.weights]
    decoder = [w.numpy() for w in model.decoder.weights]
    fit(model, make_batch(inputs="images"))
    changed = [np.any(a != b.numpy()) for a, b in zip(encoder, model.encoder.weights, strict=True)]
    assert len(changed) == 12
    assert changed == [trainable] * len(changed)
    assert any(np.any(a != b.numpy()) for a, b in zip(decoder, model.decoder.weights, strict=True))
    assert bool(model.encoder.trainable_variables) == trainable


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


def test_images_and_their_annotations_give_the_same_answer():
    model = randomise(make_model())
    images = make_batch(inputs="images")
    stored = {"tokens": images["tokens"], "annotations": model.encoder(images["images"])}
    np.testing.assert_allclose(model(images).logits, model(stored).logits, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_mixed_precision_trains_with_float32_losses(kind):
    keras.config.set_dtype_policy("mixed_bfloat16")
    model = make_model(kind, trainable=True)
    batch = make_batch(inputs="images")
    taught = model(batch)
    assert {part.dtype for part in taught} == {tf.float32}
    given = {"baseline": model.baseline} if kind == "hard" else {}
    terms = model.objective.terms(taught, batch["tokens"][:, 1:], **given)
    assert terms.loss.dtype == tf.float32
    assert model.annotate(batch).dtype == tf.bfloat16
    assert {w.dtype for w in model.weights} == {"float32"}
    before = model.get_weights()
    model.compile(optimizer="adam", jit_compile=False, run_eagerly=True)
    (logs,) = fit(model, batch)
    assert np.isfinite(list(logs.values())).all()
    assert any(np.any(a != b) for a, b in zip(before, model.get_weights(), strict=True))
    alpha, _ = model.search(model.annotate(batch)).auxiliary if kind != "none" else (None, None)
    if alpha is not None:
        assert alpha.dtype == tf.float32


def test_stored_annotations_reach_the_decoder_as_they_are(monkeypatch):
    keras.config.set_dtype_policy("mixed_bfloat16")
    model, batch = make_model(), make_batch()
    batch["annotations"] = batch["annotations"].astype(np.float16)
    seen, begin = [], model.decoder.begin
    monkeypatch.setattr(model.decoder, "begin", lambda x, *a: (seen.append(x), begin(x, *a))[1])
    assert model(batch).logits.dtype == tf.float32
    # Keras would cast float16 to bfloat16 at once, which is TensorFlow's slowest way there.
    assert [x.dtype for x in seen] == [tf.float16]


# --- configuration ---


@pytest.mark.parametrize("kind", KINDS)
def test_a_captioner_comes_back_from_its_configuration(kind):
    model = randomise(make_model(kind, decoder={"initial_layers": 2}))
    assert keras.saving.get_registered_object("sat_tf>Captioner") is Captioner
    copy = Captioner.from_config(model.get_config())
    copy.set_weights(model.get_weights())
    assert copy.config == model.config
    batch = make_batch(inputs="images")
    for one, other in zip(model(batch), copy(batch), strict=True):
        np.testing.assert_array_equal(one, other)


def test_weights_saved_after_training_load_into_a_fresh_captioner(tmp_path):
    model = make_model("hard")
    model.compile(optimizer="adam", jit_compile=False, run_eagerly=True)
    fit(model, make_batch())
    path = tmp_path / "captioner.weights.h5"
    model.save_weights(path)
    copy = make_model("hard", seed=1)
    copy.load_weights(path)
    batch = make_batch(inputs="images")
    np.testing.assert_array_equal(model(batch).logits, copy(batch).logits)
    np.testing.assert_array_equal(model.baseline.value, copy.baseline.value)


def test_the_encoder_is_the_one_of_the_configuration():
    config = EncoderConfig("scenes_cnn", layer="conv4", image_size=32, trainable=True)
    encoder = Captioner(CaptionerConfig(config), 10).encoder
    assert (encoder.backbone, encoder.tap, encoder.grid) == ("scenes_cnn", "conv4", (4, 4))
    assert encoder.trainable


def test_a_batch_without_images_and_annotations_is_an_error():
    batch = {"tokens": make_batch()["tokens"]}
    with pytest.raises(ValueError, match=r"`batch`: expected `annotations` or `images` in it"):
        make_model()(batch)
