"""Splits; and the record of a run's data: what was read comes back, what changed is named."""

import json
import re
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sat_tf.util.errors import RunError
from training.data import dataset as datasets
from training.data.dataset import Dataset, Lines, read_header, read_split, read_splits
from training.data.examples import DataError, Example, Phrase, Split, canonical_split
from training.data.readers import load_split
from training.run.config import DataConfig

CONFIG = DataConfig("folder", image_dir="images")
SPLITS = ["train", "train", "dev", "train", "test"]


@pytest.fixture
def folder(tmp_path):
    """Five images in a folder of their own, one without a file and one without a caption."""
    folder = tmp_path / "data"
    (folder / "images").mkdir(parents=True)
    rows = []
    for n, split in enumerate(SPLITS):
        name = f"\u00fc {n}.png"
        Image.fromarray(np.full([20, 20, 3], n, np.uint8)).save(folder / "images" / name)
        rows += [{"image": name, "caption": f"a dog {n} {k}", "split": split} for k in range(2)]
        rows[-1]["group"] = rows[-2]["group"] = f"film {n}"
    lost = {"image": "gone.png", "caption": "a cat", "split": "train", "group": "film 9"}
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in [*rows, lost])
    (folder / "captions.jsonl").write_text(text, "utf-8")
    return folder


@pytest.fixture
def record(folder, tmp_path):
    return written(folder, tmp_path / "dataset.jsonl")


def opened(folder, record=None) -> Dataset:
    return Dataset.open(CONFIG, folder, folder.parent / "cache", record)


def evaluated(folder, split, record):
    return read_split(CONFIG, split, folder, folder.parent / "cache", record)


def written(folder, path):
    opened(folder).write(path)
    return path


def test_the_record_leads_back_to_the_same_splits_without_the_layout(folder, record, monkeypatch):
    expected = opened(folder)
    monkeypatch.setattr(datasets, "Source", None)
    found = opened(folder, record)
    pairs = {name: (found.split(name), expected.split(name)) for name in ("train", "dev")}
    pairs["test"] = evaluated(folder, "test", record), expected.split("test")
    for name, (one, other) in pairs.items():
        assert one.fingerprint() == other.fingerprint() and len(one) == SPLITS.count(name)
        assert (one.skipped, one.notes, one.held_out) == (other.skipped, other.notes, None)
        assert one.examples[-1:] and one.examples[-1].image_id == [*one.examples][-1].image_id
        for mine, theirs in zip(one.examples, other.examples, strict=True):
            assert mine == theirs or vars_of(mine) == vars_of(theirs)
    assert dict(found.split("train").skipped).keys() == {"gone.png"}
    moved = folder.rename(folder.with_name("elsewhere"))
    assert opened(moved, record).split("dev").examples[0].image.is_file()


def vars_of(example) -> tuple:
    names = ("image_id", "image", "captions", "group", "sha256")
    return tuple(getattr(example, name) for name in names)


def test_a_person_can_read_it(record):
    first, *lines = map(json.loads, record.read_text("utf-8").splitlines())
    assert first["read"].keys() == {"captions.jsonl"}
    digests = lines[0].pop("sha256"), lines[0].pop("check")
    assert [len(digest) for digest in digests] == [64, 8]
    assert lines[0] == {
        "image": "\u00fc 0.png",
        "split": "train",
        "captions": ["a dog 0 0", "a dog 0 1"],
        "group": "film 0",
        "file": "images/\u00fc 0.png",
    }
    assert lines[3]["image"] == "gone.png" and lines[3]["left_out"].startswith("no image file")


def test_a_record_that_was_edited_or_cut_is_named_with_the_line(folder, record):
    lines = record.read_bytes().splitlines(keepends=True)
    first, second, third, rest = *lines[:3], lines[3:]
    edits = {
        1: [first.replace(b'"images": 3', b'"images": 2'), second, third, *rest],
        2: [first, second.replace(b"a dog", b"a cat"), third, *rest],
        3: [first, second, second, third, *rest],
        4: [first, second, third, b"\n", *rest],
        len(lines): [*lines[:-1], lines[-1][:20]],
    }
    for number, edited in edits.items():
        record.write_bytes(b"".join(edited))
        with pytest.raises(DataError, match=f"line {number} is not as it was written") as error:
            opened(folder, record)
        assert str(record) in str(error.value) and "another `--run-dir`" in str(error.value)
        with pytest.raises(DataError, match=f"line {number} "):
            evaluated(folder, "dev", record)
    record.write_bytes(b"".join(lines[:-4]))
    with pytest.raises(DataError, match="is not whole: expected 3 images of the train split"):
        opened(folder, record)
    record.write_bytes(b"")
    with pytest.raises(DataError, match="is empty"):
        opened(folder, record)


def test_data_that_changed_is_named_or_read_anew(folder, record, capsys):
    image = folder / "images" / "\u00fc 3.png"
    before = image.read_bytes()
    changed = "1 image of the train split changed or vanished .* such as \u00fc 3.png"
    image.unlink()
    with pytest.raises(DataError, match=changed):
        opened(folder, record)
    Image.fromarray(np.full([20, 20, 3], 99, np.uint8)).save(image)
    with pytest.raises(DataError, match=changed):
        opened(folder, record)
    assert evaluated(folder, "train", record).examples[2].sha256 is not None
    assert re.search(f"Note: {changed}", capsys.readouterr().out)
    image.write_bytes(before)
    opened(folder, record).split("train")
    captions = folder / "captions.jsonl"
    captions.write_text(captions.read_text("utf-8").replace("a dog 2", "a cat 2"), "utf-8")
    with pytest.raises(DataError, match="captions.jsonl has changed since"):
        opened(folder, record)
    again = evaluated(folder, "dev", record)
    assert again.examples[0].captions[0] == "a cat 2 0"
    assert "captions.jsonl has changed" in capsys.readouterr().out
    captions.unlink()
    with pytest.raises(DataError, match="captions.jsonl, which .* was made of, is gone"):
        opened(folder, record)


def test_a_split_takes_little_memory_and_reads_its_part_of_the_record(folder, record):
    one = opened(folder).split("train").examples.line(0)
    lines = Lines(record.with_name("lines").open("w+b", buffering=0), folder)
    for number in range(2000):
        lines.add(number * len(one), len(one))
    record.with_name("lines").write_bytes(2000 * one)
    Dataset({"train": Split("train", lines)}, (), folder, False).write(record)
    header = read_header(record)
    tracemalloc.start()
    try:
        split = read_splits(record, header, folder)["train"]
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 0.5 * record.stat().st_size
    assert len(split) == 2000 and split.examples[1999].captions == ("a dog 0 0", "a dog 0 1")
    record.write_bytes(record.read_bytes()[: -len(one)])
    with pytest.raises(RunError, match=f"{record.name} was edited while it was in use: image 2000"):
        split.examples[1999]


def test_drawn_data_is_recorded_and_drawn_again(tmp_path):
    config, record = DataConfig("scenes", limit=3), tmp_path / "dataset.jsonl"
    data = Dataset.open(config, None, tmp_path)
    expected = data.split("train")
    data.write(record)
    assert len(record.read_text().splitlines()) == 7
    found = Dataset.open(config, None, tmp_path, record).split("train")
    assert found.fingerprint() == expected.fingerprint()


def test_published_data_sets_are_known_by_their_files_too(tmp_path, capsys):
    folder, record = tmp_path / "flickr", tmp_path / "dataset.jsonl"
    (folder / "Flicker8k_Dataset").mkdir(parents=True)
    for n, split in enumerate(("train", "dev")):
        Image.fromarray(np.full([20, 20, 3], n, np.uint8)).save(
            folder / f"Flicker8k_Dataset/{n}.jpg"
        )
        (folder / f"Flickr_8k.{split}Images.txt").write_text(f"{n}.jpg\n")
    captions = folder / "Flickr8k.token.txt"
    captions.write_text("0.jpg#0\ta dog\n1.jpg#0\ta dog\n")
    given = DataConfig("flickr8k"), folder, tmp_path / "cache", record
    Dataset.open(*given).write(record)
    captions.write_text("0.jpg#0\ta dog\n1.jpg#0\ta cat\n")
    with pytest.raises(DataError, match="Flickr8k.token.txt has changed since"):
        Dataset.open(*given)
    again = read_split(given[0], "dev", *given[1:])
    assert again.examples[0].captions == ("a cat",)
    assert "Flickr8k.token.txt has changed" in capsys.readouterr().out


def test_val_means_dev():
    assert canonical_split("val") == "dev"
    with pytest.raises(ValueError, match="`split`.*'both'"):
        canonical_split("both")


@pytest.mark.parametrize("data_dir", [None, Path("no/such/folder")])
def test_a_missing_folder_is_an_error_that_names_the_flag(data_dir):
    with pytest.raises(DataError, match="--data-dir"):
        load_split(DataConfig("flickr8k"), "train", data_dir)


def test_the_fingerprint_follows_the_content():
    image = np.zeros((2, 3, 3), np.uint8)
    phrase = Phrase(0, 2, (0.1, 0.2, 0.3, 0.4), "red ball")
    example = Example("0", image, ("a red ball",), (phrase,))
    split = Split("dev", (example,))
    brighter = image.copy()
    brighter[1, 2, 0] = 1
    changes = (
        {"image_id": "1"},
        {"image": brighter},
        {"image": image.reshape(3, 2, 3)},
        {"captions": ("a red", "ball")},
        {"phrases": ()},
        {"phrases": (replace(phrase, box=(0.1, 0.2, 0.3, 0.5)),)},
    )
    others = [replace(split, examples=(replace(example, **change),)) for change in changes]
    others += [replace(split, name="test"), replace(split, examples=(example, example))]
    prints = {split.fingerprint(), *(other.fingerprint() for other in others)}
    assert len(prints) == 1 + len(others)
    same = replace(split, examples=(replace(example, image=image.copy()),))
    assert same.fingerprint() == split.fingerprint()
