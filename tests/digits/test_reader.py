"""Published digit models read drawings, look by look, as the model itself does."""

import json
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import digits
from digits.publish import small
from digits.reader import GRAPH, MANIFEST
from sat_tf.util.errors import RunError
from tests.digits.small_readers import MODELS, config_of, drawing, model_of, publish
from tests.image_files import encode


@pytest.fixture(scope="module")
def readers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("readers")
    return {system: digits.load(publish(folder / system, system)) for system in MODELS}


@pytest.mark.parametrize(
    ("system", "shape"), [("ram", (3, 8, 8, 1)), ("dram", (2, 8, 8, 3)), ("stn", (1, 28, 28, 1))]
)
def test_a_graph_reads_what_the_model_reads(readers, system, shape):
    reader, model = readers[system], model_of(system)
    small(model, config_of(system))  # rounds its weights
    reading = reader.read(drawing())
    corners, patches, logits = model.read(tf.constant(reading.image[None, ..., None]))
    np.testing.assert_allclose(reading.corners, corners[0], atol=1e-5)
    np.testing.assert_allclose(reading.patches, patches[0], atol=1e-4)
    np.testing.assert_allclose(reading.probabilities, tf.nn.softmax(logits[0]), atol=1e-5)
    assert reading.patches.shape == shape
    assert reading.answer == reader.facts.answers[reading.probabilities[-1].argmax()]


def test_an_error_of_a_drawing_names_its_file(readers, tmp_path):
    path = tmp_path / "seven.png"
    with pytest.raises(ValueError, match=r"^Cannot read the drawing '.*seven\.png': No such file"):
        readers["ram"].read(path)
    path.write_bytes(encode(Image.new("L", (40, 40)), "PNG"))
    with pytest.raises(ValueError, match=r"seven\.png': there is no ink in it"):
        readers["ram"].read(path)


def test_pretrained_models_are_found_by_name_and_read_without_tensorflow():
    assert digits.names() == ["dram_pairs", "ram_28", "stn_rts"]
    code = (
        "import sys, numpy, digits; d = numpy.zeros((90, 90), numpy.uint8); d[20:70, 44:50] = 255\n"
        "print(digits.load('ram_28').read(d).answer, 'tensorflow' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "False"]
    with pytest.raises(RunError, match="no digit model ram_mime: expected a folder or dram_pairs"):
        digits.load("ram_mime")


def test_a_run_has_to_be_published_first(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(RunError, match=r"is a run: `python -m digits\.publish"):
        digits.load(tmp_path)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"surplus": 1}, "surplus"),
        ({"format": 1}, "has format 1, this version reads 2"),
        ({"size": 0}, "got 0"),
        ({"sha256": "0"}, "damaged or was changed"),
    ],
)
def test_a_damaged_model_or_one_of_another_version_is_an_error(tmp_path, change, says):
    folder = publish(tmp_path / "ram", "ram")
    path = folder / MANIFEST
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(RunError, match=says):
        digits.load(folder)
    (folder / GRAPH).unlink()
    with pytest.raises(RunError):
        digits.load(folder)
