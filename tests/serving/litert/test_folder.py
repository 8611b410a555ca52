"""Folders that are no LiteRT export of this version are refused before a graph is opened."""

from __future__ import annotations

import json

import pytest

from serving.litert.captioner import FORMAT, GRAPHS, SETTINGS, VOCABULARY, Settings, read_settings

SIZES = dict.fromkeys(GRAPHS, 3)
SETTING = Settings(32, "crop", (4, 4), 3, 6, 0.7, (0, 1, 3), "float32", SIZES)


@pytest.fixture
def folder(tmp_path):
    """A folder whose graphs nobody can read."""
    made = tmp_path / "litert" / "1"
    made.mkdir(parents=True)
    for name in (*GRAPHS, VOCABULARY):
        (made / name).write_bytes(b"abc")
    (made / SETTINGS).write_text(SETTING.to_json())
    return made


def test_settings_are_read_as_written(folder):
    found = read_settings(folder)
    assert found.image_size == 32 and found.sizes == SIZES and list(found.forbidden) == [0, 1, 3]


def test_a_folder_from_before_consensus_ranks_by_score(folder):
    values = json.loads(SETTING.to_json())
    del values["consensus"]
    (folder / SETTINGS).write_text(json.dumps(values))
    assert read_settings(folder).consensus == 0.0


@pytest.mark.parametrize("version", [FORMAT + 1, None, "x"])
def test_a_folder_of_another_version_says_so(folder, version):
    values = json.loads((folder / SETTINGS).read_text()) | {"format": version, "new": 1}
    (folder / SETTINGS).write_text(json.dumps(values))
    with pytest.raises(ValueError, match=f"format {version}, and .* reads format {FORMAT}. Export"):
        read_settings(folder)


@pytest.mark.parametrize("name", [*GRAPHS, VOCABULARY])
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(ValueError, match=f"not whole: {name} is missing. Copy or export"):
        read_settings(folder)


def test_a_cut_graph_is_named(folder):
    (folder / GRAPHS[0]).write_bytes(b"ab")
    with pytest.raises(ValueError, match=f"{GRAPHS[0]} has 2 bytes, not 3"):
        read_settings(folder)


@pytest.mark.parametrize("text", ["", "[1]", "{}", f'{{"format": {FORMAT}, "beam": 3}}'])
def test_damaged_settings_are_named(folder, text):
    (folder / SETTINGS).write_text(text)
    with pytest.raises(ValueError, match=f"{SETTINGS} is damaged|of format None"):
        read_settings(folder)


def test_other_folders_are_told_apart(folder, tmp_path):
    with pytest.raises(ValueError, match="there is no such folder"):
        read_settings(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="name one of the versions in it: 1"):
        read_settings(folder.parent)
    with pytest.raises(ValueError, match=f"{SETTINGS} is missing. Write one"):
        read_settings(tmp_path)
    (tmp_path / "saved_model.pb").touch()
    with pytest.raises(ValueError, match="a SavedModel for TensorFlow Serving"):
        read_settings(tmp_path)
