"""Backbones side by side."""

import numpy as np
import pytest

from sat_tf.config import EncoderConfig
from sat_tf.dtype_policy import default_policy
from sat_tf.layers import backbones, encoder_statistics
from sat_tf.layers.encoder import Encoder
from tests.sat_tf.layers.encoder_images import make_images

PAIR, LAYERS = "scenes_cnn+mobilenet_v2", "conv5+block_3_project_BN"


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """Files of weights of both whole backbones, joined; the second has a grid of half the side."""
    folder, files = tmp_path_factory.mktemp("weights"), []
    for name in PAIR.split("+"):
        files.append(str(folder / f"{name}.weights.h5"))
        if name == "scenes_cnn":
            backbones.scenes_cnn(32).save_weights(files[-1])
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
    encoder_statistics.round_weights(config, rounded)
    raw = np.asarray(Encoder(PAIR, 64, LAYERS, weights=rounded)(make_images()))
    plain = np.asarray(Encoder(PAIR, 64, LAYERS, weights=weights)(make_images()))
    assert 0 < np.abs(raw - plain).max() < 0.1 * np.abs(plain).max()
    statistics = raw.mean(axis=(0, 1)), raw.std(axis=(0, 1)) + 1e-3
    joined = EncoderConfig(PAIR, LAYERS, rounded, image_size=64)
    encoder_statistics.standardize(joined, final, *statistics)
    found = np.asarray(Encoder(PAIR, 64, LAYERS, weights=final)(make_images()))
    np.testing.assert_allclose(found, (raw - statistics[0]) / statistics[1], rtol=1e-3, atol=1e-3)
    again = str(tmp_path / "again.weights.h5")
    final_config = EncoderConfig(PAIR, LAYERS, final, image_size=64)
    encoder_statistics.standardize(final_config, again, found.mean((0, 1)), found.std((0, 1)) + 1)
    twice = np.asarray(Encoder(PAIR, 64, LAYERS, weights=again)(make_images()))
    np.testing.assert_allclose(
        twice, (found - found.mean((0, 1))) / (found.std((0, 1)) + 1), rtol=1e-3, atol=1e-3
    )


def test_rectified_annotations_get_deviation_1(tmp_path):
    source, target = (str(tmp_path / f"{name}.weights.h5") for name in ("vgg", "std"))
    backbones.whole("vgg16", 32).save_weights(source)
    config = EncoderConfig("vgg16", "block2_conv2", source, image_size=32)
    raw = np.asarray(Encoder("vgg16", 32, "block2_conv2", source)(make_images(size=32)))
    deviation = raw.std(axis=(0, 1)) + 1e-3
    encoder_statistics.standardize(config, target, raw.mean(axis=(0, 1)), deviation)
    found = np.asarray(Encoder("vgg16", 32, "block2_conv2", target)(make_images(size=32)))
    np.testing.assert_allclose(found, raw / deviation, rtol=1e-3, atol=1e-4)


def test_a_pair_is_made_again_of_its_configuration():
    pair = Encoder(PAIR, 64)
    assert pair.tap == "norm+out_relu" and pair.grid == (8, 8)
    again = Encoder.from_config(pair.get_config())
    again.set_weights(pair.get_weights())
    np.testing.assert_array_equal(again(make_images()), pair(make_images()))


def test_a_pair_computes_in_its_own_policy_whatever_the_global_one_is():
    pair = Encoder.unloaded(PAIR, 64, dtype="float32")
    with default_policy("mixed_float16"):
        again = Encoder.unloaded(PAIR, 64, dtype="float32")
    again.set_weights(pair.get_weights())
    np.testing.assert_array_equal(again(make_images()), pair(make_images()))


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
