"""Looks for pretrained weights before training asks for them."""

from __future__ import annotations

import os
import re
import urllib.error
import urllib.request
from pathlib import Path

from sat_tf.config import JOIN, EncoderConfig, weights_files
from sat_tf.layers.backbones import canonical_name

_SERVER = "https://storage.googleapis.com/tensorflow/keras-applications/"
_PATIENCE = 5.0  # seconds


def check_imagenet_weights(config: EncoderConfig) -> None:
    """Checks that ImageNet weights are in Keras' cache, or that their server can be reached.

    Raises:
        ValueError: Neither; training would wait for the network and then fail. Or there is no such
            backbone.
    """
    names = canonical_name(config.name).split(JOIN)
    files = weights_files(config.weights)
    if files == ["imagenet"]:  # of each
        files *= len(names)
    wanted = [name for name, file in zip(names, files, strict=False) if file == "imagenet"]
    missing = [name for name in wanted if not _is_cached(name)]
    if not missing or _server_answers():
        return
    raise ValueError(
        f"The ImageNet weights of {' and '.join(missing)} are not in {_cache()}, and {_SERVER} "
        "cannot be reached. Download the file (*_notop.h5) elsewhere and give it with "
        "`--encoder.weights FILE`."
    )


def _cache() -> Path:
    return Path(os.environ.get("KERAS_HOME") or Path.home() / ".keras") / "models"


def _is_cached(name: str) -> bool:
    """Tells whether Keras' cache has a file such as vgg19_weights_[...]_notop.h5."""
    name = re.sub("[^a-z0-9]", "", name.lower())
    plain = (re.sub("[^a-z0-9]", "", path.stem.lower()) for path in _cache().glob("*.h5"))
    return any(re.fullmatch(rf"(weights)?{name}(?!v\d).*notop(v2)?", stem) for stem in plain)


def _server_answers() -> bool:
    request = urllib.request.Request(_SERVER, method="HEAD")
    try:
        urllib.request.urlopen(request, timeout=_PATIENCE).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True
