"""Graphs that are packed for a wheel take a quarter of the bytes and caption as before."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import sat_tf
from sat_tf.errors import RunError
from sat_tf.trained import published, runs
from sat_tf.trained.lite import cache
from sat_tf.trained.lite.captioner import load
from tests.sat_tf.tiny_runs import PIXELS, contents, png

WITHOUT = """
import sys
sys.modules["keras"] = sys.modules["tensorflow"] = None  # an import of them fails
import sat_tf
print(sat_tf.load(sys.argv[1]).caption(sys.argv[2]).text)
"""


@pytest.fixture(autouse=True)
def _light(monkeypatch, tmp_path):
    monkeypatch.delenv(cache.SWITCH)
    monkeypatch.setenv("SAT_TF_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def whole(run_of, loaded, tmp_path_factory) -> Path:
    """A captioner as it is published, with its weights."""
    folder = tmp_path_factory.mktemp("whole") / "soft"
    published.write(folder, contents(run_of["soft"], loaded["soft"]))
    return folder


@pytest.fixture(scope="module")
def wheel(whole, tmp_path_factory) -> Path:
    """The same captioner as in a wheel, without weights."""
    folder = tmp_path_factory.mktemp("wheel") / "soft"
    shutil.copytree(whole, folder, ignore=shutil.ignore_patterns("*.npz"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SAT_TF_CACHE", str(folder.parent / "cache"))
        (graphs,) = runs.make_graphs(whole)
        published.write_graphs(folder, cache.packed_files(graphs))
    return folder


def same(found, expected) -> bool:
    texts = [(one.text, one.alternatives[0][0]) for one in (found, expected)]
    return texts[0] == texts[1] and np.allclose(found.alpha, expected.alpha, atol=1e-4)


def test_a_wheel_captions_without_tensorflow_as_the_weights_do(wheel, whole, tmp_path):
    (tmp_path / "a.png").write_bytes(png())
    command = [sys.executable, "-c", WITHOUT, wheel, tmp_path / "a.png"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    expected = runs.load_captioner(whole).caption(png())
    assert done.stdout.strip() == expected.text
    captioner = sat_tf.load(wheel)
    assert same(captioner.caption(png()), expected)
    with pytest.raises(RunError, match="holds graphs for captions without TensorFlow, and no wei"):
        captioner.model  # noqa: B018
    assert len(list((tmp_path / "cache" / "graphs").glob("*/graphs.json"))) == 1
    (encoder,) = (tmp_path / "cache" / "graphs").glob("encoder-*.tflite")
    (packed,) = wheel.parent.glob("encoder*.npz")
    plain = (encoder.stat().st_size, packed.stat().st_size)
    assert plain[1] < 0.4 * plain[0]  # of a tiny graph, operations are much


def test_a_cache_that_takes_nothing_does_not_matter(wheel, monkeypatch, tmp_path, caplog):
    expected = sat_tf.load(wheel).caption(PIXELS)
    (tmp_path / "file").touch()
    monkeypatch.setenv("SAT_TF_CACHE", str(tmp_path / "file"))
    for _ in range(2):
        assert same(sat_tf.load(wheel).caption(PIXELS), expected)
    (line,) = caplog.messages
    assert "The graphs are unpacked each time" in line and str(tmp_path / "file") in line


def test_unpacked_graphs_load_as_an_export_does(wheel, tmp_path):
    expected = sat_tf.load(wheel).caption(PIXELS)
    (manifest,) = (tmp_path / "cache" / "graphs").glob("*/graphs.json")
    found = load(manifest.parent)
    assert same(found.caption(PIXELS), expected)
    assert found.settings.digests is None  # the last bits of a graph may be others
    assert runs.graphs_of(wheel)[:3] == (manifest.parent, "soft", manifest.parent.name)


def test_damaged_graphs_are_unpacked_again_and_a_damaged_wheel_is_an_error(wheel, tmp_path):
    expected = sat_tf.load(wheel).caption(PIXELS)
    (step,) = (tmp_path / "cache" / "graphs").glob("*/step.tflite")
    step.write_bytes(b"x" * step.stat().st_size)
    assert same(sat_tf.load(wheel).caption(PIXELS), expected)
    copy = shutil.copytree(wheel.parent, tmp_path / "copy") / "soft"
    packed = copy / published.GRAPHS / "step.tflite.npz"
    packed.write_bytes(packed.read_bytes()[:-9])
    shutil.rmtree(tmp_path / "cache")
    with pytest.raises(RunError, match="step.tflite.npz is damaged or was changed"):
        sat_tf.load(copy)


def rehashed(folder: Path, **graphs: bytes | None) -> None:
    """Replaces the graphs' files that a manifest lists, or takes them out of it."""
    path = folder / published.MANIFEST
    values = json.loads(path.read_text())
    for name, content in graphs.items():
        if content is None:
            del values[published.GRAPHS][name]
            continue
        (folder / published.GRAPHS / name).write_bytes(content)
        values[published.GRAPHS][name] = hashlib.sha256(content).hexdigest()
    path.write_text(json.dumps(values))


@pytest.mark.parametrize(
    "graphs",
    [
        {"../../../own.txt": b"another's"},
        {"..\\own.txt": b"another's"},
        {"step.tflite.npz": None},
        {"captioner.json": b'{"format": 1, "encoder": "../../own.txt"}'},
        {"captioner.json": b"[" * 100_000},
        {"graphs.json": b'{"grid": [4, -4]}'},
        {"graphs.json": b'{"grid": [2, 2]}'},
        {"step.tflite.npz": b"no archive"},
    ],
)
def test_a_folder_does_not_decide_where_its_graphs_go(wheel, tmp_path, graphs):
    (tmp_path / "own.txt").write_text("mine")
    copy = shutil.copytree(wheel.parent, tmp_path / "a" / "copy") / "soft"
    rehashed(copy, **graphs)
    before = {path for path in tmp_path.rglob("*") if "cache" not in path.parts}
    with pytest.raises(RunError):
        sat_tf.load(copy)
    assert (tmp_path / "own.txt").read_text() == "mine"
    assert {path for path in tmp_path.rglob("*") if "cache" not in path.parts} == before


def test_a_folder_cannot_pass_its_graphs_off_as_those_of_others(wheel, whole, tmp_path):
    """Configuration, words and the weights' hashes are the same; the graphs are another's."""
    copy = shutil.copytree(wheel.parent, tmp_path / "copy") / "soft"
    step = (copy / published.GRAPHS / "step.tflite.npz").read_bytes()
    rehashed(copy, **{"start.tflite.npz": step})
    with pytest.raises(RunError, match="do not fit each other"):
        sat_tf.load(copy)
    assert sat_tf.load(wheel).caption(PIXELS).text
    assert sat_tf.load(whole).caption(PIXELS).text  # by its weights, not by what was unpacked


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
        (folder / "graphs.json").write_text('{"files": {}}')
        if number:
            os.utime(folder, 2 * (time.time() + ahead + number,))
    (folder / "graphs.json").write_text('{"files": {"encoder-used.tflite": 0}}')
    for name in ("used", "old"):
        (tmp_path / f"encoder-{name}.tflite").touch()
    cache.forget_old(tmp_path)
    assert [path.name for path in tmp_path.glob("*.tflite")] == ["encoder-used.tflite"]
    kept = {path.parent.name for path in tmp_path.glob("*/graphs.json")}
    assert len(kept) == cache.KEPT and {"0", str(cache.KEPT)} <= kept
