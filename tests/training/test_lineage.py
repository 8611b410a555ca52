"""Origins of a run are found from wherever one asks, through averages, too."""

from __future__ import annotations

import json

import pytest

from sat_tf.run_folder import RunFolder
from sat_tf.serialization import to_dict
from training.lineage import lineage
from training.recipes.captioning import RECIPES
from training.tasks.captioning.teachers import Teachers, teachers_of

CONFIG = to_dict(RECIPES["scenes_soft"])
BOXES = {"attention": CONFIG["attention"] | {"supervision_weight": 0.5}}


@pytest.fixture
def make(tmp_path):
    """Makes a run `runs/NAME` that started from another one, by configuration alone."""

    def run(name, origin=None, **changed):
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        config = CONFIG | changed | {"init_from": origin}
        RunFolder(folder).config.write_text(json.dumps(config), "utf-8")
        return folder

    return run


def average(folder, *names):
    RunFolder(folder).average.write_text(json.dumps(dict.fromkeys(names, 1 / len(names))))
    return folder


@pytest.mark.parametrize("origin", ["runs/first", "first"])
def test_an_origin_named_from_another_folder_is_found(make, origin, tmp_path, monkeypatch):
    first, second = make("first", **BOXES), make("second", origin)
    for place in (tmp_path, tmp_path / "runs", tmp_path.parent):
        monkeypatch.chdir(place)
        assert lineage(second) == [second, first]
        assert teachers_of(second).own == ("boxes",)


def test_an_average_started_from_all_its_runs(make, monkeypatch, tmp_path):
    first = make("first")
    taught, plain = make("taught", "runs/first", **BOXES), make("plain", "runs/first")
    mean = average(make("mean", "runs/first"), "runs/taught", "runs/plain")
    monkeypatch.chdir(tmp_path.parent)
    assert set(lineage(mean)) == {mean, taught, plain, first} and lineage(mean)[0] == mean
    assert teachers_of(mean) == Teachers(("boxes",), ())
    again = average(make("again", "runs/first"), "runs/mean", "runs/plain")
    assert teachers_of(again) == Teachers(("boxes",), ())


def test_an_origin_that_is_gone_is_named_and_one_that_is_no_run_ends_there(make, tmp_path):
    run = make("run", "runs/gone")
    assert len(lineage(run)) == 2 and lineage(run)[1].name == "gone"
    (tmp_path / "runs" / "gone").mkdir()
    assert lineage(run) == [run, tmp_path / "runs" / "gone"]


def test_runs_that_name_each_other_end(make):
    one, other = make("one", "runs/other"), make("other", "runs/one")
    assert lineage(one) == [one, other]
