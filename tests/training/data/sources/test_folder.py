"""A user's folder: splits, names in every spelling, skipped and forgotten images."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import pytest

from training.config import DataConfig
from training.data.examples import DataError
from training.data.sources import load_split
from training.data.sources.folder import hashed_split, load

NAMES = ("a.jpg", "sub folder/b c.png", "Tür.jpg", "gone.jpg", "bare.jpg")


@pytest.fixture
def folder(tmp_path) -> Path:
    """Five images in train, of which one has no file and one no caption; one in dev."""
    for name in (*NAMES, "dev.jpg"):
        if name != "gone.jpg":
            touch(tmp_path / name)
    rows = [f"{name},{'' if name == 'bare.jpg' else 'One of ' + name},train" for name in NAMES]
    rows += ["dev.jpg,One of dev,dev", "a.jpg,Two of a,train"]
    (tmp_path / "captions.csv").write_text("image,caption,split\n" + "\n".join(rows), "utf-8")
    return tmp_path


def touch(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"never opened")


def write_jsonl(folder: Path, *images: str) -> None:
    rows = [json.dumps({"image": image, "captions": ["a dog"]}) for image in images]
    (folder / "c.jsonl").write_text("\n".join(rows), "utf-8")


def test_a_split_holds_its_images_in_order_with_all_their_captions(folder):
    split = load("train", folder)
    assert [example.image_id for example in split.examples] == list(NAMES[:3])
    assert split.examples[0].captions == ("One of a.jpg", "Two of a")
    assert split.examples[1].image == folder / "sub folder" / "b c.png"
    assert [example.image_id for example in load("dev", folder).examples] == ["dev.jpg"]


def test_images_without_file_or_caption_are_skipped_with_the_reason(folder):
    assert load("train", folder).skipped == (
        ("gone.jpg", "no image file in the data folder"),
        ("bare.jpg", "no captions in captions.csv"),
    )
    assert load("dev", folder).skipped == ()


def test_captions_that_hold_nothing_are_counted(folder):
    assert load("train", folder).blank_captions == 1
    assert load("dev", folder).blank_captions == 0


def test_of_the_first_examples_what_comes_after_is_not_counted(folder):
    first = load_split(DataConfig("folder", limit=2), "train", folder)
    assert len(first) == 2 and first.skipped == () and first.blank_captions == 0
    assert (
        load_split(DataConfig("folder", limit=9), "train", folder).skipped
        == load("train", folder).skipped
    )


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize("on_disk", ["NFC", "NFD"])
def test_composed_and_decomposed_names_are_the_same(tmp_path, form, on_disk):
    name = "Äpfel/Hündin é.jpg"
    touch(tmp_path / unicodedata.normalize(on_disk, name))
    write_jsonl(tmp_path, unicodedata.normalize(form, name))
    split = load(hashed_split(unicodedata.normalize("NFC", name)), tmp_path)
    assert [example.image_id for example in split.examples] == [unicodedata.normalize("NFC", name)]
    assert split.examples[0].image.is_file()


@pytest.mark.parametrize("name", ["./sub//a.jpg", "sub\\a.jpg", "x/../sub/a.jpg", " sub/a.jpg "])
def test_spellings_of_one_path_are_one_image(tmp_path, name):
    touch(tmp_path / "sub" / "a.jpg")
    write_jsonl(tmp_path, "sub/a.jpg", name)
    (example,) = load(hashed_split("sub/a.jpg"), tmp_path).examples
    assert example.image_id == "sub/a.jpg" and len(example.captions) == 2


@pytest.mark.parametrize(
    "name", ["../a.jpg", "sub/../../a.jpg", "..\\a.jpg", "/etc/a.jpg", "C:\\a.jpg", ".", ".."]
)
def test_a_path_that_leaves_the_folder_is_an_error_with_its_line(tmp_path, name):
    touch(tmp_path.parent / "a.jpg")
    write_jsonl(tmp_path, "b.jpg", name)
    with pytest.raises(DataError, match="c.jsonl, line 2: expected the path .* inside it, got"):
        load("train", tmp_path)


def test_images_may_be_in_another_folder(folder, tmp_path_factory):
    (folder / "images").mkdir()
    (folder / "a.jpg").rename(folder / "images" / "a.jpg")
    split = load_split(DataConfig("folder", image_dir="images"), "train", folder)
    assert [example.image for example in split.examples] == [folder / "images" / "a.jpg"]
    assert split.skipped[0] == (NAMES[1], "no image file in images")
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    touch(elsewhere / "dev.jpg")
    split = load("dev", folder, image_dir=str(elsewhere))
    assert split.examples[0].image == elsewhere / "dev.jpg"
    with pytest.raises(DataError, match="`--data.image_dir`: there is no folder .*nowhere"):
        load("train", folder, image_dir="nowhere")


def test_without_splits_names_decide_and_new_images_move_none(tmp_path):
    names = [f"{n}.jpg" for n in range(300)]
    for name in names:
        touch(tmp_path / name)

    def splits():
        return {
            split: {e.image_id for e in load(split, tmp_path).examples}
            for split in ("train", "dev", "test")
        }

    write_jsonl(tmp_path, *names[:200])
    before = splits()
    assert sum(map(len, before.values())) == 200
    assert 140 <= len(before["train"]) <= 180 and 8 <= len(before["dev"]) <= 35
    write_jsonl(tmp_path, *reversed(names))
    assert all(before[split] <= after for split, after in splits().items())


def test_the_hash_of_a_name_is_for_ever():
    wanted = "dev train train train train test train train train train train test"
    assert [hashed_split(f"{n}.jpg") for n in range(12)] == wanted.split()


def test_the_caption_file_is_found_or_named(folder):
    (folder / "other.jsonl").write_text('{"image": "dev.jpg", "captions": ["x"], "split": "dev"}')
    (folder / ".hidden.json").write_text("no JSON")
    with pytest.raises(DataError, match="found captions.csv, other.jsonl.*`--data.captions FILE`"):
        load_split(DataConfig("folder"), "train", folder)
    split = load_split(DataConfig("folder", captions="other.jsonl"), "dev", folder)
    assert split.examples[0].captions == ("x",)
    with pytest.raises(ValueError, match="`--data.captions`.*has captions.csv, oth.*got 'x.csv'"):
        load("train", folder, captions="x.csv")
    for name in ("captions.csv", "other.jsonl"):
        (folder / name).unlink()
    with pytest.raises(
        DataError, match=r"expected one caption file \(\*.csv.*found none. Write one"
    ):
        load("train", folder)
    (folder / "captions.xlsx").write_bytes(b"PK")
    advice = "captions.xlsx is a spreadsheet: save it as CSV"
    with pytest.raises(DataError, match=f"found none. {advice}"):
        load("train", folder)
    with pytest.raises(DataError, match=advice):
        load("train", folder, captions="captions.xlsx")


@pytest.mark.parametrize(
    ("written", "on_disk"),
    [("a.jpg", "A.JPG"), ("a.jpeg", "a.jpg"), ("TÜR.png", "Tür.png")],
)
def test_a_file_with_nearly_the_name_is_named(tmp_path, written, on_disk):
    touch(tmp_path / on_disk)
    touch(tmp_path / "other.jpg")
    write_jsonl(tmp_path, written, *(f"{n}.jpg" for n in range(20)))
    with pytest.raises(DataError, match="No image of the") as error:
        load(hashed_split(written), tmp_path)
    assert f"{written}: no image file in the data folder; there is {on_disk}." in str(error.value)


def test_a_name_that_is_no_utf8_is_escaped(folder):
    try:
        touch(folder / "stra\udcdfe.png")  # as Python has the byte DF of a name in Latin-1
    except OSError:
        pytest.skip("this file system has UTF-8 names only")
    (name,) = load("train", folder).uncaptioned
    assert name == "stra\\udcdfe.png" and name.encode()


def test_images_that_the_caption_file_does_not_mention_are_named(folder):
    assert load("train", folder).uncaptioned == load("dev", folder).uncaptioned == ()
    for name in ("sub folder/ä new.png", "NEW.JPG", "notes.txt", ".thumbs/a.jpg"):
        touch(folder / unicodedata.normalize("NFD", name))
    assert load("train", folder).uncaptioned == ("NEW.JPG", "sub folder/ä new.png")


@pytest.mark.parametrize(
    ("split", "said"),
    [("", "'dev.jpg' has no split"), ("test", "'dev.jpg' is in the test split here and in dev")],
)
def test_a_row_with_no_split_or_another_one_is_an_error(folder, split, said):
    with (folder / "captions.csv").open("a") as file:
        file.write(f"\ndev.jpg,more,{split}\n")
    with pytest.raises(DataError, match=f"captions.csv, line 9: {said}"):
        load("train", folder)


def test_an_empty_split_is_an_error_that_counts_the_others(folder):
    with pytest.raises(DataError, match="no image of the test split: of its 6 .* train 5, dev 1"):
        load("test", folder)
    (folder / "dev.jpg").unlink()
    with pytest.raises(DataError, match="No image of the dev split.*1 listed, 1 with no image fil"):
        load("dev", folder)


def test_keys_of_other_data_sets_are_errors():
    with pytest.raises(ValueError, match="`--data.splits`.*flickr8k and flickr30k, got 'karpathy'"):
        DataConfig("folder", splits="karpathy")
    for key in ("captions", "image_dir"):
        with pytest.raises(ValueError, match=f"`--data.{key}`.*for scenes.* to folder, got 'x'"):
            DataConfig(**{key: "x"})
