"""Models of the page: exports and runs, their names, and where exports of runs are kept."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import sat_tf
import serving
from sat_tf import published
from serving.web import sources
from tests.serving.web.run_fixtures import make_export, make_run
from tests.waiting import eventually


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    """The library's cache, in a folder of the test."""
    monkeypatch.setenv("SAT_TF_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_exports_are_named_by_their_folders(tmp_path):
    folders = [make_export(tmp_path / name) for name in ("soft", "b/soft", "c/soft", "hard/export")]
    found = sources.from_exports(folders)
    assert [source.name for source in found] == ["soft", "soft", "soft", "hard"]
    assert [source.export for source in found] == folders


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["soft", "soft", "soft", "hard"], ["soft", "soft-2", "soft-3", "hard"]),
        (["x", "x", "x-2"], ["x", "x-3", "x-2"]),
        (["x-2", "x", "x", "x-2"], ["x-2", "x", "x-3", "x-2-2"]),
    ],
)
def test_no_two_sources_have_one_name(names, shown, tmp_path):
    given = [sources.Source(name, tmp_path / str(n)) for n, name in enumerate(names)]
    found = sources.name_apart(given)
    assert [source.name for source in found] == shown
    assert [source.export for source in found] == [source.export for source in given]


def test_a_folder_without_a_version_is_an_error(tmp_path):
    (tmp_path / "latest").mkdir()
    with pytest.raises(ValueError, match="`export`: expected folders that"):
        sources.from_exports([tmp_path])


def test_a_run_is_exported_again_when_its_weights_change(tmp_path, cache):
    run = make_run(tmp_path / "scenes_soft")
    (first,) = sources.from_runs([run])
    assert first.run == run and cache in first.export.parents
    assert sources.from_runs([run]) == [first]
    shutil.copytree(run, tmp_path / "copy" / "scenes_soft")
    os.utime(run / "best.weights.h5")
    for same in (run, tmp_path / "copy" / "scenes_soft"):  # with another path, and another time
        assert sources.from_runs([same])[0].export == first.export
    (run / "best.weights.h5").write_bytes(b"others ")
    (second,) = sources.from_runs([run])
    (run / "config.json").write_text('{"search": {"beam": 10}}')
    (third,) = sources.from_runs([run])
    assert len({source.export for source in (first, second, third)}) == 3


def test_a_run_is_exported_again_when_the_code_changes(tmp_path, monkeypatch):
    run, code = make_run(tmp_path / "run"), tmp_path / "package" / "images" / "resizing.py"
    code.parent.mkdir(parents=True)
    monkeypatch.setattr(sources, "PACKAGES", (*sources.PACKAGES, tmp_path / "package"))
    (without,) = sources.from_runs([run])
    code.write_text("SIDE = 224")
    (before,) = sources.from_runs([run])
    code.write_text("SIDE = 256")
    (after,) = sources.from_runs([run])
    assert len({source.export for source in (without, before, after)}) == 3


def test_an_export_of_a_run_takes_the_place_of_its_earlier_ones_alone(tmp_path):
    run, namesake = make_run(tmp_path / "soft"), make_run(tmp_path / "b" / "soft")
    (namesake / "best.weights.h5").write_bytes(b"others ")
    unknown = make_export(sources.cache_folder() / "soft-000000000000")  # without a note
    kept = [unknown]
    for one in (namesake, make_run(tmp_path / "soft-2"), run):
        (source,) = sources.from_runs([one])
        kept.append(make_export(source.export))
        sources.remove_earlier(source.export, one)
    earlier = kept.pop()
    (run / "best.weights.h5").write_bytes(b"more weights")
    (source,) = sources.from_runs([run])
    kept.append(make_export(source.export))
    assert earlier.exists()
    sources.remove_earlier(source.export, run)
    assert sorted(sources.cache_folder().iterdir()) == sorted(kept)


def test_one_page_exports_a_run_at_a_time_and_removes_what_killed_ones_left(tmp_path):
    export = tmp_path / "exports" / "soft-0"
    done, left = make_export(export) / "1", export / ".writing-killed"
    (left / "variables").mkdir(parents=True)
    lock, steps = export / ".lock", []

    def export_too() -> None:
        steps.append("waits")
        with sources.exporting_to(export):
            steps.append("exports")

    with ThreadPoolExecutor(1) as pool:
        with sources.exporting_to(export):
            assert set(export.iterdir()) == {done, lock}
            left.mkdir()  # its own draft
            other = pool.submit(export_too)
            eventually(lambda: steps != [])
            assert left.exists() and steps == ["waits"]
        other.result(timeout=120)
    # The lock's file stays, for those who wait for it.
    assert set(export.iterdir()) == {done, lock}
    assert list(export.parent.iterdir()) == [export]


def test_a_folder_that_is_no_run_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="`run_dir`: expected folders of trained captioners"):
        sources.from_runs([tmp_path])


def test_captioners_that_ship_are_shown_soft_first(tmp_path, monkeypatch):
    shipped = tmp_path / "captioners"
    monkeypatch.setattr(published, "SHIPPED", shipped)
    for kind in ("none", "hard", "soft"):
        folder = make_run(shipped / f"flickr8k_{kind}", kind, "flickr8k")
        (folder / "best.weights.h5").unlink()
        (folder / published.MANIFEST).write_text("{}")
    found = sources.shipped_captioners()
    assert [run.name for run in found] == ["flickr8k_soft", "flickr8k_hard", "flickr8k_none"]
    assert [source.name for source in sources.from_runs(found)] == [run.name for run in found]


def test_the_fingerprint_is_of_the_code_that_is_imported():
    imported = [Path(module.__file__).parent for module in (sat_tf, serving)]
    assert [path.resolve() for path in imported] == list(sources.PACKAGES)


def test_notes_tell_what_drawn_scenes_teach(tmp_path):
    runs = [make_run(tmp_path / "scenes"), make_run(tmp_path / "photos", data="flickr8k")]
    (note,) = sources.notes_of(runs)
    assert note.startswith("scenes: trained on drawn scenes")
    assert sources.notes_of(runs[1:]) == ()
    assert sources.language_of(runs) == "de" and sources.language_of([]) == "en"
