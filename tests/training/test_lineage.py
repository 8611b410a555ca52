"""Origins of a run are found from wherever one asks, through averages, too."""

import json

import pytest

from sat_tf.run_folder import RunFolder
from sat_tf.trained import published
from sat_tf.util.fields import to_dict
from sat_tf.util.files import write_json
from training.lineage import Teachers, lineage, teachers_of
from training.run.ownership import origins
from training.run.recipes import RECIPES

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
    one, other = make("one", "runs/other"), make("other", "runs/one")
    assert lineage(one) == [one, other]


def test_one_that_ships_is_not_mistaken_for_a_run_beside_the_new_one(make, monkeypatch, tmp_path):
    beside, run = make("flickr8k_soft"), make("mine", "flickr8k_soft")
    shipped = published.SHIPPED / "flickr8k_soft"
    monkeypatch.chdir(tmp_path)
    write_json(RunFolder(run).origins, origins(["flickr8k_soft"]))
    assert lineage(run) == [run, shipped]
    assert teachers_of(run) == teachers_of(shipped) != Teachers((), ())
    assert lineage(make("early", "flickr8k_soft"))[1] == beside


def test_an_origin_that_was_moved_with_the_run_is_found(make, monkeypatch, tmp_path):
    make("first", **BOXES)
    run = make("second", "runs/first")
    monkeypatch.chdir(tmp_path)
    write_json(RunFolder(run).origins, origins(["runs/first"]))
    assert list(json.loads(RunFolder(run).origins.read_text())) == ["runs/first"]
    (tmp_path / "new").mkdir()
    runs = (tmp_path / "runs").rename(tmp_path / "new" / "runs")
    monkeypatch.chdir(tmp_path.parent)
    assert lineage(runs / "second") == [runs / "second", runs / "first"]
    (runs / "first").rename(runs / "renamed")
    assert lineage(runs / "second")[1] == tmp_path / "runs" / "first"  # as it was recorded
