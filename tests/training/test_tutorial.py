"""The tutorial on your own images: every command runs as written."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import keras
import pytest

from tests.training.data.own_images import encoded, photograph, write_files

ROOT = Path(__file__).resolve().parents[2]
TUTORIAL = (ROOT / "docs" / "own_data.md").read_text("utf-8")
# Where Keras keeps the weights it has downloaded: with a file there, it asks no network.
WEIGHTS = "models/mobilenet_v2_weights_tf_dim_ordering_tf_kernels_1.0_224_no_top.h5"
COUNTS = {"train": 16, "dev": 2, "test": 2}


def blocks(language: str) -> list[str]:
    """The fenced blocks of the tutorial in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", TUTORIAL, re.MULTILINE | re.DOTALL)


def write_holiday(folder: Path) -> None:
    """The tutorial's own spreadsheet, and more images until every split has a few."""
    (sheet,) = blocks("csv")
    names = dict.fromkeys(re.findall(r"^(?!image)(.*?),", sheet, re.MULTILINE))
    names |= {f"sea/IMG {n:04d}.jpg": None for n in range(len(names), sum(COUNTS.values()))}
    rows = [f"{name},Two cats sleep on the wall in the sun" for name in names]
    folder.mkdir()
    (folder / "captions.csv").write_text(sheet + "\n".join(rows) + "\n", "utf-8")
    write_files(folder, {name: encoded(photograph(n)) for n, name in enumerate(names)})


@pytest.fixture
def shell(tmp_path):
    """Runs a block in a folder with the tutorial's `holiday`."""
    write_holiday(tmp_path / "holiday")
    (tmp_path / "keras" / "models").mkdir(parents=True)
    network = keras.applications.MobileNetV2(
        weights=None, include_top=False, input_shape=(224, 224, 3)
    )
    network.save(tmp_path / "keras" / WEIGHTS)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    places = {"PATH": path, "PYTHONPATH": str(ROOT), "KERAS_HOME": str(tmp_path / "keras")}
    environment = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}

    def run(block: str) -> subprocess.CompletedProcess:
        done = subprocess.run(
            ["bash", "-e", "-c", block],
            cwd=tmp_path,
            env=environment | places,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{block}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        return done

    return run


@pytest.mark.slow
def test_the_commands_of_the_tutorial_run_as_written(tmp_path, shell):
    commands = blocks("sh")
    modules = [re.search(r"-m (\S+)", command)[1] for command in commands]
    expected = ("inspect", "train", "train", "evaluate", "caption")
    assert modules == [f"training.{name}" for name in expected]
    del commands[1]  # fine-tuning, over a larger encoder
    commands[1] = f"{commands[1].rstrip()} --fit.epochs 2"  # of 20
    write_files(tmp_path / "new_photos", {"1.jpg": encoded(photograph(1))})
    inspected, _, _, captioned = map(shell, commands)

    assert "Ready to train." in inspected.stdout
    report = json.loads((tmp_path / "runs/inspection/folder_soft/inspect.json").read_text("utf-8"))
    assert {name: split["used"] for name, split in report["splits"].items()} == COUNTS
    evaluation = tmp_path / "runs" / "folder_soft" / "evaluation"
    assert (evaluation / "dev" / "index.html").is_file()
    report = json.loads((evaluation / "test" / "report.json").read_text("utf-8"))
    assert report["images"] == COUNTS["test"] and report["skipped"] == {}
    assert captioned.stdout.startswith("holiday/garden/IMG 0101.jpg: ")
    assert len(list((tmp_path / "captions").glob("*.png"))) == 1
    assert (tmp_path / "captions.csv").read_text("utf-8").count("\n") == 2
    # Of TensorFlow's log only what it writes before it knows its level is left.
    said = captioned.stderr.splitlines()
    assert len(said) <= 9, captioned.stderr
    assert all(re.match("WARNING: All log|I0000|.*: This photograph is unlike", s) for s in said), (
        said
    )
