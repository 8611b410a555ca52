"""A captioning run is resumed with the data it was started with, or not at all."""

from __future__ import annotations

import json
import shutil

import pytest

from sat_tf import runs
from sat_tf.run_folder import RunFolder
from sat_tf.vocabulary import Vocabulary
from tests.training.small_runs import train
from training.evaluate.command import main as evaluate
from training.run_state.ownership import (
    BOXES,
    LOCATOR,
    PREDICTIONS,
    Contents,
    check_data,
    read_data_dir,
    write_data,
)

WORDS = Vocabulary.from_captions(["a dot"], min_count=1)
USED = {"train": Contents("1a2b", ("x.jpg",)), "dev": Contents("3c4d")}


@pytest.fixture
def folder(tmp_path) -> RunFolder:
    """The folder of a run that has recorded its data."""
    write_data(RunFolder(tmp_path), WORDS, USED)
    return RunFolder(tmp_path)


@pytest.mark.parametrize(
    ("split", "found", "message"),
    [
        ("train", Contents("5e6f", ("x.jpg",)), "not those of the train split when.*`--data-dir`"),
        ("dev", Contents("5e6f"), "not those of the dev split.*fingerprint 3c4d.*got 5e6f"),
        ("dev", Contents("3c4d", ("y.jpg",)), "1 of the images cannot be read, but could.*'y.jpg'"),
        ("train", Contents("1a2b"), "1 of the images can be read, but not in the train.*'x.jpg'"),
    ],
)
def test_other_images_with_the_same_words_are_refused(folder, split, found, message):
    check_data(folder, WORDS, USED)
    with pytest.raises(runs.RunError, match=message):
        check_data(folder, WORDS, USED | {split: found})


@pytest.mark.parametrize(
    ("teacher", "what"),
    [
        (BOXES, "boxes"),
        (LOCATOR, "maps of a word locator"),
        (PREDICTIONS, "predictions of other captioners"),
    ],
)
def test_other_teachers_are_refused_by_the_name_of_their_flag(folder, teacher, what):
    write_data(folder, WORDS, USED | {teacher: Contents("7a8b")})
    message = f"{what} are not those of the training split when.*Give the same `--{teacher}`, or"
    with pytest.raises(runs.RunError, match=message):
        check_data(folder, WORDS, USED | {teacher: Contents("9c0d")})


def test_other_words_are_refused(folder):
    other = Vocabulary.from_captions(["a zebra"], min_count=1)
    with pytest.raises(runs.RunError, match="words of the training captions differ"):
        check_data(folder, other, USED)


def test_a_run_without_a_record_of_its_data_is_resumed(folder):
    other = USED | {"train": Contents("5e6f")}
    with pytest.raises(runs.RunError):
        check_data(folder, WORDS, other)
    folder.data.unlink()
    check_data(folder, WORDS, other)


@pytest.mark.parametrize("text", ["{", "[]", '{"train": 1}'])
def test_a_damaged_record_of_the_data_is_an_error(folder, text):
    folder.data.write_text(text)
    with pytest.raises(runs.RunError, match="data.json is damaged"):
        check_data(folder, WORDS, USED)


def test_training_compares_its_data_with_the_run_s(soft_run, tmp_path, tiny):
    folder = RunFolder(shutil.copytree(soft_run, tmp_path / "run"))
    known = json.loads(folder.data.read_text())
    assert known["train"]["unreadable"] == [] and len(known["dev"]["fingerprint"]) == 64
    known["train"]["unreadable"] = ["gone.jpg"]
    folder.data.write_text(json.dumps(known))
    with pytest.raises(runs.RunError, match=r"can be read, but not in the train.*'gone.jpg'"):
        train(folder.path, *tiny, "--fit.epochs", "2")


def test_an_evaluation_finds_the_data_where_training_did(photographs, tmp_path, capsys):
    flags = ["--run-dir", str(photographs.run_dir), "--cache-dir", str(photographs.cache_dir)]
    assert evaluate([*flags, "--figures", "1", "--out", str(tmp_path)]) == 0
    assert "flickr8k dev, 3 images" in capsys.readouterr().out
    copy = RunFolder(shutil.copytree(photographs.run_dir, tmp_path / "run"))
    copy.data_dir.write_text("/gone\n")
    assert read_data_dir(copy) is None
    assert evaluate(["--run-dir", str(copy)]) == 2
    assert "--data-dir" in capsys.readouterr().err
