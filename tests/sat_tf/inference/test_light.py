"""Captions over graphs are those of TensorFlow; what does not belong together is refused."""

import io
import itertools
import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

import sat_tf
from sat_tf.config import SearchConfig
from sat_tf.inference import load as loading
from sat_tf.inference import published
from sat_tf.inference.keras_captioner import KerasCaptioner
from sat_tf.inference.litert_captioner import LiteRTCaptioner, copy_graphs
from sat_tf.inference.run_folder import RunFolder
from sat_tf.util.errors import RunError
from tests.image_files import encode, exif_of, smooth
from tests.sat_tf.tiny_runs import PIXELS, png

ALONE = """
import sys
sys.modules["keras"] = sys.modules["tensorflow"] = None  # an import of them fails
import sat_tf
captioner = sat_tf.load(sys.argv[1])
print(captioner.caption(sys.argv[2]).text)
home = sat_tf.__file__.removesuffix("__init__.py")
files = {getattr(module, "__file__", None) or "" for module in [*sys.modules.values()]}
own = [len([*open(file)]) for file in files if file.startswith(home)]
print(len(own), sum(own))
try:
    sat_tf.load(sys.argv[1], engine="keras")
except ValueError as error:
    print(error)
"""


@pytest.mark.parametrize("kind", ["soft", "hard"])
def test_captions_over_graphs_equal_those_of_tensorflow(light, loaded, kind):
    captioner = sat_tf.load(light[kind])
    assert isinstance(captioner, LiteRTCaptioner) and isinstance(loaded[kind], KerasCaptioner)
    photo = encode(smooth(), "JPEG", exif=exif_of(6))
    searches: list[SearchConfig | None] = [None]
    if kind == "soft":  # of fewer and of more hypotheses than the graph has rows
        searches += [SearchConfig(beam=1, max_length=4), SearchConfig(beam=7, max_length=5)]
    for image in (PIXELS, png(), photo):
        for search in searches:
            found, expected = (c.caption(image, search) for c in (captioner, loaded[kind]))
            assert found.text == expected.text and found.words == expected.words
            assert [t for t, _ in found.alternatives] == [t for t, _ in expected.alternatives]
            np.testing.assert_allclose(found.score, expected.score, atol=1e-3)
            np.testing.assert_allclose(found.log_probs, expected.log_probs, atol=1e-3)
            np.testing.assert_allclose(found.alpha, expected.alpha, atol=1e-3)
            np.testing.assert_allclose(found.beta, expected.beta, atol=1e-3)
    hypotheses = captioner.beam(PIXELS)
    for one, other in zip(hypotheses, loaded[kind].beam(PIXELS), strict=True):
        assert one.text == other.text
        np.testing.assert_allclose(one.alpha, other.alpha, atol=1e-3)
    assert [t for t, _ in hypotheses[0].alternatives] == [h.text for h in hypotheses[1:]] != []
    assert captioner.grid == loaded[kind].grid
    assert captioner.config.search == loaded[kind].config.search
    with pytest.raises(RunError, match="has no model: load it with `engine='keras'`"):
        _ = captioner.model


@pytest.mark.parametrize("way", ["graphs", "model"])
def test_a_list_is_captioned_as_its_images_are_and_the_unreadable_one_is_named(
    light, loaded, tmp_path, caplog, way
):
    captioner = sat_tf.load(light["soft"]) if way == "graphs" else loaded["soft"]
    names = [tmp_path / f"{name}.png" for name in "abc"]
    for path, content in zip(names, (png(), b"no image", encode(smooth(), "PNG")), strict=True):
        path.write_bytes(content)
    cut = Image.open(io.BytesIO(encode(smooth(), "PNG")[:-200]))  # read when it is needed
    found = captioner.caption([*names, PIXELS, b"", cut])
    assert found[1] is found[4] is found[5] is None  # the others keep their places
    alone = [captioner.caption(image) for image in (names[0], names[2], PIXELS)]
    for one, other in zip([found[0], found[2], found[3]], alone, strict=True):
        assert one.text == other.text and abs(one.score - other.score) < 1e-5
    said = [record.getMessage() for record in caplog.records]
    assert said[0].startswith(f"Skipped {names[1]}: Cannot read the image")
    assert all(said[n].startswith(f"Skipped image {n + 4}: Cannot read") for n in (1, 2))
    assert said[3] == "3 of 6 images have no caption." and len(said) == 4
    assert captioner.caption([]) == []
    with pytest.raises(ValueError, match="`image`: expected uint8 pixels"):
        captioner.caption([PIXELS, PIXELS / 255])


def test_a_folder_is_captioned_without_holding_it(light, tmp_path, caplog):
    captioner = sat_tf.load(light["soft"])
    for name, content in (("b", png()), ("a/c", png()), ("x", b"no image")):
        (tmp_path / "in" / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / "in" / f"{name}.png").write_bytes(content)
    pairs = list(captioner.captions(tmp_path / "in"))
    assert [path.name for path, _ in pairs] == ["b.png", "c.png"]
    assert {caption.text for _, caption in pairs} == {captioner.caption(png()).text}
    assert caplog.messages[-1] == "1 of 3 images have no caption."
    taken = []
    endless = (taken.append(n) or PIXELS for n in itertools.count())
    captions = captioner.captions(endless)
    assert next(captions)[1].text and next(captions)[1].text
    captions.close()
    assert len(taken) < 10
    with pytest.raises(ValueError, match="has no images"):
        captioner.captions(light["soft"] / "graphs")


def test_captioners_with_the_same_encoder_share_it():
    soft, hard = sat_tf.load("flickr8k_soft"), sat_tf.load("flickr8k_hard")
    assert soft._encode is hard._encode


def test_a_pretrained_captioner_gives_the_same_caption_as_its_plain_graphs(tmp_path):
    captioner = sat_tf.load("flickr8k_soft")
    copy_graphs(captioner, tmp_path / "graphs")
    plain = sat_tf.load(tmp_path / "graphs")
    found, expected = (c.caption(smooth()) for c in (plain, captioner))
    assert (found.text, found.score, found.tokens) == (
        expected.text,
        expected.score,
        expected.tokens,
    )
    assert found.familiarity == expected.familiarity is not None
    assert found.confidence == expected.confidence is not None
    with pytest.raises(RunError, match="holds graphs for captions and no weights"):
        sat_tf.load(tmp_path / "graphs", engine="keras")


@pytest.mark.parametrize("name", ["soft", "flickr8k_soft"])
def test_a_caption_takes_no_tensorflow_and_little_code(light, tmp_path, name):
    (tmp_path / "a.png").write_bytes(png())
    command = [sys.executable, "-c", ALONE, light.get(name, name), tmp_path / "a.png"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    text, used, error = done.stdout.splitlines()
    assert text == sat_tf.load(light.get(name, name)).caption(png()).text
    files, lines = map(int, used.split())
    assert files <= 26 and lines <= 4000  # an upper limit, so that it does not creep up
    assert "needs TensorFlow: pip install" in error


def other_words(run: RunFolder) -> None:
    values = json.loads(run.vocabulary.read_text())
    values["words"][-2:] = reversed(values["words"][-2:])
    run.vocabulary.write_text(json.dumps(values))


def other_weights(run: RunFolder) -> None:
    run.best_weights.write_bytes(run.best_weights.read_bytes() + b"x")


def other_marker(**changes):
    def change(run: RunFolder) -> None:
        path = run.graphs / published.MANIFEST
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return change


def damaged(name: str):
    return lambda run: (run.graphs / name).write_bytes(b"x" * 100)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            other_weights,
            "graphs is of other weights or words than the run: `python -m serving.export_lit",
        ),
        (other_words, "graphs is of other weights or words than the run: "),
        (other_marker(format=1), "has the format 1, and this version of sat_tf reads 2: make the"),
        (other_marker(grid=[1, 16]), "is damaged .its checksum differs.: copy or make the whole"),
        (damaged("step.tflite"), "step.tflite is damaged or was changed: expected the SHA-256"),
        (damaged("config.json"), "config.json is damaged or was changed"),
        (lambda run: (run.graphs / "start.tflite").unlink(), "is incomplete: it has no start.tfl"),
    ],
)
def test_graphs_that_do_not_belong_to_a_run_are_refused(light, tmp_path, change, says):
    run = RunFolder(shutil.copytree(light["soft"], tmp_path / "run"))
    change(run)
    with pytest.raises(RunError, match=says):
        sat_tf.load(run.path)


def test_a_folder_of_graphs_without_its_marker_is_none(light, tmp_path):
    run = RunFolder(shutil.copytree(light["soft"], tmp_path / "run"))
    (run.graphs / published.MANIFEST).unlink()
    assert isinstance(sat_tf.load(run.path), KerasCaptioner)
    with pytest.raises(RunError, match="has no graphs: `python -m serving.export_litert"):
        sat_tf.load(run.path, engine="litert")


def test_a_machine_without_litert_takes_the_model_and_says_so(light, monkeypatch, caplog):
    monkeypatch.setattr(loading, "find_spec", lambda name: None)
    assert isinstance(sat_tf.load(light["soft"]), KerasCaptioner)
    assert caplog.messages == [
        "LiteRT is not installed: captions take TensorFlow, which is slow to start."
    ]
    with pytest.raises(RunError, match="needs LiteRT: `pip install ai-edge-litert`"):
        sat_tf.load(light["soft"], engine="litert")
