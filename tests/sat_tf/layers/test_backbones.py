"""Backbones by name, alone and side by side, and their weights."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from sat_tf.config import EncoderConfig
from sat_tf.layers.encoder import AppendPlace, Encoder, preprocessor, scenes_cnn
from sat_tf.layers.encoder_names import applications, check_layer
from tests.image_files import make_images
from training import standardize


def test_networks_of_keras_are_known_by_their_snake_case_names():
    exported = {
        name
        for name, value in vars(keras.applications).items()
        if callable(value) and name != "__loader__"
    }
    assert {function for _, function in applications().values()} == exported
    assert all(
        hasattr(getattr(keras.applications, module), "preprocess_input")
        for module, _ in applications().values()
    )
    names = {"vgg19", "resnet50_v2", "efficientnet_v2b0", "mobilenet_v3_small", "nasnet_mobile"}
    assert {"inception_resnet_v2", "convnext_tiny", "densenet121", *names} <= set(applications())


def test_layers_of_scenes_cnn_are_known():
    for layer in scenes_cnn(16).layers:
        check_layer("scenes_cnn", layer.name)


def test_appended_places_are_the_centres_of_the_cells():
    maps = np.asarray(AppendPlace()(np.zeros([2, 2, 4, 3], np.float32)))
    assert maps.shape == (2, 2, 4, 5)
    np.testing.assert_allclose(maps[1, :, 0, 3], [-0.5, 0.5])
    np.testing.assert_allclose(maps[1, 0, :, 4], [-0.75, -0.25, 0.25, 0.75])


@pytest.mark.parametrize(
    ("name", "tap", "shape"),
    [
        ("vgg19", "block5_conv4", (4, 4, 512)),
        ("resnet50", "conv5_block3_out", (2, 2, 2048)),
        ("mobilenet_v2", "out_relu", (2, 2, 1280)),
    ],
)
def test_backbones_have_their_default_taps(name, tap, shape, monkeypatch):
    # Shapes alone are wanted: filling 100 MB with random numbers would take seconds.
    monkeypatch.setattr(keras.initializers.GlorotUniform, "__call__", zeros)
    encoder = Encoder(name, 64)
    assert encoder.tap == tap
    assert (*encoder.grid, encoder.annotation_dim) == shape


def zeros(self, shape, dtype=None):
    return tf.zeros(shape, dtype or "float32")


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("alexnet", {}, r"--encoder.name.*mobilenet_v2.*got 'alexnet'"),
        ("scenes_cnn", {"tap": "conv9"}, r"--encoder.layer.*conv4, place.*got 'conv9'.*not have"),
        ("scenes_cnn", {"weights": "gone.weights.h5"}, r"--encoder.weights.*there is no such file"),
        ("scenes_cnn", {"weights": "imagenet"}, r"--encoder.weights.*no ImageNet weights"),
    ],
)
def test_an_unknown_backbone_tap_or_file_is_an_error_that_says_what_there_is(name, options, said):
    with pytest.raises(ValueError, match=said):
        Encoder(name, 64, **options)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("vgg19", [20 - 103.939, 120 - 116.779, 250 - 123.68]),  # blue, green, red
        ("resnet50", [20 - 103.939, 120 - 116.779, 250 - 123.68]),
        ("mobilenet_v2", [250 / 127.5 - 1, 120 / 127.5 - 1, 20 / 127.5 - 1]),
        ("efficientnet_v2b0", [250, 120, 20]),  # its first layer normalises
        ("scenes_cnn", [250 / 127.5 - 1, 120 / 127.5 - 1, 20 / 127.5 - 1]),
    ],
)
def test_each_backbone_gets_its_own_normalisation(name, expected):
    images = tf.constant([[[[250.0, 120.0, 20.0]]]])
    normalised = preprocessor(name)(images)
    np.testing.assert_allclose(normalised[0, 0, 0], expected, rtol=1e-5)
    np.testing.assert_array_equal(images[0, 0, 0], [250, 120, 20])


@pytest.mark.parametrize(("name", "size"), [("mobilenet_v2", 16), ("scenes_cnn", 60), ("vgg19", 0)])
def test_an_image_size_the_backbone_cannot_take_is_an_error(name, size):
    with pytest.raises(ValueError, match="`image_size`"):
        Encoder(name, size)


def test_a_failed_download_says_what_needs_none(monkeypatch):
    def failing(**_):
        raise Exception("URL fetch failure on https://example.org/w.h5: None -- no route to host")

    failing.__module__ = keras.applications.MobileNetV2.__module__
    monkeypatch.setattr(keras.applications, "MobileNetV2", failing)
    with pytest.raises(ValueError, match=r"no route.*--encoder.weights FILE.*folder_from_fl"):
        Encoder("mobilenet_v2", 224, weights="imagenet")


def test_mobilenet_v2_weights_annotate_as_keras_does(real_data):
    path = real_data / "weights" / "mobilenet_v2_1.0_224_no_top.weights.h5"
    if not path.is_file():
        pytest.skip(f"needs {path}")
    encoder = Encoder("mobilenet_v2", 224, weights=str(path))
    reference = keras.applications.MobileNetV2(
        input_shape=(224, 224, 3), include_top=False, weights=path
    )
    images = make_images(2, 224)
    expected = reference(images / 127.5 - 1, training=False)
    annotations = encoder(images)
    assert annotations.shape == (2, 49, 1280)
    np.testing.assert_allclose(annotations, np.reshape(expected, [2, 49, 1280]), atol=1e-4)
    with pytest.raises(ValueError, match="does not fit vgg16"):
        Encoder("vgg16", 32, weights=str(path))


PAIR, LAYERS = "scenes_cnn+mobilenet_v2", "conv5+block_3_project_BN"


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """Files of weights of both whole backbones, joined; the second has a grid of half the side."""
    folder, files = tmp_path_factory.mktemp("weights"), []
    for name in PAIR.split("+"):
        files.append(str(folder / f"{name}.weights.h5"))
        if name == "scenes_cnn":
            scenes_cnn(32).save_weights(files[-1])
        else:
            whole = Encoder(name, 32, tap="out_relu")
            whole.network.save_weights(files[-1])
    return "+".join(files)


def test_a_location_has_the_annotations_of_both(weights):
    first, second = weights.split("+")
    pair = Encoder(PAIR, 64, tap="conv5+block_6_project_BN", weights=weights)
    one = np.asarray(Encoder("scenes_cnn", 64, tap="conv5", weights=first)(make_images()))
    other = Encoder("mobilenet_v2", 64, tap="block_6_project_BN", weights=second)
    coarse = np.asarray(other(make_images())).reshape(2, 4, 4, 64)
    repeated = coarse.repeat(2, axis=1).repeat(2, axis=2).reshape(2, 64, 64)
    assert pair.grid == (8, 8) and pair.annotation_dim == 32 + 64
    found = np.asarray(pair(make_images()))
    np.testing.assert_allclose(found[..., :32], one, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found[..., 32:], repeated, rtol=1e-4, atol=1e-5)


def test_rounded_and_standardised_weights_are_one_file(weights, tmp_path):
    config = EncoderConfig(PAIR, LAYERS, weights, image_size=64)
    rounded, final = (str(tmp_path / f"{name}.weights.h5") for name in ("rounded", "final"))
    standardize.round_weights(config, rounded)
    raw = np.asarray(Encoder(PAIR, 64, LAYERS, weights=rounded)(make_images()))
    plain = np.asarray(Encoder(PAIR, 64, LAYERS, weights=weights)(make_images()))
    assert 0 < np.abs(raw - plain).max() < 0.1 * np.abs(plain).max()
    statistics = raw.mean(axis=(0, 1)), raw.std(axis=(0, 1)) + 1e-3
    joined = EncoderConfig(PAIR, LAYERS, rounded, image_size=64)
    standardize.standardize(joined, final, *statistics)
    found = np.asarray(Encoder(PAIR, 64, LAYERS, weights=final)(make_images()))
    np.testing.assert_allclose(found, (raw - statistics[0]) / statistics[1], rtol=1e-3, atol=1e-3)
    again = str(tmp_path / "again.weights.h5")
    final_config = EncoderConfig(PAIR, LAYERS, final, image_size=64)
    standardize.standardize(final_config, again, found.mean((0, 1)), found.std((0, 1)) + 1)
    twice = np.asarray(Encoder(PAIR, 64, LAYERS, weights=again)(make_images()))
    np.testing.assert_allclose(
        twice, (found - found.mean((0, 1))) / (found.std((0, 1)) + 1), rtol=1e-3, atol=1e-3
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backbone": "scenes_cnn+vgg0"}, "`--encoder.name`.*'vgg0'"),
        ({"tap": "conv5"}, r"`--encoder.layer`.*2 parts joined by \+, one for each of scenes_cnn"),
        ({"weights": "a.h5+"}, r"`--encoder.weights`.*a file for each of .*, or none"),
        ({"weights": "a.h5+b.h5+c.h5"}, r"`--encoder.weights`.*2 parts joined by \+"),
        ({"weights": "a.h5+b.h5"}, "`--encoder.weights`.*a.h5.*no such file"),
        ({"weights": "both.weights.h5"}, "`--encoder.weights`.*both.weights.h5.*no such file"),
        ({"image_size": 56}, "7 x 7 of scenes_cnn, 2 x 2 of mobilenet_v2"),
    ],
)
def test_what_does_not_fit_is_an_error(options, message):
    given = {"backbone": PAIR, "image_size": 64} | options
    with pytest.raises(ValueError, match=message):
        Encoder(**given)
