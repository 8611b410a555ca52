"""LiteRT captions images as the SavedModel of the same run does; other folders are refused."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import sat_tf
from sat_tf import captioner as captioner_module
from sat_tf.config import SearchConfig
from sat_tf.inference.litert_captioner import (
    ENCODER,
    FORMAT,
    GRAPHS,
    SETTINGS,
    VOCABULARY,
    Settings,
    read_settings,
)
from sat_tf.util.errors import RunError
from serving.export_litert import export
from serving.litert import load

IMAGES = 4
SIZES = dict.fromkeys(GRAPHS, 3)
DIGESTS = dict.fromkeys((*GRAPHS, VOCABULARY), "")
SETTING = Settings(
    32, "crop", (4, 4), SearchConfig(3, 0.7, max_length=6), "float32", SIZES, ENCODER, DIGESTS
)


def served(version: Path, files: list[bytes]) -> dict[str, np.ndarray]:
    """Outputs of a SavedModel."""
    signatures = tf.saved_model.load(str(version)).signatures
    outputs = signatures["serving_default"](image_bytes=tf.constant(files))
    return {name: value.numpy() for name, value in outputs.items()}


@pytest.mark.parametrize(
    "kind", ["soft", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("hard", "none"))]
)
def test_captions_equal_those_of_the_saved_model(litert_exports, exports, images, kind):
    captioner = load(litert_exports(kind))
    expected = served(exports[kind].version, images.files[:IMAGES])
    for row, content in enumerate(images.files[:IMAGES]):
        caption = captioner.caption(content)
        pairs = [(caption.text, caption.score), *caption.alternatives]
        texts, scores = zip(*pairs, strict=True)
        assert list(texts) == [text.decode() for text in expected["captions"][row]]
        np.testing.assert_allclose(scores, expected["scores"][row], atol=1e-4)
        length = expected["lengths"][row, 0]
        written = [word.decode() for word in expected["words"][row, 0]]
        assert written == [*caption.words, *[""] * (len(written) - length)]
        log_probs = expected["word_log_probs"][row]
        np.testing.assert_allclose(caption.log_probs, log_probs[:length], atol=1e-4)
        np.testing.assert_allclose(caption.log_prob, log_probs.sum(), atol=1e-4)
        if kind == "none":
            assert caption.alpha is None and caption.beta is None
            continue
        np.testing.assert_allclose(caption.alpha, expected["attention"][row, :length], atol=1e-4)
        np.testing.assert_allclose(caption.beta, expected["beta"][row, :length], atol=1e-4)


def test_a_narrow_layer_is_in_the_graphs_of_a_beam_that_is_not_projected(
    exports, images, tmp_path, monkeypatch
):
    """As in `folder_from_flickr8k`: more locations than the beam is expected to read."""
    captioner = exports["hard"].captioner
    assert captioner.config.decoder.bottleneck_dim is not None
    expected = captioner.caption(images.files[0])
    monkeypatch.setattr(captioner_module, "CAPTION_WORDS", 0)
    found = load(export(captioner, tmp_path)).caption(images.files[0])
    assert found.text == expected.text
    np.testing.assert_allclose(found.alpha, expected.alpha, atol=1e-4)


def test_sat_tf_loads_an_export_as_it_loads_a_run(litert_exports, exports, images):
    folder = litert_exports("hard")
    captioner, expected = sat_tf.load(folder), exports["hard"].captioner
    assert captioner.config.attention.inference == "argmax" and captioner.grid == expected.grid
    assert captioner.config.search == expected.config.search
    for found in (captioner.caption(images.files[0]), load(folder).caption(images.files[0])):
        assert found.text == expected.caption(images.files[0]).text
    with pytest.raises(RunError, match="holds graphs for captions without TensorFlow, and no wei"):
        captioner.annotate(np.zeros([1, 32, 32, 3]))


@pytest.mark.parametrize("precision", ["float16", "int8"])
def test_smaller_weights_caption_too(litert_exports, images, precision):
    captioner, exact = load(litert_exports(precision)), load(litert_exports("soft"))
    assert captioner.settings.precision == precision
    caption, expected = (c.caption(images.files[0]) for c in (captioner, exact))
    assert caption.words and np.isfinite(caption.score)
    np.testing.assert_allclose(caption.alpha.sum(axis=(1, 2)), 1.0, atol=1e-4)
    assert abs(caption.score - expected.score) < 1.0


def test_a_damaged_graph_and_the_vocabulary_of_another_export_are_errors(litert_exports, tmp_path):
    folder = shutil.copytree(litert_exports("soft"), tmp_path / "export")
    load(folder)
    vocabulary = json.loads((folder / VOCABULARY).read_text())
    vocabulary["words"][-2:] = reversed(vocabulary["words"][-2:])
    (folder / VOCABULARY).write_text(json.dumps(vocabulary))
    with pytest.raises(ValueError, match=f"{VOCABULARY} is not the file that this export was"):
        load(folder)
    shutil.copy(litert_exports("soft") / VOCABULARY, folder)
    (folder / "step.tflite").write_bytes(b"x" * (folder / "step.tflite").stat().st_size)
    with pytest.raises(ValueError, match=r"step.tflite cannot be read by LiteRT: "):
        load(folder)


@pytest.fixture
def folder(tmp_path):
    """A folder whose graphs nobody can read."""
    made = tmp_path / "litert" / "1"
    made.mkdir(parents=True)
    for name in (*GRAPHS, VOCABULARY):
        (made / name).write_bytes(b"abc")
    (made / SETTINGS).write_text(SETTING.to_json())
    return made


OTHER = [{"format": version, "new": 1} for version in (FORMAT + 1, FORMAT - 1, None, "x")]
DAMAGED = [{"beam": 0}, {"forbidden": None}, {"sizes": None}]


@pytest.mark.parametrize("change", [*OTHER, *DAMAGED])
def test_settings_of_another_version_or_wrong_ones_say_what_to_do(folder, change):
    values = json.loads((folder / SETTINGS).read_text()) | change
    (folder / SETTINGS).write_text(json.dumps(values))
    says = f"{SETTINGS} is damaged: .*[^.][.] Write one with"
    if "format" in change:
        says = f"format {change['format']}, and .* reads format {FORMAT}. Export"
    with pytest.raises(ValueError, match=says):
        read_settings(folder)


@pytest.mark.parametrize("name", [*GRAPHS, VOCABULARY])
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(ValueError, match=f"not whole: {name} is missing. Copy or export"):
        read_settings(folder)


def test_other_folders_are_told_apart(folder, tmp_path):
    with pytest.raises(ValueError, match="there is no such folder"):
        read_settings(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=f"{SETTINGS} is missing. Write one"):
        read_settings(tmp_path)
    (tmp_path / "saved_model.pb").touch()
    with pytest.raises(ValueError, match="a SavedModel for TensorFlow Serving"):
        read_settings(tmp_path)


def test_of_a_folder_of_versions_the_newest_is_loaded(litert_exports, tmp_path):
    for number in ("2", "10"):
        shutil.copytree(litert_exports("soft"), tmp_path / number)
    assert sat_tf.load(tmp_path).path == tmp_path / "10"


def test_savedmodels_are_no_captioners_and_say_what_to_name(tmp_path):
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "saved_model.pb").touch()
    with pytest.raises(RunError, match="SavedModels for TensorFlow Serving: name their run"):
        sat_tf.load(tmp_path)
