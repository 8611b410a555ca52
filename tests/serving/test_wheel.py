"""The light wheel: what it holds, what it needs."""

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import sat_tf
from sat_tf.trained import published, runs
from sat_tf.trained.limits import Limits
from sat_tf.trained.lite import cache
from sat_tf.util.errors import RunError
from serving import wheel
from tests.sat_tf.tiny_runs import contents, png, write_run

WITHOUT = """
import sys
sys.modules["keras"] = sys.modules["tensorflow"] = None  # an import of them fails
import sat_tf
print(sat_tf.load(sys.argv[1]).caption(sys.argv[2]).text)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """A wheel whose graphs are a few bytes."""
    folder = tmp_path_factory.mktemp("wheel")

    def put(captioner: Path, *_: object) -> None:
        (captioner / "step.tflite").write_bytes(b"graph")
        (captioner.parent / "encoder-00.tflite").write_bytes(b"graph")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wheel, "make_graphs", lambda *names: [Path(name) for name in names])
        patch.setattr(wheel, "put_graphs", put)
        patch.setattr(wheel, "TREE", folder / "tree")
        wheel.run(wheel.Arguments(folder, ("flickr8k_soft",)))
    (path,) = folder.glob("sat_tf-*.whl")
    return path


def test_it_holds_graphs_in_place_of_weights(built):
    names = zipfile.ZipFile(built).namelist()
    own = [name for name in names if name.startswith("sat_tf/captioners/flickr8k")]
    assert {name.rpartition("/")[2] for name in own} == {
        "README.md",
        "captioner.json",
        "confidence.json",
        "config.json",
        "step.tflite",
        "vocabulary.json",
    }
    assert all("flickr8k_soft" in name for name in own)
    assert "sat_tf/captioners/encoder-00.tflite" in names
    assert not [name for name in names if "captioners/" in name and name.endswith(".npz")]
    assert not [name for name in names if "__pycache__" in name]
    # Other names, such as `training`, are not taken from whoever installs it.
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"sat_tf"}
    commands = {
        f"sat_tf/_commands/{name}"
        for name in (
            "serving/web/page.html",
            "training/train.py",
            "digits/page/digits.html",
            "digits/shipped/ram_28/weights.npz",
        )
    }
    assert commands | {"sat_tf/trained/viewer/viewer.js"} <= set(names)
    assert built.stat().st_size < 5e6
    with zipfile.ZipFile(built) as archive:
        (listed,) = (name for name in names if name.endswith("top_level.txt"))
        assert archive.read(listed) == b"sat_tf\n"
        (metadata,) = (name for name in archive.namelist() if name.endswith("METADATA"))
        lines = archive.read(metadata).decode().splitlines()
    needed = [line for line in lines if line.startswith("Requires-Dist")]
    always = {re.split("[<>=]", line.split()[1])[0] for line in needed if "extra ==" not in line}
    assert always == {"ai-edge-litert", "numpy", "pillow", "tyro", "filelock", "tqdm"}
    assert any("tensorflow" in line and 'extra == "train"' in line for line in needed)


def test_a_captioner_in_it_captions_without_tensorflow_as_its_weights_do(tmp_path, monkeypatch):
    monkeypatch.delenv(cache.SWITCH)
    monkeypatch.setenv("SAT_TF_CACHE", str(tmp_path / "cache"))
    run = write_run(tmp_path / "run")
    expected = runs.load_captioner(run)
    whole, inside = tmp_path / "whole" / "soft", tmp_path / "wheel" / "soft"
    published.write(whole, contents(run, expected))
    shutil.copytree(whole, inside, ignore=shutil.ignore_patterns("*.npz"))
    (graphs,) = runs.make_graphs(whole)
    wheel.put_graphs(inside, graphs, Limits())
    (tmp_path / "a.png").write_bytes(png())
    command = [sys.executable, "-c", WITHOUT, inside, tmp_path / "a.png"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert done.stdout.strip() == expected.caption(png()).text
    captioner = sat_tf.load(inside)
    with pytest.raises(RunError, match="holds graphs for captions without TensorFlow, and no wei"):
        captioner.model  # noqa: B018


def test_a_captioner_that_does_not_ship_is_named():
    command = [sys.executable, "-m", "serving.wheel", "--captioners", "flickr9k"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "flickr9k" in done.stderr


def test_captions_and_page_need_only_the_packages_of_the_light_wheel():
    absent = ("tensorflow", "keras", "h5py", "grpc", "regex")
    code = f"import sys; sys.modules |= dict.fromkeys({absent}); import training.evaluation.page, "
    code += "training.caption, serving.web.__main__, serving.web.app, serving.web.model_process"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
