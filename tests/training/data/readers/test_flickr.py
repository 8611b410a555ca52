"""Flickr8k and Flickr30k as published, and in Karpathy's splits."""

import json
from pathlib import Path

import pytest

from training.data.examples import DataError
from training.data.readers import load_split
from training.run.config import DataConfig

TOKENS = "Flickr8k.token.txt"
TRAIN, DEV, TEST = (f"Flickr_8k.{split}Images.txt" for split in ("train", "dev", "test"))
RESULTS, JSON = "results_20130124.token", "dataset_flickr30k.json"
SPLITS = {"train": ("b.jpg", "gone.jpg", "a.jpg"), "val": ("d.jpg",), "test": ("e.jpg",)}


def load(split: str, folder: Path, name: str = "flickr8k", **options):
    return load_split(DataConfig(name, **options), split, folder)


def names_of(split) -> list[str]:
    return [example.image_id for example in split.examples]


@pytest.fixture
def folder(tmp_path) -> Path:
    """Images a, b, c; a and b in train, c in dev; two captions each; no test list."""
    images = tmp_path / "Flicker8k_Dataset"
    images.mkdir()
    lines = ["nowhere.jpg.1#0\tIn no split and no file .\n"]
    for name in "abc":
        (images / f"{name}.jpg").write_bytes(b"never opened")
        lines += [f"{name}.jpg#{k}\tCaption {k} of {name} .\n" for k in (1, 0)]
    (tmp_path / TOKENS).write_text("".join(lines))
    (tmp_path / TRAIN).write_text("b.jpg\na.jpg\n")
    (tmp_path / DEV).write_text("c.jpg\n")
    return tmp_path


def append(path: Path, text: str) -> None:
    path.write_text(path.read_text() + text)


def test_a_split_holds_its_images_in_order_with_numbered_captions(folder):
    split = load("train", folder)
    assert split.name == "train" and not split.skipped
    assert names_of(split) == ["b.jpg", "a.jpg"]
    assert split.examples[1].image == folder / "Flicker8k_Dataset" / "a.jpg"
    assert split.examples[1].captions == ("Caption 0 of a .", "Caption 1 of a .")
    (folder / "Flicker8k_Dataset").rename(folder / "Flickr8k_Dataset")
    assert len(load("train", folder)) == 2


def test_a_missing_list_is_an_error_that_names_it_and_those_present(folder):
    with pytest.raises(DataError, match=f"{TEST} is missing.*{TRAIN}, {DEV}"):
        load("test", folder)
    (folder / TRAIN).unlink()
    (folder / DEV).rename(folder / TEST)
    assert names_of(load("test", folder)) == ["c.jpg"]


def test_one_number_with_two_captions_is_an_error_and_a_repeated_line_is_not(folder):
    append(folder / TOKENS, "a.jpg#0\tCaption 0 of a .\n")
    assert len(load("train", folder).examples[1].captions) == 2
    append(folder / TOKENS, "a.jpg#0\tAnother .\n")
    with pytest.raises(DataError, match="line 9: a second, different caption a.jpg#0"):
        load("train", folder)


@pytest.mark.parametrize(
    ("content", "said"),
    [("\n  \n", "is empty"), ("x.jpg\ny.jpg\n", "can be used.*2 listed, 2 with no image file")],
)
def test_a_list_without_a_usable_image_is_an_error(folder, content, said):
    (folder / TRAIN).write_text(content)
    with pytest.raises(DataError, match=f"{TRAIN} {said}"):
        load("train", folder)


def test_images_without_file_or_captions_are_skipped_with_a_reason(folder):
    append(folder / TRAIN, "gone.jpg\n../Flickr8k.token.txt\nblank.jpg\nb.jpg\n")
    (folder / "Flicker8k_Dataset" / "blank.jpg").touch()
    append(folder / TOKENS, "gone.jpg#0\tA caption .\nblank.jpg#0\t \n")
    split = load("train", folder)
    assert names_of(split) == ["b.jpg", "a.jpg"]
    assert split.skipped == (
        ("gone.jpg", "no image file in Flicker8k_Dataset"),
        ("../Flickr8k.token.txt", "no image file in Flicker8k_Dataset"),
        ("blank.jpg", f"no captions in {TOKENS}"),
    )
    limited = load("train", folder, limit=1)
    assert names_of(limited) == ["b.jpg"] and not limited.skipped


def test_a_folder_of_another_shape_is_an_error_that_says_what_was_found(folder):
    (folder / TOKENS).rename(folder / "captions.txt")
    said = f"Missing: {TOKENS}. Found: Flicker8k_Dataset/, {DEV}.*captions.txt.*folder_soft`"
    with pytest.raises(DataError, match=said):
        load("train", folder)
    empty = folder / "empty"
    empty.mkdir()
    with pytest.raises(DataError, match="Missing: .*Dataset/; .*token.txt; one of .*an empty f"):
        load("train", empty)
    for nowhere in (folder / "nowhere", None):
        with pytest.raises(DataError, match="--data-dir"):
            load("train", nowhere)


@pytest.fixture
def copy(tmp_path) -> Path:
    """Flickr30k without published captions; gone.jpg has no file."""
    images = tmp_path / "flickr30k-images"
    images.mkdir()
    listed = []
    for split, files in SPLITS.items():
        for file in files:
            if file != "gone.jpg":
                (images / file).write_bytes(b"never opened")
            sentences = [{"raw": f"{file} {k} .", "sentid": k} for k in range(2)]
            listed.append({"filename": file, "split": split, "sentences": sentences})
    (tmp_path / JSON).write_text(json.dumps({"images": listed, "dataset": "flickr30k"}))
    return tmp_path


def test_karpathys_file_alone_suffices(copy):
    split = load("train", copy, "flickr30k")
    assert names_of(split) == ["b.jpg", "a.jpg"]
    assert split.examples[0].captions == ("b.jpg 0 .", "b.jpg 1 .")
    assert split.skipped == (("gone.jpg", "no image file in flickr30k-images"),)
    assert names_of(load("dev", copy, "flickr30k")) == ["d.jpg"]
    with pytest.raises(ValueError, match="`--data.splits`.*Flickr30k has no official splits"):
        load("train", copy, "flickr30k", splits="official")
    (copy / "flickr30k-images").rename(copy / "Flickr8k_Dataset")
    (copy / JSON).rename(copy / "dataset_flickr8k.json")
    assert len(load("train", copy, splits="karpathy")) == 2
    with pytest.raises(DataError, match=r"Missing: Flickr8k.token.txt; one of Flickr_8k.train"):
        load("train", copy)


def test_published_captions_come_first(copy):
    text = "b.jpg#1\tTwo\ttabs .\nb.jpg#0\tOne .\n"
    (copy / RESULTS).write_text(text)
    split = load("train", copy, "flickr30k")
    assert [example.captions for example in split.examples] == [("One .", "Two tabs .")]
    assert split.skipped[1] == ("a.jpg", f"no captions in {RESULTS}")


def test_a_missing_file_or_split_is_an_error(copy):
    path = copy / JSON
    content = json.loads(path.read_text())
    content["images"] = [image for image in content["images"] if image["split"] != "test"]
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match=f"{path.name} names no image of the test split"):
        load("test", copy, "flickr30k")
    path.unlink()
    with pytest.raises(DataError, match=f"is not a Flickr.*Missing: {JSON}. Found: flickr30k-i"):
        load("train", copy, "flickr30k")


def test_the_real_flickr8k_loads_whole(real_data):
    folder = real_data / "data" / "flickr8k"
    train, dev = (load(split, folder) for split in ("train", "dev"))
    assert (len(train), len(dev)) == (5999, 1000)
    assert not train.skipped and not dev.skipped
    assert {len(example.captions) for example in train.examples + dev.examples} == {5}
