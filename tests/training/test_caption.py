"""Captions of the user's own images."""

import csv
import functools
import json

import numpy as np
import pytest
from PIL import Image

from sat_tf.inference import caption
from sat_tf.inference.caption import COLUMNS, main
from tests.image_files import noise
from tests.page_data import embedded


@pytest.fixture
def photo(tmp_path):
    """A photograph, wider than high."""
    path = tmp_path / "bird.jpg"
    noise(40, 90).save(path, quality=100)
    return path


@pytest.fixture(scope="module", autouse=True)
def _loaded_once():
    """Every command loads its run; here those of the same run share one that is loaded."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(caption, "load", functools.cache(caption.load))
        yield


def rows_of(capsys) -> list[dict]:
    """The lines that `--json` printed."""
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_it_prints_the_caption_and_writes_the_figure(soft_run, photo, tmp_path, capsys):
    out = tmp_path / "out"
    assert main([str(photo), "--run-dir", str(soft_run), "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{photo}: ") and str(out / "bird.png") in said
    assert np.asarray(Image.open(out / "bird.png")).std() > 0


def test_a_file_that_cannot_be_read_is_told_and_others_are_done(soft_run, photo, tmp_path, capsys):
    broken, missing = tmp_path / "broken.png", tmp_path / "missing.jpg"
    broken.write_bytes(b"no image")
    argv = [broken, missing, photo]
    argv = [*map(str, argv), "--run-dir", str(soft_run), "--out", str(tmp_path / "out")]
    assert main(argv) == 1
    said = capsys.readouterr()
    lines = said.err.splitlines()
    assert len(said.out.splitlines()) == 1 and str(photo) in said.out
    for path in (broken, missing):
        assert sum(line.startswith(f"{path}: ") for line in lines) == 1
    assert lines[-1] == "2 of 3 images could not be read."
    assert "Traceback" not in said.err


def test_a_folder_stands_for_the_images_in_it(soft_run, photo, tmp_path, capsys):
    for name in ("a.PNG", ".hidden.png", "day 2/b.png", ".trash/c.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.open(photo).save(tmp_path / name, "PNG")
    (tmp_path / "captions.csv").write_text("no image")
    flags = ["--run-dir", str(soft_run), "--out", str(tmp_path / "out"), "--json"]
    for _ in range(2):  # figures of the first time are not captioned
        assert main([str(tmp_path), *flags]) == 0
        rows = rows_of(capsys)
        shown = [tmp_path / "a.PNG", photo, tmp_path / "day 2" / "b.png"]
        assert [row["image"] for row in rows] == list(map(str, shown))
    drawn = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert drawn == ["a.png", "b.png", "bird.png"]


def test_lines_of_json_parse(soft_run, photo, tmp_path, capsys):
    twin = tmp_path / "twin" / photo.name
    twin.parent.mkdir()
    twin.write_bytes(photo.read_bytes())
    argv = [str(photo), str(twin), "--run-dir", str(soft_run), "--json"]
    assert main([*argv, "--beam", "3", "--out", str(tmp_path / "out")]) == 0
    rows = rows_of(capsys)
    assert [row["image"] for row in rows] == [str(photo), str(twin)]
    assert rows[0]["caption"] == rows[1]["caption"] != ""
    assert len(rows[0]["alternatives"]) == 2
    assert len(rows[0]["log_probs"]) == len(rows[0]["words"]) == len(rows[0]["caption"].split())
    assert rows[0]["score"] <= sum(rows[0]["log_probs"]) + 1e-5 <= 1e-5
    assert rows[0]["score"] >= rows[0]["alternatives"][0]["score"]
    # The viewer's form.
    best, *others = rows[0]["hypotheses"]
    assert best["text"] == rows[0]["caption"] and all(word["map"] for word in best["words"])
    assert len(others) == 2 and rows[0]["crop"][0] > 0.0 == rows[0]["crop"][1]
    assert rows[0]["kind"] == "soft" and len(rows[0]["grid"]) == 2
    # Figures of the same name do not overwrite each other.
    assert rows[0]["figure"] != rows[1]["figure"]
    assert all((tmp_path / "out" / name).exists() for name in ("bird.png", "bird-2.png"))


def test_a_page_holds_every_image_with_its_maps(soft_run, photo, tmp_path, capsys):
    twin, page = tmp_path / "twin.jpg", tmp_path / "pages" / "captions.html"
    twin.write_bytes(photo.read_bytes())
    argv = [str(photo), str(twin), "--run-dir", str(soft_run), "--figure", "none", "--json"]
    assert main([*argv, "--html", str(page), "--out", str(tmp_path / "out")]) == 0
    rows = rows_of(capsys)
    assert [row["figure"] for row in rows] == [None, None] and not (tmp_path / "out").exists()
    images = embedded(page.read_text())["images"]
    assert [image["name"] for image in images] == ["bird.jpg", "twin.jpg"]
    assert images[0]["hypotheses"][0]["text"] == rows[0]["caption"]
    assert all(word["map"] for word in images[0]["hypotheses"][0]["words"])


def test_a_folder_is_captioned_into_a_table_and_texts(soft_run, photo, tmp_path, capsys):
    (tmp_path / "broken.png").write_bytes(b"no image")
    twin = tmp_path / "sub" / "twin.png"
    twin.parent.mkdir()
    Image.open(photo).save(twin)
    table = tmp_path / "captions.csv"
    argv = [str(tmp_path), "--run-dir", str(soft_run), "--csv", str(table), "--beam", "3"]
    assert main([*argv, "--write-txt", "--out", str(tmp_path / "out")]) == 1
    with table.open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    assert tuple(header) == COLUMNS and [row[0] for row in rows] == [str(photo), str(twin)]
    assert all(row[1] and 0.0 <= float(row[3]) <= 1.0 for row in rows)
    assert len(json.loads(rows[0][4])) == 2
    assert photo.with_suffix(".txt").read_text() == rows[0][1] + "\n"
    assert twin.with_suffix(".txt").exists() and not (tmp_path / "out").exists()
    capsys.readouterr()
    table.write_text("mine")
    assert main(argv) == 2 and table.read_text() == "mine"
    assert "captions.csv exists: choose another, or add `--overwrite`" in capsys.readouterr().err
    assert main([*argv, "--overwrite"]) == 1 and table.read_text().startswith("file,caption,")


def test_images_of_one_name_have_no_text_in_common(soft_run, photo, tmp_path, capsys):
    Image.open(photo).save(tmp_path / "bird.png")
    assert main([str(tmp_path), "--run-dir", str(soft_run), "--write-txt"]) == 2
    assert "expected images of different names, got two for" in capsys.readouterr().err


def test_a_sentence_is_explained_in_a_figure_of_its_own(soft_run, photo, tmp_path, capsys):
    flags = ["--run-dir", str(soft_run), "--out", str(tmp_path / "out")]
    assert main([str(photo), *flags]) == 0
    own = capsys.readouterr().out.partition(": ")[2].partition("  (")[0]
    assert main([str(photo), "--sentence", f"{own} unicorn", *flags]) == 0
    said = capsys.readouterr().out
    assert "looking" in said and "Not known, and read as <unk>: unicorn." in said
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"bird.png", "bird.explained.png"}
    assert main([str(photo), "--sentence", "", *flags, "--figure", "none"]) == 0
    assert "log p of the whole: " in capsys.readouterr().out
    assert main([str(photo), str(photo), "--sentence", "a", *flags]) == 2
    assert "expected one image with it, got 2 images" in capsys.readouterr().err
