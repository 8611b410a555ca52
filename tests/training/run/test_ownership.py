"""A run's folder is refused to another configuration, other data, and a second process."""

import dataclasses
import json
import warnings
from pathlib import Path

import pytest

from sat_tf.inference import load as runs
from sat_tf.inference.run_folder import RunFolder, read_vocabulary
from sat_tf.text.vocabulary import Vocabulary
from sat_tf.util import files
from sat_tf.util.fields import to_dict
from tests.training.run.stopped_runs import Killed, die_after, lock_holder
from tests.training.small_runs import check_run_dir, train
from training.run.ownership import BOXES, PREDICTIONS, Contents, claim, data_records, exclusive_lock
from training.train import main, parse

WORDS = Vocabulary.from_captions(["a dot"], min_count=1)


def claimed(run_dir: Path, *flags: str) -> None:
    """Makes a folder that of a run with a vocabulary as its data."""
    config = parse([*flags]).config
    claim(run_dir, json.dumps(to_dict(config)), data_records(RunFolder(run_dir), WORDS, {}, 1))


def test_a_folder_of_another_configuration_is_refused_naming_the_key(tmp_path):
    run_dir, other = tmp_path / "run", ("--decoder.hidden_dim", "99")
    claimed(run_dir)
    check_run_dir(run_dir)
    with pytest.raises(runs.RunError, match=r"`decoder.hidden_dim` is 256 there and 99 here"):
        check_run_dir(run_dir, *other)
    with pytest.raises(runs.RunError, match=r"`decoder.hidden_dim`"):
        train(run_dir, *other)
    (run_dir / "best.weights.h5").touch()  # finished, perhaps: nobody is told to remove it
    with pytest.raises(runs.RunError, match="`--init-from .* its best weights") as error:
        check_run_dir(run_dir, *other)
    assert "remove" not in str(error.value)
    assert json.loads((run_dir / "config.json").read_text())["decoder"]["hidden_dim"] == 256


def test_a_run_may_be_given_more_epochs_but_not_fewer(tmp_path):
    claimed(tmp_path, "--fit.epochs", "5")
    check_run_dir(tmp_path, "--fit.epochs", "6")
    with pytest.raises(runs.RunError, match=r"`fit.epochs` is 5 there and 4 here"):
        check_run_dir(tmp_path, "--fit.epochs", "4")


def test_more_epochs_than_a_cosine_was_planned_for_are_a_warning(tmp_path):
    planned = ("--recipe", "scenes_soft", "--fit.epochs")
    claimed(tmp_path, *planned, "2")
    with pytest.warns(UserWarning, match="2 epochs become 4: .* jumps.*--init-from"):
        check_run_dir(tmp_path, *planned, "4")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_run_dir(tmp_path, *planned, "2")


def test_best_weights_without_a_checkpoint_are_not_trained_over(tmp_path):
    claimed(tmp_path)
    (tmp_path / "checkpoints" / "epoch-001").mkdir(parents=True)
    (tmp_path / "best.weights.h5").touch()
    check_run_dir(tmp_path)
    (tmp_path / "checkpoints" / "epoch-001").rmdir()
    for flags in ((), ("--fit.epochs", "99")):
        with pytest.raises(runs.RunError, match="no checkpoint to resume from") as error:
            check_run_dir(tmp_path, *flags)
        for way in ("--run-dir", f"--init-from {tmp_path}"):
            assert way in str(error.value)
    (tmp_path / "best.weights.h5").unlink()
    check_run_dir(tmp_path)


@pytest.mark.parametrize("call", [1, 2])
def test_a_kill_while_the_folder_is_claimed_leaves_it_to_the_same_command(
    tmp_path, monkeypatch, call
):
    with monkeypatch.context() as patch:
        die_after(patch, files, "sync", call)
        patch.setattr(Path, "unlink", lambda *_, **__: None)  # a killed process cleans nothing up
        with pytest.raises(Killed):
            claimed(tmp_path)
    assert len(list(tmp_path.glob(".*.tmp"))) == 1
    check_run_dir(tmp_path)
    claimed(tmp_path)
    names = ["config.json", "data.json", "vocabulary.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_a_folder_that_is_no_run_is_refused_and_an_empty_one_taken(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    (tmp_path / "empty").mkdir()
    with pytest.raises(runs.RunError, match="not empty and not a run.*`--run-dir`"):
        train(tmp_path / "full")
    assert [p.name for p in (tmp_path / "full").iterdir()] == ["thesis.txt"]
    check_run_dir(tmp_path / "empty")


# The lock.


def test_a_second_process_is_turned_away_at_once(tmp_path, tiny, capsys):
    run_dir = tmp_path / "run"
    with exclusive_lock(run_dir):
        assert main([*tiny, "--run-dir", str(run_dir), "--cache-dir", str(tmp_path / "cache")]) == 2
        assert [path.name for path in run_dir.iterdir()] == [".lock"]
    said = capsys.readouterr().err
    assert said.startswith(f"Error: {run_dir} is in use: another process trains in it.")
    assert "`--run-dir`" in said
    with exclusive_lock(run_dir):
        pass


def test_the_lock_goes_with_a_killed_process(tmp_path):
    with (
        lock_holder(RunFolder(tmp_path).lock),
        pytest.raises(runs.RunError, match="in use"),
        exclusive_lock(tmp_path),
    ):
        pass
    with exclusive_lock(tmp_path):
        pass


# Records of what a run was made from.

USED = {"train": Contents("1a2b", ("x.jpg",)), "dev": Contents("3c4d")}


@pytest.fixture
def folder(tmp_path) -> RunFolder:
    """The folder of a run that has recorded its data."""
    claim(tmp_path, "{}", data_records(RunFolder(tmp_path), WORDS, USED, 1))
    return RunFolder(tmp_path)


@pytest.mark.parametrize(
    ("name", "found", "message"),
    [
        ("train", Contents("5e6f", ("x.jpg",)), "The train data of .* `--data-dir`"),
        ("dev", Contents("3c4d", ("y.jpg",)), "The dev data of .* which of its images can be read"),
        (BOXES, Contents("9c0d"), "The boxes data of .* `--attention.teacher`"),
        (PREDICTIONS, None, "The predictions data of .* `--fit.predictions`"),
    ],
)
def test_other_images_or_teachers_with_the_same_words_are_refused(tmp_path, name, found, message):
    folder = RunFolder(tmp_path)
    used = USED | {BOXES: Contents("7a8b"), PREDICTIONS: Contents("7a8b")}
    claim(tmp_path, "{}", data_records(folder, WORDS, used, 1))
    data_records(folder, WORDS, used, 1)
    changed = {key: value for key, value in (used | {name: found}).items() if value is not None}
    with pytest.raises(runs.RunError, match=message):
        data_records(folder, WORDS, changed, 1)


def test_other_words_and_the_vocabulary_of_another_run_are_refused(folder):
    other = Vocabulary.from_captions(["a zebra"], min_count=1)
    with pytest.raises(runs.RunError, match="words of the training captions differ"):
        data_records(folder, other, USED, 1)
    assert read_vocabulary(folder) == WORDS
    other = dataclasses.replace(WORDS, words=(*WORDS.words[:-1], "zebra"))
    other.save(folder.vocabulary)
    with pytest.raises(runs.RunError, match="vocabulary.json is another run's.*Copy its own"):
        read_vocabulary(folder)


def test_a_run_keeps_the_split_of_its_folder(tmp_path):
    """Also one that starts from it on the same folder, whatever path leads there."""
    run_dir, data_dir, other = tmp_path / "run", tmp_path / "data", tmp_path / "other"
    data_dir.mkdir()
    (tmp_path / "link").symlink_to(data_dir)
    folder = ("--recipe", "folder_soft")
    claimed(run_dir, *folder, "--data.held-out", "0.125,0.25")
    RunFolder(run_dir).data_dir.write_text(f"{data_dir}\n")
    new, started = (), ("--init-from", str(run_dir))

    def held_out(flags, run_dir, data_dir=data_dir):
        places = ("--run-dir", str(run_dir), "--data-dir", str(data_dir))
        return parse([*folder, *flags, *places]).config.data.held_out

    assert held_out(new, run_dir) == held_out(started, other) == "0.125,0.25"
    assert held_out(started, other, tmp_path / "link") == "0.125,0.25"
    assert held_out(new, other) is held_out(started, other, tmp_path) is None
