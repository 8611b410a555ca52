"""Missing ImageNet weights are noticed before training would ask the network for them."""

from __future__ import annotations

import urllib.error
import urllib.request

import pytest

from sat_tf.config import EncoderConfig
from training.inspect.command import parse
from training.inspect.survey import check_imagenet_weights, survey

FILES = {
    "vgg19": "vgg19_weights_tf_dim_ordering_tf_kernels_notop.h5",
    "mobilenet_v2": "mobilenet_v2_weights_tf_dim_ordering_tf_kernels_1.0_224_no_top.h5",
    "efficientnet_v2b0": "efficientnetv2-b0_notop.h5",
    "resnet50v2": "resnet50v2_weights_tf_dim_ordering_tf_kernels_notop.h5",
}


def config(name: str, weights: str | None = "imagenet") -> EncoderConfig:
    return EncoderConfig(name=name, weights=weights)


@pytest.fixture
def asked(tmp_path, monkeypatch) -> list[str]:
    """The addresses that were asked for; nothing answers."""
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    (tmp_path / "models").mkdir()
    urls: list[str] = []

    def fail(request, timeout):
        urls.append(request.full_url)
        raise urllib.error.URLError("no network")

    monkeypatch.setattr(urllib.request, "urlopen", fail)
    return urls


@pytest.mark.parametrize("name", FILES)
def test_cached_weights_need_no_network(tmp_path, asked, name):
    (tmp_path / "models" / FILES[name]).touch()
    check_imagenet_weights(config(name))
    assert asked == []


def test_missing_weights_without_a_network_are_an_error(tmp_path, asked):
    (tmp_path / "models" / FILES["resnet50v2"]).touch()
    with pytest.raises(
        ValueError, match="of resnet50 are not in .*cannot be.*`--encoder.weights FILE`"
    ):
        check_imagenet_weights(config("resnet50"))
    assert len(asked) == 1


def test_weights_that_can_be_downloaded_or_are_not_wanted_are_no_error(asked, monkeypatch):
    check_imagenet_weights(config("vgg19", None))
    assert asked == []

    def refuse(request, timeout):
        raise urllib.error.HTTPError(request.full_url, 404, "Not Found", {}, None)

    monkeypatch.setattr(urllib.request, "urlopen", refuse)
    check_imagenet_weights(config("vgg19"))


def test_weights_of_backbones_side_by_side_are_looked_for(tmp_path, asked):
    (tmp_path / "models" / FILES["vgg19"]).touch()
    check_imagenet_weights(config("vgg19+resnet50", "imagenet+resnet.h5"))
    check_imagenet_weights(config("vgg19+resnet50", "both.h5"))
    assert asked == []
    for weights in ("imagenet", "vgg.h5+imagenet"):
        with pytest.raises(ValueError, match="weights of resnet50 are not in"):
            check_imagenet_weights(config("vgg19+resnet50", weights))


def test_a_wrong_name_is_said_to_be_one(asked):
    with pytest.raises(ValueError, match=r"`--encoder.name`.*did you mean resnet50\?"):
        check_imagenet_weights(config("resnet51"))
    assert asked == []


def test_weights_are_not_looked_for_if_the_encoder_is_that_of_a_run(soft_run, asked):
    flags = ["--recipe", "scenes_soft", "--data.limit", "8", "--encoder.name", "mobilenet_v2"]
    flags += ["--encoder.image-size", "32", "--encoder.weights", "imagenet"]
    found = survey(parse([*flags, "--init-from", str(soft_run)]).config, None)
    assert not found.errors and not asked
    assert survey(parse(flags).config, None).errors and asked
