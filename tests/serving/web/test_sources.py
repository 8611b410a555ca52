"""Models of the page: exports and runs, and their names."""

import pytest

from sat_tf.inference import published
from serving.web import sources
from tests.serving.web.page_fixtures import make_export, make_run


def test_exports_are_named_by_their_folders_and_the_newest_version_is_shown(tmp_path):
    plain = make_export(tmp_path / "soft")
    versions = [make_export(tmp_path / "hard" / "export" / number) for number in ("2", "10")]
    found = list(map(sources.captioner_in, [plain, tmp_path / "hard" / "export"]))
    assert sources.named(found) == {"soft": plain, "hard": versions[1]}


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["soft", "soft", "soft", "hard"], ["soft", "soft-2", "soft-3", "hard"]),
        (["x", "x", "x-2"], ["x", "x-3", "x-2"]),
        (["x-2", "x", "x", "x-2"], ["x-2", "x", "x-3", "x-2-2"]),
    ],
)
def test_no_two_models_have_one_name(names, shown, tmp_path):
    given = [tmp_path / str(n) / name for n, name in enumerate(names)]
    found = sources.named(given)
    assert list(found) == shown and list(found.values()) == given


def test_other_folders_are_errors_that_say_how_they_are_shown(tmp_path):
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "saved_model.pb").touch()
    with pytest.raises(ValueError, match="`run_dir`: expected .*--format litert.*`--server`"):
        sources.captioner_in(tmp_path)


def test_captioners_that_ship_are_shown_soft_first(tmp_path, monkeypatch):
    shipped = tmp_path / "captioners"
    monkeypatch.setattr(published, "SHIPPED", shipped)
    for kind in ("none", "hard", "soft"):
        folder = make_run(shipped / f"flickr8k_{kind}", kind, "flickr8k")
        (folder / "best.weights.h5").unlink()
        (folder / published.MANIFEST).write_text("{}")
    found = sources.shipped_captioners()
    assert [run.name for run in found] == ["flickr8k_soft", "flickr8k_hard", "flickr8k_none"]
    assert list(sources.named(found)) == [run.name for run in found]


def test_notes_tell_what_drawn_scenes_teach(tmp_path):
    runs = [make_run(tmp_path / "scenes"), make_run(tmp_path / "photos", data="flickr8k")]
    (note,) = sources.notes_of(runs)
    assert note.startswith("scenes: trained on drawn scenes")
    assert sources.notes_of(runs[1:]) == ()
