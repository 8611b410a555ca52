"""A user's folder: splits, names in every spelling, skipped images, and a run on it."""

import contextlib
import json
import unicodedata
from collections import Counter
from pathlib import Path

import pytest

from tests.training.data.readers.folders import load
from training.data.config import parse_places
from training.data.examples import DataError
from training.data.readers import load_split
from training.data.readers.splits import EXACT_BELOW, choose_places, hashed_split
from training.run.config import DataConfig

NAMES = ("a.jpg", "sub folder/b c.png", "Tür.jpg", "gone.jpg", "bare.jpg")


@pytest.fixture
def folder(tmp_path) -> Path:
    """Five images in train, one without a file and one without a caption; one in dev."""
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


def test_a_split_holds_its_images_in_order_and_says_why_others_are_skipped(folder):
    split = load("train", folder)
    assert [example.image_id for example in split.examples] == list(NAMES[:3])
    assert split.examples[0].captions == ("One of a.jpg", "Two of a")
    assert split.examples[1].image == folder / "sub folder" / "b c.png"
    assert [example.image_id for example in load("dev", folder).examples] == ["dev.jpg"]
    assert load("train", folder).skipped == (
        ("gone.jpg", "no image file; named in captions.csv, line 5"),
        ("bare.jpg", "no captions; named in captions.csv, line 6"),
    )
    assert load("dev", folder).skipped == ()
    assert "captions.csv: 1 captions are missing (empty, nan, None, null, NA)." in split.notes


def test_of_the_first_examples_what_comes_after_is_not_counted(folder):
    first = load_split(DataConfig("folder", limit=2), "train", folder)
    assert len(first) == 2 and first.skipped == ()
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
    split = load("train", tmp_path)
    assert [example.image_id for example in split.examples] == [unicodedata.normalize("NFC", name)]
    assert split.examples[0].image.is_file()


@pytest.mark.parametrize("name", ["./sub//a.jpg", "sub\\a.jpg", "x/../sub/a.jpg", " sub/a.jpg "])
def test_spellings_of_one_path_are_one_image(tmp_path, name):
    touch(tmp_path / "sub" / "a.jpg")
    write_jsonl(tmp_path, "sub/a.jpg", name)
    (example,) = load("train", tmp_path).examples
    assert example.image_id == "sub/a.jpg" and len(example.captions) == 2


@pytest.mark.parametrize("name", ["../a.jpg", "sub/../../a.jpg", "/etc/a.jpg", "C:\\a.jpg", ".."])
def test_a_path_that_leaves_the_folder_finds_no_file_there(tmp_path, name):
    touch(tmp_path.parent / "a.jpg")
    touch(tmp_path / "data" / "b.jpg")
    write_jsonl(tmp_path / "data", "b.jpg", name)
    split = load("train", tmp_path / "data", held_out="0,0")
    assert [e.image_id for e in split.examples] == ["b.jpg"] and len(split.skipped) == 1
    touch(tmp_path / "data" / "inner" / "a.jpg")  # the only one of that name
    split = load("train", tmp_path / "data", held_out="0,0")
    assert len(split) == 1 + (name != "..")


def test_a_name_of_several_files_or_two_names_of_one_are_errors(tmp_path):
    touch(tmp_path / "x" / "a.jpg")
    write_jsonl(tmp_path, "a.jpg")
    split = load("train", tmp_path)
    assert split.examples[0].image == tmp_path / "x" / "a.jpg"
    assert "1 name matched to the only file of that name, such as a.jpg by x/a.jpg." in split.notes
    write_jsonl(tmp_path, "a.jpg", "x/a.jpg")
    with pytest.raises(DataError, match="line 2: 'a.jpg' and 'x/a.jpg' both mean the file x/a.jpg"):
        load("train", tmp_path)
    touch(tmp_path / "y" / "a.jpg")
    write_jsonl(tmp_path, "y/a.jpg", "a.jpg")
    with pytest.raises(
        DataError, match="line 2: 'a.jpg' is the name of 2 files, such as x/a.jpg and y/a.jpg"
    ):
        load("train", tmp_path)


def test_a_name_is_looked_for_next_to_its_caption_file_first(tmp_path):
    for folder in ("train", "dev"):
        touch(tmp_path / folder / "a.jpg")
        write_jsonl(tmp_path / folder, "a.jpg")
    assert [e.image_id for e in load("dev", tmp_path).examples] == ["dev/a.jpg"]


def test_folders_of_images_called_train_and_val_give_the_splits(tmp_path):
    for name in ("train/a.jpg", "val/b.jpg"):
        touch(tmp_path / name)
    write_jsonl(tmp_path, "train/a.jpg", "val/b.jpg")
    assert [e.image_id for e in load("dev", tmp_path).examples] == ["val/b.jpg"]
    assert "The splits are those of the images' folders." in load("dev", tmp_path).notes


def test_linked_folders_are_entered_once(tmp_path):
    touch(tmp_path / "store" / "a.jpg")
    data = tmp_path / "data"
    data.mkdir()
    (data / "images").symlink_to(tmp_path / "store")
    (tmp_path / "store" / "back").symlink_to(data)
    write_jsonl(data, "images/a.jpg")
    assert len(load("train", data)) == 1 and load("train", data).uncaptioned == ()


def test_images_may_be_in_another_folder(folder, tmp_path_factory):
    (folder / "images").mkdir()
    (folder / "a.jpg").rename(folder / "images" / "a.jpg")
    split = load_split(DataConfig("folder", image_dir="images"), "train", folder)
    assert [example.image for example in split.examples] == [folder / "images" / "a.jpg"]
    assert split.skipped[0][0] == NAMES[1]
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    touch(elsewhere / "dev.jpg")
    split = load("dev", folder, image_dir=str(elsewhere))
    assert split.examples[0].image == elsewhere / "dev.jpg"
    with pytest.raises(DataError, match="`--data.image_dir`: there is no folder .*nowhere"):
        load("train", folder, image_dir="nowhere")


def splits_of(folder: Path, **options) -> dict[str, set[str]]:
    splits = {}
    for split in ("train", "dev", "test"):
        with contextlib.suppress(DataError):
            splits[split] = {e.image_id for e in load(split, folder, **options).examples}
    return splits


@pytest.fixture
def numbered(tmp_path) -> Path:
    """300 images without captions."""
    for n in range(300):
        touch(tmp_path / f"{n}.jpg")
    return tmp_path


@pytest.mark.parametrize(
    ("count", "sizes"),
    [
        (1, [1]),
        (2, [1, 1]),
        (3, [1, 1, 1]),
        (10, [8, 1, 1]),
        (60, [48, 6, 6]),
        (290, [232, 29, 29]),
    ],
)
def test_a_small_folder_is_split_to_the_image(numbered, count, sizes):
    write_jsonl(numbered, *(f"{n}.jpg" for n in range(count)), "gone.jpg")
    splits = splits_of(numbered)
    assert list(map(len, splits.values())) == sizes
    write_jsonl(numbered, *(f"{n}.jpg" for n in reversed(range(count))), "gone.jpg")
    assert splits_of(numbered) == splits


def test_a_split_that_is_recorded_moves_no_image(numbered):
    write_jsonl(numbered, *(f"{n}.jpg" for n in range(40)))
    held_out, before = load("train", numbered).held_out, splits_of(numbered)
    write_jsonl(numbered, *(f"{n}.jpg" for n in reversed(range(300))))
    after = splits_of(numbered, held_out=held_out)
    assert all(before[split] < names for split, names in after.items())
    assert load("train", numbered, held_out=held_out).held_out == held_out


def test_groups_are_kept_together(numbered):
    rows = [f"{n}.jpg,a dog,{n % 20 or ''}" for n in range(300)]
    (numbered / "c.csv").write_text("image,caption,patient\n" + "\n".join(rows))
    splits = splits_of(numbered, columns="group=patient")
    of_group = [{int(name[:-4]) % 20 for name in names} - {0} for names in splits.values()]
    assert sum(map(len, of_group)) == 19  # images of no group are apart
    assert [len(names) for names in splits.values()] == pytest.approx([240, 30, 30], abs=8)
    assert any(
        "19 groups kept together" in n for n in load("dev", numbered, columns="group=patient").notes
    )


@pytest.mark.parametrize(
    ("sizes", "wanted"),
    [
        ([200] * 6, [800, 200, 200]),
        ([120] * 10, [960, 120, 120]),
        ([600, *[30] * 10], [720, 90, 90]),
        ([400, 300, 100, 100, 60, 40], [800, 100, 100]),
        ([900, 50, 150], [900, 150, 50]),
        ([60, 5], [60, 5, 0]),
    ],
)
def test_large_groups_are_divided_as_nearly_as_can_be(sizes, wanted):
    """Whatever their names, and by places that can be recorded."""
    for naming in range(20):
        groups = {f"{naming}/{n}": size for n, size in enumerate(sizes)}
        places = choose_places(groups)
        recorded = parse_places(",".join(map(str, places)))
        assert recorded == places
        totals = Counter()
        for name, size in groups.items():
            totals[hashed_split(name, recorded)] += size
        assert totals["train"] == wanted[0]
        assert sorted([totals["dev"], totals["test"]]) == sorted(wanted[1:])


def test_too_few_groups_for_every_split_are_said_to_be_groups(numbered):
    rows = [f"{n}.jpg,a dog,{n % 2}" for n in range(9)]
    (numbered / "c.csv").write_text("image,caption,group\n" + "\n".join(rows))
    with pytest.raises(DataError, match="no image of the test .* add images of other groups"):
        load("test", numbered)


def test_a_group_in_two_splits_and_an_image_in_two_groups_are_errors(folder):
    text = (folder / "captions.csv").read_text("utf-8").replace("split\n", "split,group\n", 1)
    lines = [f"{line},{'cats' if n in (1, 6) else ''}" for n, line in enumerate(text.split("\n"))]
    lines[0] = lines[0].rstrip(",")
    (folder / "captions.csv").write_text("\n".join(lines[:-1]), "utf-8")
    with pytest.raises(
        DataError, match=r"group 'cats' is in two splits, train \(a.jpg\) and dev \(dev.jpg\); give"
    ):
        load("train", folder)
    rows = "image,caption,group\na.jpg,a dog,1\na.jpg,a cat,2"
    (folder / "captions.csv").write_text(rows)
    with pytest.raises(DataError, match="line 3: 'a.jpg' is in the group 2 here and 1 before"):
        load("train", folder)


def test_the_hash_of_a_name_is_for_ever():
    wanted = "dev train train train train test train train train train train test"
    assert [hashed_split(f"{n}.jpg") for n in range(12)] == wanted.split()
    sizes = {f"{n}.jpg": 1 for n in range(EXACT_BELOW)}
    assert choose_places(sizes) == (0.1, 0.2)
    assert choose_places({name: 1 for name in list(sizes)[1:]}) != (0.1, 0.2)


@pytest.mark.parametrize(
    ("written", "on_disk", "found"),
    [
        ("a.jpg", "a.JPG", True),
        ("a.jpeg", "a.png", True),
        ("a", "a.png", True),
        ("A", "a.png", False),
    ],
)
def test_the_only_file_of_a_stem_is_meant(tmp_path, written, on_disk, found):
    touch(tmp_path / on_disk)
    touch(tmp_path / "b.jpg")
    write_jsonl(tmp_path, "b.jpg", written)
    split = load("train", tmp_path, held_out="0,0")
    assert [e.image.name for e in split.examples[1:]] == [on_disk] * found
    assert found or "no image file; there is a.png" in split.skipped[0][1]


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
    [
        ("", "'dev.jpg' is in the split none here and dev"),
        ("test", "'dev.jpg' is in the split test here"),
    ],
)
def test_a_row_with_no_split_or_another_one_is_an_error(folder, split, said):
    with (folder / "captions.csv").open("a") as file:
        file.write(f"\ndev.jpg,more,{split}\n")
    with pytest.raises(DataError, match=f"captions.csv, line 9: {said}"):
        load("train", folder)


def test_an_empty_split_is_an_error_that_counts_the_others(folder):
    with pytest.raises(DataError, match="no image of the test split: of its 6 .* train 5, dev 1"):
        load("test", folder)
    for name in ("dev.jpg", *NAMES[:3]):
        (folder / name).unlink()
    said = "No image of the train split.*5 listed, 4 with no image file; 1 with no captions. The"
    with pytest.raises(DataError, match=said):
        load("train", folder)


def test_keys_of_other_data_sets_are_errors():
    with pytest.raises(ValueError, match="`--data.splits`.*flickr8k and flickr30k, got 'karpathy'"):
        DataConfig("folder", splits="karpathy")
    for key in ("captions", "image_dir"):
        with pytest.raises(ValueError, match=f"`--data.{key}`.*for scenes.* to folder, got 'x'"):
            DataConfig(**{key: "x"})
