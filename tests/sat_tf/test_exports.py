"""The front door: public names, without TensorFlow until one is used."""

import subprocess
import sys

import pytest

import sat_tf
from sat_tf.captioner import Captioner
from sat_tf.inference.load import load


def test_every_public_name_is_there():
    assert sat_tf.load is load and sat_tf.Captioner is Captioner
    for name in sat_tf.__all__:
        assert getattr(sat_tf, name).__name__ == name and name in dir(sat_tf)


@pytest.mark.parametrize("name", ["Decoder", "published.names", "", "_private"])
def test_an_unknown_name_is_an_error(name):
    with pytest.raises(AttributeError, match=f"no attribute '{name}'"):
        getattr(sat_tf, name)


def test_the_package_and_its_plain_types_load_no_tensorflow():
    names = "sat_tf.Caption, sat_tf.CaptionerConfig, sat_tf.SearchConfig, sat_tf.Vocabulary"
    found = "sorted({'keras', 'tensorflow'} & set(sys.modules))"
    code = f"import sat_tf, sys; {names}; print({found})"
    command = [sys.executable, "-c", code]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "[]"
