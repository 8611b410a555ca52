"""Averaged runs: the mean of their weights, in a folder that everything but training takes."""

import json
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest

from sat_tf.inference.run_folder import RunFolder, read_config
from tests.training.run.stopped_runs import weights_of
from training import average, evaluate, train
from training.average import Arguments
from training.run.checkpoints import unfinished_note


@pytest.fixture(scope="module")
def tuned(soft_run, tmp_path_factory) -> Path:
    """A run that started from `soft_run`, with other weights."""
    known = shutil.ignore_patterns("familiarity.json", "confidence.json")  # of the weights
    run_dir = shutil.copytree(soft_run, tmp_path_factory.mktemp("tuned") / "run", ignore=known)
    config = json.loads((run_dir / "config.json").read_text("utf-8")) | {"init_from": str(soft_run)}
    (run_dir / "config.json").write_text(json.dumps(config), "utf-8")

    def move(_, entry: h5py.Group | h5py.Dataset) -> None:
        if isinstance(entry, h5py.Dataset):
            entry[...] = 1.01 * entry[...] + 0.01

    with h5py.File(run_dir / "best.weights.h5", "r+") as file:
        file.visititems(move)
    return run_dir


@pytest.fixture(scope="module")
def mean(soft_run, tuned, tmp_path_factory) -> Path:
    """The average of both."""
    out = tmp_path_factory.mktemp("mean") / "out"
    assert averaged(out, soft_run, tuned) == 0
    return out


def averaged(out: Path, *arguments: object) -> int:
    return average.main([*map(str, arguments), "--run-dir", str(out)])


def test_weights_are_the_mean_by_the_shares(soft_run, tuned, tmp_path, capsys):
    flags = ("--shares", "0.25", "0.75")
    assert averaged(tmp_path / "out", soft_run, tuned, *flags) == 0
    first, second, mean = map(weights_of, (soft_run, tuned, tmp_path / "out"))
    assert any(np.any(first[name] != second[name]) for name in first)
    assert mean.keys() == first.keys()
    for name, value in mean.items():
        expected = 0.25 * first[name].astype(float) + 0.75 * second[name]
        np.testing.assert_allclose(value, expected, rtol=1e-6, atol=1e-7, err_msg=name)
    assert f"0.250  {soft_run}" in capsys.readouterr().out
    assert read_config(tuned) == read_config(tmp_path / "out")


def test_an_average_is_evaluated_and_says_what_it_is(soft_run, tuned, mean, tmp_path, capsys):
    flags = ["--run-dir", str(mean), "--cache-dir", str(tmp_path / "cache"), "--figures", "0"]
    assert evaluate.main(flags) == 0
    note = f"The weights are an average: 0.5 of {soft_run.name}, 0.5 of {tuned.name}."
    assert f"Note: {note}" in capsys.readouterr().out
    report = json.loads((mean / "evaluation/dev/report.json").read_text("utf-8"))
    assert note in report["notes"]


def test_a_run_that_was_interrupted_is_pointed_out(soft_run, tuned, tmp_path, capsys):
    path = tuned / "config.json"
    text = path.read_text("utf-8")
    values = json.loads(text)
    done = values["fit"]["epochs"]
    path.write_text(json.dumps(values | {"fit": values["fit"] | {"epochs": done + 4}}), "utf-8")
    note = f"Training of {tuned.name} is not finished ({done} of {done + 4} epochs)"
    try:
        assert averaged(tmp_path / "out", soft_run, tuned) == 0
        assert note in capsys.readouterr().out
    finally:
        path.write_text(text, "utf-8")
    assert unfinished_note(tuned) == unfinished_note(tmp_path / "out") == ()


def test_a_folder_of_something_else_is_left_alone(soft_run, tuned, mean, tiny, capsys):
    before = weights_of(soft_run)
    assert averaged(soft_run, soft_run, tuned) == 2
    assert "is not empty and not a run" in capsys.readouterr().err
    assert not RunFolder(soft_run).average.exists()
    np.testing.assert_equal(weights_of(soft_run), before)
    assert averaged(mean, tuned, soft_run) == 2
    assert train.main([*tiny, "--init-from", str(soft_run), "--run-dir", str(mean)]) == 2
    assert "Choose another folder" in capsys.readouterr().err


def test_runs_of_independent_weights_are_refused(soft_run, tmp_path, capsys):
    known = shutil.ignore_patterns("familiarity.json", "confidence.json")
    other = shutil.copytree(soft_run, tmp_path / "other", ignore=known)
    random = np.random.default_rng(0)

    def draw(_, entry: h5py.Group | h5py.Dataset) -> None:
        if isinstance(entry, h5py.Dataset):
            entry[...] = random.normal(size=entry.shape)

    with h5py.File(other / "best.weights.h5", "r+") as file:
        file.visititems(draw)
    assert averaged(tmp_path / "out", soft_run, other) == 2
    message = capsys.readouterr().err
    assert "expected runs that started from one another" in message and str(other) in message
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("names", [(), ("a",), ("a", "a"), ("a", "b/../a")])
def test_two_different_runs_are_needed(names):
    with pytest.raises(ValueError, match="`runs`: expected two or more, all different"):
        Arguments(tuple(map(Path, names)), Path("out"))
