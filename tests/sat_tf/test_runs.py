"""Loading and saving of runs: what was saved comes back, or a clear error."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest

import sat_tf
from sat_tf import runs, weights
from sat_tf.run_folder import RunFolder
from sat_tf.vocabulary import Vocabulary
from tests.full_disk import full_disk
from tests.sat_tf.tiny_runs import CAPTIONS, PIXELS, write_run


@pytest.fixture
def copy(run_of, tmp_path) -> RunFolder:
    return RunFolder(shutil.copytree(run_of["soft"], tmp_path / "run"))


def test_a_run_loads_without_the_weights_file_of_its_encoder(run_of, loaded):
    again = sat_tf.load(str(run_of["soft"]))
    assert again.path == run_of["soft"] and not Path("gone.weights.h5").exists()
    mine, theirs = again.caption(PIXELS), loaded["soft"].caption(PIXELS)
    assert mine.text == theirs.text and mine.score == pytest.approx(theirs.score)


def test_saving_leaves_whole_files_only(copy, loaded):
    weights.save_weights(loaded["soft"].model, copy.best_weights)
    assert {path.name for path in copy.path.iterdir()} == {
        "best.weights.h5",
        "config.json",
        "vocabulary.json",
    }


def test_a_full_disk_is_a_clear_error_and_leaves_the_old_weights(copy, loaded):
    old = (copy.best_weights).read_bytes()
    message = "best.weights.h5: File too large.*make room"
    with full_disk(), pytest.raises(runs.RunError, match=message):
        weights.save_weights(loaded["soft"].model, copy.best_weights)
    assert (copy.best_weights).read_bytes() == old
    assert len(list(copy.path.iterdir())) == 3


def test_a_folder_that_is_no_run_is_an_error(tmp_path):
    with pytest.raises(runs.RunError, match="is not a run: it has no config.json"):
        sat_tf.load(tmp_path)
    with pytest.raises(runs.RunError, match="There is no run folder .*nowhere, and no model of"):
        sat_tf.load(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("missing", "said"),
    [("best.weights.h5", "has not finished an epoch"), ("vocabulary.json", "vocabulary.json")],
)
def test_a_run_without_weights_or_vocabulary_is_an_error(copy, missing, said):
    (copy.path / missing).unlink()
    with pytest.raises(runs.RunError, match=said):
        sat_tf.load(copy)


@pytest.mark.parametrize("name", ["config.json", "vocabulary.json"])
@pytest.mark.parametrize("text", ["{", "[]", '{"encoder": {"colour": 1}}'])
def test_a_damaged_file_is_an_error_that_names_it(copy, name, text):
    (copy.path / name).write_text(text)
    with pytest.raises(runs.RunError, match=name):
        sat_tf.load(copy)


def test_a_configuration_of_another_version_says_what_to_do(copy):
    values = json.loads(copy.config.read_text())
    values["attention"]["kindness"] = 1
    copy.config.write_text(json.dumps(values))
    with pytest.raises(runs.RunError, match="this version: .*`attention.kindness`.*train the run"):
        sat_tf.load(copy)


@pytest.mark.parametrize("other", [{"kind": "soft", "hidden_dim": 5}, {"kind": "none"}])
def test_weights_of_another_width_or_kind_of_attention_are_an_error(copy, tmp_path, other):
    shutil.copy(RunFolder(write_run(tmp_path / "other", **other)).best_weights, copy)
    with pytest.raises(runs.RunError, match="do not fit"):
        sat_tf.load(copy)


def test_weights_of_more_words_than_the_vocabulary_has_are_an_error(copy):
    Vocabulary.from_captions(CAPTIONS[:1], min_count=1).save(copy.vocabulary)
    with pytest.raises(runs.RunError, match="do not fit"):
        sat_tf.load(copy)


def test_a_captioner_names_the_weights_it_was_loaded_from_when_training_replaces_them(copy):
    before = hashlib.sha256(copy.best_weights.read_bytes()).hexdigest()
    captioner = sat_tf.load(copy)
    copy.best_weights.write_bytes(b"those of the next epoch")
    assert captioner.weights_sha256 == before != copy.weights_sha256()
    assert sat_tf.load("flickr8k_none").weights_sha256 is None


@pytest.mark.parametrize("size", [0, 100, 9000])
def test_weights_cut_short_are_an_error(copy, size):
    path = copy.best_weights
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(runs.RunError, match="do not fit"):
        sat_tf.load(copy)
