"""The encoder: annotations, freezing and fine-tuning, serialisation."""

import json
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

from sat_tf.captioner import Captioner
from sat_tf.config import CaptionerConfig, EncoderConfig
from sat_tf.layers.encoder import Encoder, scenes_cnn
from tests.image_files import make_images


def test_scenes_cnn_annotates_an_8_by_8_grid_each_seeing_22_pixels():
    encoder = Encoder("scenes_cnn", 64)
    annotations = encoder(make_images())
    assert encoder.grid == (8, 8) and encoder.annotation_dim == 32
    assert annotations.shape == (2, 64, 32)
    assert np.isfinite(annotations).all() and np.std(annotations) > 0.05
    encoder = Encoder("scenes_cnn", 64, trainable=True)
    images = tf.Variable(make_images(1))
    with tf.GradientTape() as tape:
        one = tf.reduce_sum(tf.reshape(encoder(images), [8, 8, 32])[3, 4])
    rows, columns = np.nonzero(np.abs(tape.gradient(one, images)[0]).sum(-1))
    centre = [(rows.min() + rows.max() + 1) / 2, (columns.min() + columns.max() + 1) / 2]
    assert centre == [3.5 * 8, 4.5 * 8]
    assert rows.max() - rows.min() + 1 == columns.max() - columns.min() + 1 == 22


@pytest.mark.parametrize("shape", [[None, None, None, 3], None])
def test_images_of_a_shape_that_is_not_known_yet_are_checked_when_they_come(shape):
    encoder, images = Encoder("scenes_cnn", 64), make_images()
    annotate = tf.function(encoder, input_signature=[tf.TensorSpec(shape)], autograph=False)
    np.testing.assert_allclose(annotate(images), encoder(images), rtol=1e-4, atol=1e-5)
    with pytest.raises(tf.errors.InvalidArgumentError, match="64"):
        annotate(make_images(size=32))


@pytest.mark.parametrize("trainable", [False, True])
def test_batch_normalisation_of_a_frozen_encoder_stays_in_inference_mode(trainable):
    encoder = Encoder("mobilenet_v2", 32, tap="bn_Conv1", trainable=trainable)
    before = [np.array(weight) for weight in encoder.weights]
    images = make_images(size=32)
    plain = encoder(images, training=False)
    trained = encoder(images, training=True)
    moved = any(
        (old != np.array(new)).any() for old, new in zip(before, encoder.weights, strict=True)
    )
    assert moved == trainable
    assert np.allclose(plain, trained) != trainable


def test_an_encoder_is_fine_tuned_from_a_layer_on():
    encoder = Encoder("scenes_cnn", 64, trainable=True, trainable_from="conv4")
    learning = {variable.path.split("/")[-2] for variable in encoder.trainable_variables}
    assert learning == {"conv4", "conv5", "norm"} and len(encoder.trainable_variables) == 6
    frozen = Encoder("scenes_cnn", 64, trainable=False, trainable_from="conv4")
    assert not frozen.trainable_variables


@pytest.mark.parametrize("through_model", [False, True])
def test_layers_before_trainable_from_stay_frozen_when_training_is_switched_on(through_model):
    encoder = Encoder("scenes_cnn", 64, trainable=True, trainable_from="conv4")
    switched = keras.Sequential([encoder]) if through_model else encoder
    learning = [variable.path for variable in encoder.trainable_variables]
    switched.trainable = False
    assert not encoder.trainable_variables
    switched.trainable = True
    assert [variable.path for variable in encoder.trainable_variables] == learning


def test_batch_normalisation_that_is_fine_tuned_learns_but_keeps_its_statistics():
    options = {"tap": "block_1_project_BN", "trainable_from": "block_1_depthwise"}
    encoder = Encoder("mobilenet_v2", 32, trainable=True, **options)
    before = [np.array(weight) for weight in encoder.weights]
    images = make_images(size=32)
    with tf.GradientTape() as tape:
        annotations = encoder(images, training=True)
        total = tf.reduce_sum(annotations**2)
    gradients = tape.gradient(total, encoder.trainable_variables)
    names = {"/".join(v.path.split("/")[-2:]) for v in encoder.trainable_variables}
    assert {"block_1_depthwise_BN/gamma", "block_1_project_BN/beta"} <= names
    assert not any(
        name.startswith(("Conv1", "bn_Conv1", "expanded", "block_1_e")) for name in names
    )
    assert len(names) == 6 and all(np.abs(gradient).max() > 0 for gradient in gradients)
    for old, new in zip(before, encoder.weights, strict=True):
        np.testing.assert_array_equal(old, new)
    np.testing.assert_array_equal(annotations, encoder(images, training=False))


@pytest.mark.parametrize(
    ("tap", "layer", "message"),
    [
        (None, "conv6", "up to its last, norm, for example conv1, .*got 'conv6', which is none"),
        ("conv3", "conv4", "up to its last, conv3, .*got 'conv4', which is none of them"),
        ("place", "place", "got 'place', from which on no layer has weights"),
    ],
)
def test_a_layer_that_cannot_be_fine_tuned_from_is_an_error(tap, layer, message):
    with pytest.raises(ValueError, match=f"`--encoder.trainable_from`.*{message}"):
        Encoder("scenes_cnn", 64, tap=tap, trainable=True, trainable_from=layer)


RANDOM = 'The encoder mobilenet_v2 is frozen with random weights: give "imagenet" or a file as `wei'


def test_a_frozen_encoder_of_random_weights_is_warned_of():
    with pytest.warns(UserWarning, match=RANDOM) as warned:
        encoder = Encoder("mobilenet_v2", 32, tap="Conv1")
    assert warned[0].filename == __file__
    with pytest.warns(UserWarning, match=RANDOM):
        Encoder("scenes_cnn+mobilenet_v2", 32, "+block_3_project_BN", weights="none+none")
    with pytest.warns(UserWarning, match=RANDOM):
        Captioner(CaptionerConfig(EncoderConfig("mobilenet_v2", image_size=32)), 10)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="The encoder")
        Encoder("scenes_cnn", 64)
        Encoder("mobilenet_v2", 32, tap="Conv1", trainable=True)
        Encoder.unloaded("mobilenet_v2", 32, tap="Conv1")
        again = Encoder.from_config(encoder.get_config())
    assert again.get_config() == encoder.get_config()


def test_configuration_round_trips_without_the_weights_file(tmp_path):
    path = tmp_path / "cnn.weights.h5"
    scenes_cnn(64).save_weights(path)
    options = {"trainable": True, "trainable_from": "conv3"}
    encoder = Encoder("scenes_cnn", 64, tap="conv4", weights=str(path), **options)
    saved = json.loads(json.dumps(keras.saving.serialize_keras_object(encoder)))
    path.unlink()
    again = keras.saving.deserialize_keras_object(saved)
    assert isinstance(again, Encoder)
    assert again.get_config() == encoder.get_config()
    assert len(again.trainable_variables) == len(encoder.trainable_variables) == 4
