"""The classifier behind a Spatial Transformer, and without it."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from sat_tf.digits.config import STNConfig
from sat_tf.digits.stn import STN
from tests.sat_tf.digits.digit_terms import SEED, assert_learns, terms_of

SMALL = {"localisation_filters": 2, "localisation_dim": 4, "filters": 4, "hidden_dim": 8}


def make(dtype="float32", **settings):
    return STN(STNConfig(**SMALL | {"output_size": 12} | settings), image_size=16, dtype=dtype)


def batch(size=4):
    rng = np.random.default_rng(0)
    return {
        "images": tf.constant(rng.uniform(size=[size, 16, 16, 1]), tf.float32),
        "labels": tf.constant(rng.integers(0, 10, size), tf.int32),
    }


def test_the_classifier_sees_the_rectified_image():
    logits, seen = make()(batch()["images"])
    assert logits.shape == (4, 10) and seen.shape == (4, 12, 12, 1)


def test_the_classifier_sees_the_masked_image():
    images = batch()["images"]
    model = make(attention="mask")
    np.testing.assert_allclose(model(images)[1], images * model.attention(images)[1], rtol=1e-6)


def test_without_attention_it_sees_the_image():
    images = batch()["images"]
    model = make(attention="none")
    np.testing.assert_array_equal(model(images)[1], images)
    assert model.attention is None


def test_dropout_is_for_training_only():
    model, images = make(dropout=0.5), batch()["images"]
    np.testing.assert_array_equal(model(images)[0], model(images)[0])
    assert np.any(model(images, SEED)[0] != model(images)[0])


@pytest.mark.parametrize("attention", ["transformer", "mask"])
def test_the_classifiers_loss_teaches_where_to_look(attention):
    model = make(attention=attention)
    with tf.GradientTape() as tape:
        loss, logs = terms_of(model, batch())
    of = model.attention
    layer = of.theta if attention == "transformer" else of.localisation.get_layer("logits")
    assert all(np.any(g) for g in tape.gradient(loss, layer.trainable_variables))
    assert set(logs) == set(model.objective.log_names)


def test_scores_and_figures():
    model = make()
    scores = model.scores(batch(), SEED)
    assert set(np.unique(scores["error"].values)) <= {0.0, 100.0}
    drawn = model.figures(batch(2), SEED)
    assert len(drawn) == 2 and drawn[0].dtype == np.uint8


HEAT_MAPS = {"localisation_dim": 0, "localisation_points": 2}
KINDS = [{"attention": "transformer"}, HEAT_MAPS, {"attention": "mask"}, {"attention": "none"}]


@pytest.mark.parametrize("settings", KINDS)
def test_in_bfloat16_its_convolutions_are_and_nothing_else(settings, monkeypatch):
    images, used = batch()["images"], []
    exact, model = make(**settings), make("mixed_bfloat16", **settings)
    for weight, value in zip(model.weights, exact.weights, strict=True):
        weight.assign(value)
    original = keras.layers.Layer.__call__

    def watched(layer, *args, **kwargs):
        found = original(layer, *args, **kwargs)
        if isinstance(layer, keras.layers.Conv2D | keras.layers.Dense):
            used.append((layer.kernel.shape[0] == 5 and len(layer.kernel.shape) == 4, found.dtype))
        return found

    monkeypatch.setattr(keras.layers.Layer, "__call__", watched)
    logits, seen = model(images)
    assert {(True, "bfloat16"), (False, "float32")} == {(c, d.name) for c, d in used}
    assert logits.dtype == seen.dtype == tf.float32
    assert all(weight.dtype == "float32" for weight in model.weights)
    wanted, seen_exactly = exact(images)
    np.testing.assert_allclose(logits, wanted, atol=0.03)
    np.testing.assert_allclose(seen, seen_exactly, atol=0.03)


@pytest.mark.parametrize("settings", KINDS)
def test_a_few_steps_lower_the_loss(settings):
    assert_learns(make(**settings, dropout=0.0), batch())


def test_an_output_of_one_pixel_is_refused():
    with pytest.raises(ValueError, match="output_size`: expected a number of at least 2, got 1"):
        STNConfig(output_size=1)


def test_a_localisation_net_that_reads_nothing_is_refused():
    keys = "`--model.localisation_dim` and `--model.localisation_points`"
    with pytest.raises(ValueError, match=f"{keys}: .* got 0 and 0"):
        STNConfig(localisation_dim=0)
