"""Inspecting data before training: counts and names, and when training cannot start."""

import contextlib
import io
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.training.data.own_images import (
    CORRUPT,
    GERMAN,
    encoded,
    photograph,
    write_csv,
    write_files,
)
from training import train
from training.data.contact_sheet import IMAGES, write_contact_sheet
from training.data.examples import Example, Split
from training.inspect import main

TINY = ("--encoder.name", "scenes_cnn", "--encoder.image_size", "64", "--encoder.weights", "None")
TINY += ("--decoder.embedding_dim", "8", "--decoder.attention_dim", "8", "--decoder.hidden_dim")
TINY += ("16", "--fit.batch_size", "8", "--data.min_count", "1")

BAD = {
    "Bilder 1/kaputt.jpg": CORRUPT,
    "Bilder 1/leer.png": b"",
    "Bilder 1/riesig.png": encoded(Image.new("1", (2**15 + 1, 1)), "PNG"),
    "Bilder 1/fehlt.jpg": None,
}
UNLISTED = "test/vergessen.jpg"
GREY, TURNED = "Bilder 1/Tür 1.png", "Bilder 2/Größe ä.jpg"


def german_files() -> dict[str, dict[str, bytes | None]]:
    """Split -> file -> content. Three images are in two splits, one of them scaled."""
    train = {f"Bilder 1/{n} ü.jpg": encoded(photograph(n)) for n in range(6)} | {
        GREY: encoded(photograph(10, grey=True), "PNG"),
        TURNED: encoded(photograph(11), turned=True),
    }
    smaller = encoded(photograph(1).resize((64, 48)), "JPEG")
    dev = {"dev/neu.jpg": encoded(photograph(20)), "dev/kopie.jpg": train["Bilder 1/0 ü.jpg"]}
    dev["dev/kleiner.jpg"] = smaller
    test = {"test/neu.jpg": encoded(photograph(30)), "test/kopie.jpg": dev["dev/neu.jpg"]}
    return {"train": train | BAD, "dev": dev, "test": test}


def german_rows() -> list[tuple[str, str, str]]:
    """Two captions per image of train, one of the others; one without a word, one blank."""
    rows = [(n, c, "train") for n in german_files()["train"] for c in GERMAN[:2]]
    rows += [("dev/neu.jpg", GERMAN[2], "dev"), ("dev/kopie.jpg", GERMAN[0].title(), "dev")]
    rows += [("dev/kleiner.jpg", "...", "dev"), ("dev/kleiner.jpg", "  ", "dev")]
    return rows + [("test/neu.jpg", GERMAN[3], "test"), ("test/kopie.jpg", GERMAN[2], "test")]


def write_german(folder: Path) -> Path:
    for files in german_files().values():
        write_files(folder, files)
    write_files(folder, {UNLISTED: encoded(photograph(40))})
    write_csv(folder, german_rows(), "image,caption,split")
    return folder


@dataclass(frozen=True)
class Inspected:
    """Results of one command."""

    status: int
    said: str
    out: Path
    data_dir: Path
    report: dict


@pytest.fixture(scope="module")
def inspected(tmp_path_factory) -> Inspected:
    """The German folder, inspected once."""
    folder = tmp_path_factory.mktemp("german")
    data_dir, out = write_german(folder / "data"), folder / "out"
    command = ["--recipe", "folder_soft", *TINY, "--data.language", "de", "--data.max_length", "5"]
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        status = main([*command, "--data-dir", str(data_dir), "--out", str(out)])
    report = json.loads((out / "inspect.json").read_text("utf-8"))
    return Inspected(status, said.getvalue(), out, data_dir, report)


def inspect(capsys, data_dir: Path | str, *flags: str) -> tuple[int, str]:
    """Exit status and everything said about a folder."""
    places = ("--out", str(Path(data_dir).parent / "out"), "--data-dir", str(data_dir))
    status = main(["--recipe", "folder_soft", *TINY, *places, *flags])
    said = capsys.readouterr()
    return status, said.out + said.err


def test_data_is_checked_without_the_weights_of_the_encoder(tmp_path, capsys):
    write_files(tmp_path / "data", {f"{n}.png": encoded(photograph(n), "PNG") for n in range(30)})
    rows = [(f"{n}.png", f"a dot {n}") for n in range(30)]
    write_csv(tmp_path / "data", rows, "image,caption")
    status, said = inspect(capsys, tmp_path / "data", "--encoder.weights", "gone.weights.h5")
    assert status == 0 and "There is no file gone.weights.h5." in said
    assert "The data is ready.\nNext: " in said and "--recipe folder_from_flickr8k" in said


def test_bad_images_are_counted_and_named_and_do_not_keep_training_from_starting(inspected):
    assert inspected.status == 0 and inspected.report["trainable"]
    assert inspected.report["errors"] == []
    counts = inspected.report["splits"]["train"]
    wanted = {"listed": 12, "used": 8, "no_file": 1, "no_captions": 0, "unreadable": 3}
    assert counts.items() >= wanted.items()
    used = {split: figures["used"] for split, figures in inspected.report["splits"].items()}
    assert used == {"train": 8, "dev": 3, "test": 2}
    skipped = inspected.report["skipped"]["train"]
    assert set(skipped) == set(BAD)
    assert "no image file" in skipped["Bilder 1/fehlt.jpg"]
    assert skipped["Bilder 1/leer.png"] == "the file is empty"
    assert "more than" in skipped["Bilder 1/riesig.png"]
    assert all(f"Skipped in train: {name}: " in inspected.said for name in BAD)


def test_captions_are_counted_and_measured(inspected):
    train, dev = (inspected.report["splits"][name] for name in ("train", "dev"))
    # "ein großer hund läuft schnell" and "die tür ist offen und rot"
    assert train["captions"] == 22  # one image has no file, and is not among them
    assert train["length"] == {"min": 5, "median": 5.5, "max": 6}
    assert train["captions_per_image"]["median"] == 2 and train["unknown_share"] == 0
    assert (dev["captions"], dev["without_words"]) == (3, 1)
    assert dev["unknown_share"] == pytest.approx(3 / 8)  # all three words of "über den straßen"
    assert inspected.report["vocabulary"] == {"unit": "words", "size": 11, "kept": 0}


def spoil(folder: Path, defect: str) -> None:
    """Makes a folder useless for training."""
    match defect:
        case "corrupt images":
            for path in folder.glob("Bilder */*"):
                path.write_bytes(CORRUPT)
        case "no dev":
            write_csv(folder, [r for r in german_rows() if r[2] == "train"], "image,caption,split")
        case "broken CSV":
            (folder / "captions.csv").write_text('image,caption\na.jpg,"never closed')


DEFECTS = ["corrupt images", "no dev", "broken CSV"]


@pytest.mark.parametrize("defect", DEFECTS)
def test_what_keeps_training_from_starting_is_the_same_error(tmp_path, capsys, defect):
    data_dir = write_german(tmp_path / "data")
    spoil(data_dir, defect)
    status, said = inspect(capsys, data_dir)
    assert status == 1 and "Ready to train" not in said
    report = json.loads((tmp_path / "out" / "inspect.json").read_text("utf-8"))
    assert not report["trainable"]
    places = ("--data-dir", str(data_dir), "--run-dir", str(tmp_path / "run"))
    assert train.main(["--recipe", "folder_soft", *TINY, *places]) == 2
    assert capsys.readouterr().err.strip().endswith(f"Error: {report['errors'][0]}")
    assert f"Error: {report['errors'][0]}" in said


def test_the_next_command_learns_new_words_in_another_language(tmp_path, capsys):
    names = [f"{n}.png" for n in range(20)]
    write_files(tmp_path / "data", {n: encoded(photograph(k), "PNG") for k, n in enumerate(names)})
    rows = [(name, f"ein Hund läuft auf dem Gras mit der Leine {name}") for name in names]
    write_csv(tmp_path / "data", rows, "image,caption")
    status, said = inspect(capsys, tmp_path / "data", "--data.language", "de")
    following = said.partition("Next: ")[2]
    assert status == 0 and "--data.language de" in following
    assert "--optimizer.learning-rate 8e-4" in following


def split_of(count: int, captions=("a dog",), broken=()) -> Split:
    examples = []
    for n in range(count):
        image = np.full([30, 40, 3], n, np.uint8)
        content = b"no image" if n in broken else image
        examples.append(Example(f"{n}.png", content, captions))
    return Split("train", tuple(examples))


def test_a_page_has_images_spread_over_the_split_and_unreadable_ones_replaced(tmp_path):
    path = tmp_path / "page.html"
    write_contact_sheet(path, split_of(24, broken=(0, 7)))
    page = path.read_text("utf-8")
    assert page.count("<img") == IMAGES
    assert "<code>1.png</code>" in page and "<code>0.png</code>" not in page
    write_contact_sheet(path, split_of(3))
    assert path.read_text("utf-8").count("<img") == 3


def test_a_page_escapes_its_text_and_tells_the_language_of_captions(tmp_path):
    path = tmp_path / "page.html"
    captions = ('<script>"x"</script>', "كلب يجري")
    write_contact_sheet(path, split_of(1, captions), "ar", "A & B", ["<b>"], [["<i>"], ["1"]])
    page = path.read_text("utf-8")
    assert "<script>" not in page and "<b>" not in page and "<i>" not in page
    assert "A &amp; B" in page and '<li dir="rtl" lang="ar">كلب يجري</li>' in page
