"""Statistics of an encoder's channels, and what the command refuses."""

import keras
import numpy as np
import pytest

from sat_tf.layers.encoder import Encoder, scenes_cnn
from tests.training.data.small_captions import files
from tests.training.small_runs import exit_of
from training.data.image_loader import read_image
from training.standardize import channel_statistics, main


def test_statistics_are_those_of_all_readable_images(tmp_path):
    encoder = Encoder("scenes_cnn", 16)
    examples = files(tmp_path / "images", corrupt=(1,))
    mean, deviation = channel_statistics(encoder, examples, "crop")

    def resize(image):
        from sat_tf.images import decoding

        return decoding.resize(image, 16, "crop")

    pixels = [read_image(e.image, resize)[0] for n, e in enumerate(examples) if n != 1]
    rows = np.concatenate([np.asarray(encoder(one[None]))[0] for one in pixels])
    # Annotations pass through float16, as those of a store do.
    np.testing.assert_allclose(mean, rows.mean(axis=0), atol=2e-3)
    np.testing.assert_allclose(deviation, rows.std(axis=0), atol=2e-3)


def test_backbones_side_by_side_get_one_standardised_file(tmp_path, capsys, monkeypatch):
    scenes, first = (str(tmp_path / f"{name}.weights.h5") for name in ("scenes", "first"))
    scenes_cnn(64).save_weights(scenes)
    pretend_to_download(monkeypatch, "MobileNetV2")
    flags = ["--recipe", "scenes_soft", "--data.limit", "40", "--images", "20", "--compact"]
    flags += ["--encoder.name", "scenes_cnn+mobilenet_v2", "--encoder.layer", "+block_3_project_BN"]
    for source, target in ((f"{scenes}+imagenet", first), (first, first)):
        assert main([*flags, "--encoder.weights", source, "--out", target]) == 0
    # The second time, there is nothing left to do.
    assert "means of up to 0.00 and deviations of 1.00 to 1.00" in capsys.readouterr().out


def pretend_to_download(monkeypatch, name: str) -> keras.Model:
    """Gives a network of keras.applications "ImageNet weights": random ones, always the same."""
    factory = getattr(keras.applications, name)

    def downloading(weights=None, **options):
        if weights == "imagenet":
            keras.utils.set_random_seed(5)
        return factory(weights=None, **options)

    downloading.__module__ = factory.__module__
    monkeypatch.setattr(keras.applications, name, downloading)
    return downloading(weights="imagenet", include_top=False, input_shape=(64, 64, 3))


def test_imagenet_weights_are_standardised_as_a_file_s(tmp_path, monkeypatch):
    file = str(tmp_path / "vgg16.weights.h5")
    pretend_to_download(monkeypatch, "VGG16").save_weights(file)
    pixels = np.random.default_rng(0).uniform(0, 255, [1, 64, 64, 3]).astype("float32")
    flags = ["--recipe", "scenes_soft", "--data.limit", "20", "--images", "10"]
    flags += ["--encoder.name", "vgg16", "--encoder.layer", "block2_conv2"]
    found = []
    for source in ("imagenet", file):
        out = str(tmp_path / "out.weights.h5")
        assert main([*flags, "--encoder.weights", source, "--out", out]) == 0
        found.append(np.asarray(Encoder("vgg16", 64, "block2_conv2", out)(pixels)))
    np.testing.assert_allclose(*found, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--encoder.name", "resnet50"], "--encoder.name"),
        (["--encoder.name", "vgg19", "--encoder.weights", "None"], "--encoder.weights"),
        (["--encoder.name", "keras_hub:dinov2_small", "--encoder.weights", "x"], "weights file"),
    ],
)
def test_a_wrong_encoder_is_an_error_that_names_the_flag(capsys, flags, named):
    status, said = exit_of(capsys, main, "--recipe", "flickr8k_soft", *flags)
    assert status == 2 and named in said
