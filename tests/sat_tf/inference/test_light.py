"""Captions over graphs are those of TensorFlow; graphs are found, checked and made again."""

import io
import itertools
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

import sat_tf
from sat_tf.config import SearchConfig
from sat_tf.inference import cache
from sat_tf.inference import load as runs
from sat_tf.inference.run_folder import RunFolder
from sat_tf.util.errors import RunError
from tests.image_files import encode, exif_of, smooth
from tests.sat_tf.tiny_runs import PIXELS, png

LATER = """
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
    captioner.model
except ValueError as error:
    print(error)
"""


@pytest.fixture(autouse=True)
def _light(monkeypatch, tmp_path):
    """Graphs are used, from a cache that is empty unless a test fills it."""
    monkeypatch.delenv(cache.SWITCH)
    monkeypatch.setenv("SAT_TF_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def started(monkeypatch) -> list[Path]:
    """Folders whose graphs would be made behind a caption; nothing is made."""
    paths = []
    monkeypatch.setattr(cache, "make_behind", lambda made, name: paths.append(Path(made[-1])))
    return paths


@pytest.fixture
def filled(graphs_made, tmp_path) -> Path:
    """The graphs, in a cache of the test's own."""
    return shutil.copytree(graphs_made, tmp_path / "cache") / "graphs"


@pytest.mark.parametrize("kind", ["soft", "hard"])
def test_captions_over_graphs_equal_those_of_tensorflow(filled, run_of, loaded, kind):
    captioner = sat_tf.load(run_of[kind])
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
    assert captioner._model is None
    assert captioner.grid == loaded[kind].grid and captioner.config == loaded[kind].config
    assert captioner.model.encoder.grid == captioner.grid  # and what needs the model loads it


@pytest.mark.parametrize("way", ["graphs", "model"])
def test_a_list_is_captioned_as_its_images_are_and_the_unreadable_one_is_named(
    filled, run_of, loaded, tmp_path, caplog, way
):
    captioner = sat_tf.load(run_of["soft"]) if way == "graphs" else loaded["soft"]
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


def test_a_folder_is_captioned_without_holding_it(filled, run_of, tmp_path, caplog):
    captioner = sat_tf.load(run_of["soft"])
    for name, content in (("b", png()), ("a/c", png()), ("x", b"no image")):
        (tmp_path / "in" / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / "in" / f"{name}.png").write_bytes(content)
    pairs = list(captioner.captions_of(tmp_path / "in"))
    assert [path.name for path, _ in pairs] == ["b.png", "c.png"]
    assert {caption.text for _, caption in pairs} == {captioner.caption(png()).text}
    assert caplog.messages[-1] == "1 of 3 images have no caption."
    taken = []
    endless = (taken.append(n) or PIXELS for n in itertools.count())
    captions = captioner.captions_of(endless)
    assert next(captions)[1].text and next(captions)[1].text
    captions.close()
    assert len(taken) < 10
    with pytest.raises(ValueError, match="has no images"):
        captioner.captions_of(tmp_path / "cache" / "graphs")


def test_captioners_with_the_same_encoder_share_its_graph_and_its_work(filled):
    # The tiny runs have encoders of the same weights.
    assert len(list(filled.glob("encoder-*.tflite"))) == 1
    assert not list(filled.glob("*/encoder.tflite"))
    one, other = (cache.find(path.parent.name) for path in filled.glob("*/captioner.json"))
    encoder = one._encode
    assert other._encode is encoder
    pixels, graph, runs_of_it = np.zeros([32, 32, 3], np.float32), encoder._graph, []
    encoder._graph = lambda **inputs: runs_of_it.append(1) or graph(**inputs)
    for captioner in (one, other, one):
        captioner.beam(pixels)
    assert len(runs_of_it) == 1
    for value in range(1, encoder.KEPT + 1):
        one.beam(pixels + value)
    one.beam(pixels)  # forgotten by now
    assert len(runs_of_it) == 2 + encoder.KEPT


def test_other_choices_of_a_location_take_the_model(filled, run_of, loaded):
    captioner, other = sat_tf.load(run_of["hard"]), sat_tf.load(run_of["hard"])
    captioner.set_inference("argmax")
    assert captioner.caption(PIXELS).score != other.caption(PIXELS).score
    assert captioner.model.selection == "argmax" and other._model is None
    with pytest.raises(ValueError, match="inference"):
        captioner.set_inference("guess")


def test_without_tensorflow_graphs_caption_and_the_rest_refuses(filled, run_of, loaded, tmp_path):
    (tmp_path / "a.png").write_bytes(png())
    command = [sys.executable, "-c", LATER, run_of["soft"], tmp_path / "a.png"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    text, used, error = done.stdout.splitlines()
    assert text == loaded["soft"].caption(png()).text
    files, lines = map(int, used.split())
    assert files <= 25 and lines <= 5000  # an upper limit, so that it does not creep up
    assert "that it makes once: `pip install tensorflow keras`" in error


def test_the_first_caption_has_the_graphs_made_once(run_of, loaded, started):
    captioner = sat_tf.load(run_of["soft"])
    assert started == []
    texts = {captioner.caption(PIXELS).text for _ in range(2)}
    assert texts == {loaded["soft"].caption(PIXELS).text} and started == [run_of["soft"]]


def test_damaged_graphs_are_made_again(filled, run_of):
    (folder,) = runs.make_graphs(run_of["soft"])
    for damaged in (folder / "step.tflite", *filled.glob("encoder-*.tflite")):
        whole = damaged.read_bytes()
        damaged.write_bytes(whole[:99] + bytes([whole[99] ^ 1]) + whole[100:])
        assert runs.graphs_missing(run_of["soft"])
        if damaged.parent == folder:  # the other alone is damaged then
            damaged.write_bytes(whole)
            assert not runs.graphs_missing(run_of["soft"])
    assert runs.make_graphs(run_of["soft"]) == [folder] and cache.find(folder.name)


def test_graphs_of_new_weights_and_of_another_version_are_made(
    filled, run_of, started, tmp_path, monkeypatch
):
    changed = RunFolder(shutil.copytree(run_of["soft"], tmp_path / "run"))
    shutil.copy(RunFolder(run_of["hard"]).best_weights, changed.best_weights)
    assert runs.graphs_missing(changed.path) and not runs.graphs_missing(run_of["soft"])
    monkeypatch.setattr(cache, "VERSION", cache.VERSION + 1)
    assert runs.graphs_missing(run_of["soft"])


def test_of_two_processes_the_second_finds_what_the_first_made(run_of, monkeypatch):
    made = []
    monkeypatch.setattr(cache, "make", lambda captioner, name: made.append(name))
    with ThreadPoolExecutor(1) as others:
        with cache.turn():
            other = others.submit(runs.make_graphs, run_of["soft"])
            with pytest.raises(TimeoutError):
                other.result(1.0)
            monkeypatch.setattr(cache, "folder_of", Path)
        assert other.result() != [None]
    assert not made


def test_a_captioner_that_litert_cannot_hold_is_not_tried_again(loaded, monkeypatch, tmp_path):
    def fail(*_):
        raise ValueError("no such operation")

    from sat_tf.inference import graphs

    monkeypatch.setattr(graphs, "write_graphs", fail)
    with cache.turn():
        assert cache.make(loaded["soft"], "name") is None
    assert cache.make_behind([], "name") is None
    assert [path.name for path in (tmp_path / "cache" / "graphs").glob("*.failed")]


def test_a_cache_that_takes_no_graphs_is_named_in_one_line(monkeypatch, tmp_path, caplog):
    full = SimpleNamespace(free=2**20)
    monkeypatch.setattr(cache.shutil, "disk_usage", lambda _: full)
    assert cache.make_behind([], "name") is None
    (tmp_path / "file").touch()
    monkeypatch.setenv("SAT_TF_CACHE", str(tmp_path / "file"))
    for _ in range(2):
        assert cache.make_behind([], "name") is None
    disk, line = caplog.messages
    assert "the disk is full" in disk
    assert "their graphs cannot be kept in" in line and str(tmp_path / "file") in line


def test_what_a_killed_process_left_goes_in_the_next_turn(tmp_path):
    home = tmp_path / "cache" / "graphs"
    (home / ".draft-x" / "made").mkdir(parents=True)
    (home / ".draft-x" / "made" / "step.tflite").write_bytes(b"half")
    (home / ".sat_tf.x.tmp").write_bytes(b"half an encoder")
    with cache.turn():
        assert [path.name for path in home.iterdir()] == [".lock"]


@pytest.mark.parametrize("ahead", [-1000, 30 * 86400])
def test_graphs_are_kept_by_their_last_use_though_the_clock_was_set_back(tmp_path, ahead):
    for number in range(cache.KEPT + 1):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "captioner.json").write_text("{}")
        if number:
            os.utime(folder, 2 * (time.time() + ahead + number,))
    (folder / "captioner.json").write_text(
        '{"encoder": "encoder-used.tflite", "digests": {"encoder-used.tflite": ""}}'
    )
    for name in ("used", "old"):
        (tmp_path / f"encoder-{name}.tflite").touch()
    cache.forget_old(tmp_path)
    assert [path.name for path in tmp_path.glob("*.tflite")] == ["encoder-used.tflite"]
    kept = {path.parent.name for path in tmp_path.glob("*/captioner.json")}
    assert len(kept) == cache.KEPT and {"0", str(cache.KEPT)} <= kept


def test_litert_takes_no_more_threads_than_the_process_has_cores(monkeypatch):
    for cores in (1, 3):
        monkeypatch.setattr(
            os, "sched_getaffinity", lambda _, n=cores: set(range(n)), raising=False
        )
        assert cache.threads() == cores


def test_without_litert_tensorflow_captions_and_one_line_says_so(run_of, monkeypatch, caplog):
    monkeypatch.setattr(cache, "find_spec", lambda _: None)
    captioner = sat_tf.load(run_of["soft"])
    assert captioner.caption(PIXELS).text and not cache.usable(captioner.config)
    (line,) = caplog.messages
    assert "`pip install ai-edge-litert`" in line
    with pytest.raises(RunError, match="soft cannot caption without TensorFlow: LiteRT is not"):
        runs.graphs_of(run_of["soft"])
