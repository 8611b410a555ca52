"""Published models: found by name, checked when loaded, from a Hub; the pretrained ones."""

import json
import shutil
from pathlib import Path

import pytest

import sat_tf
from sat_tf.inference import published
from sat_tf.util.errors import RunError
from tests.sat_tf.tiny_runs import PIXELS, contents

NAMES = ["photos_soft", "flickr8k_hard", "flickr8k_none", "flickr8k_soft"]


@pytest.fixture(scope="module")
def soft(run_of, loaded, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("published") / "soft"
    published.write(folder, contents(run_of["soft"], loaded["soft"]))
    return folder


@pytest.fixture
def copy(soft, tmp_path) -> Path:
    return shutil.copytree(soft, tmp_path / "copy")


@pytest.fixture
def shipped(soft, monkeypatch) -> None:
    monkeypatch.setattr(published, "SHIPPED", soft.parent)


def test_a_published_captioner_says_what_its_run_says(soft, loaded):
    found, expected = sat_tf.load(soft).caption(PIXELS), loaded["soft"].caption(PIXELS)
    assert found.text == expected.text
    assert found.score == pytest.approx(expected.score, abs=0.05)
    assert found.alpha == pytest.approx(expected.alpha, abs=0.02)


def test_captioners_side_by_side_share_an_encoder(run_of, loaded, tmp_path):
    for kind in ("soft", "none"):
        files = contents(run_of["soft"], loaded["soft"])
        published.write(tmp_path / kind, files, share_encoder=True)
    assert len(list(tmp_path.glob("encoder-*.npz"))) == 1
    assert not list(tmp_path.glob("*/encoder.npz"))
    files = published.checked_files(tmp_path / "none")
    assert files["encoder.npz"].parent == tmp_path and len(files) == 4


def test_one_that_ships_is_found_by_name_unless_a_folder_is(shipped, soft, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert published.names() == ["soft"] and published.locate("soft") == soft
    assert published.output_dir("soft") == Path("captioners/soft")
    with pytest.raises(RunError, match="no pretrained model of that name: did you mean soft"):
        published.locate("sofd")
    (tmp_path / "soft").mkdir()
    assert published.locate("soft") == published.output_dir("soft") == Path("soft")


@pytest.mark.parametrize("name", ["decoder.npz", "encoder.npz", "config.json", "vocabulary.json"])
def test_a_file_that_was_changed_is_an_error(copy, name):
    content = bytearray((copy / name).read_bytes())
    content[len(content) // 2] ^= 1
    (copy / name).write_bytes(content)
    with pytest.raises(RunError, match=f"{name} is damaged or was changed: expected the SHA-256"):
        sat_tf.load(copy)


def test_a_manifest_that_is_none_and_a_missing_file_are_errors(copy):
    path = copy / published.MANIFEST
    written = json.loads(path.read_text())
    for text, says in (
        ("{", "captioner.json is damaged .Expecting"),
        ('{"format": 2, "files": {"../../x": "0"}}', "captioner.json is damaged .its checksum"),
        (json.dumps(written | {"format": 1}), "has the format 1, and this version of sat_tf reads"),
        (json.dumps(written), "incomplete: it has no encoder.npz"),
    ):
        path.write_text(text)
        (copy / "encoder.npz").unlink(missing_ok=True)
        with pytest.raises(RunError, match=says):
            sat_tf.load(copy)


def test_what_the_hub_gives_has_to_be_a_model(soft, monkeypatch, tmp_path):
    hub, asked = pytest.importorskip("huggingface_hub"), []

    def download(repo: str, revision: str | None, allow_patterns: list[str]) -> str:
        asked.append(revision)
        if repo == "me/other":
            raise OSError("401 Client Error:\n  Repository Not Found")
        assert all(any(path.match(one) for one in allow_patterns) for path in soft.iterdir())
        return str(soft if repo == "me/soft" else tmp_path)

    monkeypatch.setattr(hub, "snapshot_download", download)
    assert published.locate("hf://me/soft") == published.locate(Path("hf://me/soft@v1")) == soft
    assert asked == [None, "v1"]
    with pytest.raises(RunError, match="me/other cannot be downloaded: 401 Client Error: Repos"):
        published.locate("hf://me/other")
    with pytest.raises(RunError, match="hf://me/plain is not a model of sat_tf"):
        published.locate("hf://me/plain")


def test_four_captioners_ship_with_one_encoder():
    assert published.names() == NAMES  # the default one first
    weights = list(published.SHIPPED.rglob("*.npz"))  # and of each graph all but the weights
    assert len(weights) == 14 and sum(path.stat().st_size for path in weights) < 71e6


@pytest.mark.parametrize("name", NAMES)
def test_cards_say_whose_data_it_is_and_what_it_is_not_for(name):
    folder = published.locate(name)
    card = (folder / published.CARD).read_text("utf-8")
    assert published.checked_files(folder)
    assert "non-commercial research" in card and "## In int8" in card
    boxed = "Attention was supervised by people's boxes" in card
    assert ("boxes" in published.taught_by(folder)) is boxed is (name != "flickr8k_none")
