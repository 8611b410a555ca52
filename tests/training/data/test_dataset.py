"""Splits; and the record of a run's data: it is read again, and changes are named."""

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sat_tf.util.files import sha256_of
from training.data import dataset as datasets
from training.data.dataset import Dataset, identify, read_split
from training.data.examples import DataError, Example, Phrase, Split, canonical_split
from training.run.config import DataConfig

CONFIG = DataConfig("folder", image_dir="images")
SPLITS = ["train", "train", "dev", "train", "test"]


@pytest.fixture
def folder(tmp_path):
    """Five images in a folder, one without a file and one without a caption."""
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
    assert len(lines[0].pop("sha256")) == 64
    assert lines[0] == {
        "image": "\u00fc 0.png",
        "split": "train",
        "captions": ["a dog 0 0", "a dog 0 1"],
        "group": "film 0",
        "file": "images/\u00fc 0.png",
    }
    assert lines[3]["image"] == "gone.png" and lines[3]["left_out"].startswith("no image file")


def test_a_record_that_was_edited_or_cut_is_refused(folder, record):
    content, digest = record.read_bytes(), record.with_suffix(".sha256")
    for edited in (content.replace(b"a dog", b"a cat", 1), content[:-1], b""):
        record.write_bytes(edited)
        with pytest.raises(
            DataError, match="is not as it was written.*another `--run-dir`"
        ) as error:
            opened(folder, record)
        assert str(record) in str(error.value)
        with pytest.raises(DataError, match="is not as it was written"):
            evaluated(folder, "dev", record)
    record.write_bytes(content)
    opened(folder, record)
    digest.unlink()
    with pytest.raises(DataError, match="dataset.sha256 is gone"):
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


@pytest.fixture
def three(tmp_path):
    """Files in two folders."""
    paths = [tmp_path / "a" / "0.png", tmp_path / "a" / "1.png", tmp_path / "b" / "0.png"]
    for place, path in enumerate(paths):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"content" + bytes([place]) * 10_000)
    return paths


@pytest.fixture
def read(monkeypatch):
    """The images that are read, in order."""
    read, original = [], Path.read_bytes

    def noted(path):
        read.extend([path] if path.suffix == ".png" else [])
        return original(path)

    monkeypatch.setattr(Path, "read_bytes", noted)
    return read


def digests_of(paths):
    return [sha256_of(path) for path in paths]


def test_files_are_read_once_and_again_if_anything_about_them_changed(three, tmp_path, read):
    assert identify(three, tmp_path) == digests_of(three)
    assert identify(three[::-1], tmp_path) == digests_of(three)[::-1]
    assert identify(three[:1], tmp_path) == digests_of(three[:1])
    assert sorted({*read}) == three and len(read) == 3
    status = three[1].stat()
    content = bytearray(three[1].read_bytes())
    content[5_000] ^= 1  # in the middle, as of a copy that went wrong
    three[1].write_bytes(content)
    os.utime(three[1], ns=(status.st_atime_ns, status.st_mtime_ns))
    read.clear()
    assert identify(three, tmp_path) == digests_of(three)
    assert read == [three[1]]


@pytest.mark.parametrize(
    "kept", [[], {"0.png": 5}, {"0.png": [1, "x"]}, {"0.png": None}, "[" * 99_999]
)
def test_digests_of_another_shape_and_pipes_are_no_digests(three, tmp_path, kept):
    expected = digests_of(three[:2])
    identify(three[:2], tmp_path)
    (file,) = (tmp_path / "digests").glob("*.json")
    file.write_text(kept if isinstance(kept, str) else json.dumps(kept))
    assert identify(three[:2], tmp_path) == expected
    os.mkfifo(tmp_path / "a" / "pipe.png")
    assert identify([tmp_path / "a" / "pipe.png", three[0]], tmp_path) == [None, expected[0]]


def test_drawn_data_is_recorded_and_drawn_again(tmp_path):
    config, record = DataConfig("scenes", limit=3), tmp_path / "dataset.jsonl"
    data = Dataset.open(config, None, tmp_path)
    expected = data.split("train")
    data.write(record)
    assert len(record.read_text().splitlines()) == 7
    found = Dataset.open(config, None, tmp_path, record).split("train")
    assert found.fingerprint() == expected.fingerprint()


def test_val_means_dev():
    assert canonical_split("val") == "dev"
    with pytest.raises(ValueError, match="`split`.*'both'"):
        canonical_split("both")


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
