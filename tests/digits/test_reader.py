"""Published digit models read drawings, look by look, as the model itself does."""

import json

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import digits
from sat_tf.inference import load as runs
from sat_tf.inference import published
from sat_tf.util.errors import RunError
from tests.digits.small_readers import CONFIGS, drawing, write_reader
from tests.image_files import encode


@pytest.fixture(scope="module")
def readers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("readers")
    return {system: digits.load(write_reader(folder / system, system)) for system in CONFIGS}


@pytest.mark.parametrize(("system", "looks", "scales"), [("ram", 3, 1), ("dram", 2, 3)])
def test_glimpses_are_those_of_the_model(readers, system, looks, scales):
    reader = readers[system]
    reading, classes = reader.read(drawing()), len(reader.config.answers)
    assert reading.patches.shape == (looks, 8, 8, scales)
    assert reading.corners.shape == (looks, 4, 2)
    assert reading.probabilities.shape == (looks, classes)
    assert reading.answer == reader.config.answers[reading.probabilities[-1].argmax()]
    np.testing.assert_allclose(reading.probabilities.sum(axis=1), 1.0, atol=1e-5)
    again = reader.read(drawing())
    np.testing.assert_array_equal(again.corners, reading.corners)
    if system == "dram":  # its first location is its own: no draw differs
        batch = {"images": tf.constant(reading.image[None, ..., None])}
        glimpses = reader.model(batch, tf.zeros([2], tf.int32), sample=False)
        expected = tf.nn.softmax(glimpses.logits[0])
        np.testing.assert_allclose(reading.probabilities[-1], expected, atol=1e-5)


def test_a_transformer_that_has_learned_nothing_looks_at_everything(readers):
    reading = readers["stn"].read(drawing())
    (corners,), (patch,) = reading.corners, reading.patches
    # A pixel of the output is 41 / 27 of one of the input, and half of it lies beyond each centre.
    beyond = (41 / 27 - 1) / 2 / 42
    low, high = -beyond, 1 + beyond
    expected = [(low, low), (high, low), (high, high), (low, high)]
    np.testing.assert_allclose(corners, expected, atol=1e-4)
    assert patch.shape == (28, 28, 1)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "No such file or directory"),
        (b"\0\0\0\x18ftypheic", "a HEIC that cannot be read"),
        (encode(Image.new("L", (40, 40)), "PNG"), "there is no ink in it"),
    ],
    ids=["missing", "HEIC", "no ink"],
)
def test_what_is_wrong_with_a_drawing_is_said_with_its_name(readers, tmp_path, content, says):
    path = tmp_path / "seven.png"
    if content is not None:
        path.write_bytes(content)
        with pytest.raises(ValueError, match=f"^Cannot read the drawing: {says}"):
            readers["ram"].read(content)
    with pytest.raises(ValueError, match=rf"^Cannot read the drawing '.*seven\.png': {says}.*\.$"):
        readers["ram"].read(path)


def test_a_digit_model_that_ships_is_found_by_its_name(tmp_path, monkeypatch):
    write_reader(tmp_path / "ram_mine", "ram")
    assert digits.names() == ["dram_pairs", "ram_28", "stn_rts"]
    monkeypatch.setitem(published.HOMES, digits.MANIFEST, tmp_path)
    monkeypatch.setattr(published, "SHIPPED", tmp_path)
    assert digits.names() == ["ram_mine"] and published.names() == []
    assert digits.load("ram_mine").config == CONFIGS["ram"]
    with pytest.raises(RunError, match="no model of that name ships: did you mean ram_mine"):
        digits.load("ram_mime")
    with pytest.raises(RunError, match="of the system 'ram', which writes no captions"):
        runs.load_captioner("ram_mine")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"system": "cnn"}, "cnn"),
        ({"surplus": 1}, "surplus"),
        ({"model": 1}, "config"),
        ({"image_size": 0}, "expected a number in .*, got 0"),
        ({"target": "foo"}, "`target`: expected one of digit, pair, sum, got 'foo'"),
    ],
)
def test_a_configuration_of_another_version_is_an_error(tmp_path, change, says):
    folder = write_reader(tmp_path / "ram", "ram")
    files = {name: path.read_bytes() for name, path in published.checked_files(folder).items()}
    config = json.loads(files[published.CONFIG]) | change
    published.write(folder, files | {published.CONFIG: json.dumps(config).encode()})
    with pytest.raises(RunError, match=says):
        digits.load(folder)
