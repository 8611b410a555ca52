"""Images that a captioner learned from: found by photo id and by content, never by name alone."""

import dataclasses
import json
import random
from pathlib import Path

import numpy as np
import pytest

from sat_tf.run_folder import RunFolder
from sat_tf.trained import published
from training.data.examples import Example
from training.data.overlap import find_overlap, seen_notes
from training.data.seen_images import COCO, FLICKR, SeenImages, content_key, photo_id, read_seen

GONE = Path("/there is no such folder")


def named(*image_ids: str, folder: Path = GONE) -> list[Example]:
    return [Example(image_id, folder / image_id, ("a dog",)) for image_id in image_ids]


def overlap_of(train: list[Example], theirs: str, split: list[Example], ours: str):
    return find_overlap(SeenImages.of(train, theirs), split, ours)


@pytest.mark.parametrize(
    ("image_id", "data", "expected"),
    [
        ("1000268201_693b08cb0e.jpg", "flickr8k", (FLICKR, 1000268201)),
        ("sub/1000268201_693b08cb0e_b.png", "folder", (FLICKR, 1000268201)),
        ("1000268201.jpg", "flickr30k", (FLICKR, 1000268201)),
        ("COCO_val2014_000000391895.jpg", "coco_captions", (COCO, 391895)),
        ("COCO_val2014_000000391895.jpg", "folder", (COCO, 391895)),
        ("391895", "coco_captions", (COCO, 391895)),
        ("202401011200.jpg", "folder", None),
        ("VizWiz_val_00000001.jpg", "folder", None),
        ("20240101_0000000012.jpg", "folder", None),
        ("12_693b08cb0e.jpg", "folder", None),
    ],
)
def test_a_name_gives_the_number_that_its_data_set_means(image_id, data, expected):
    assert photo_id(image_id, data) == expected


def test_photographs_of_flickr8k_are_found_among_those_of_flickr30k_and_counted_by_their_id():
    rng = random.Random(0)
    numbers = rng.sample(range(10**7, 5 * 10**9), 30_060)
    dev, others = numbers[:1000], numbers[1000:]
    train = named(*(f"{number}.jpg" for number in (*dev[:940], *others)))
    split = named(*(f"{number}_{rng.randrange(16**10):010x}.jpg" for number in dev))
    found = overlap_of(train, "flickr30k", split, "flickr8k")
    assert list(found.found) == [example.image_id for example in split[:940]]
    (note,) = found.notes()
    assert note.startswith("940 of 1,000 images are among those that the captioner learned from, ")
    assert "940 by Flickr's photo id" in note and repr(split[0].image_id) in note
    clean = named(*(f"{number}.jpg" for number in others))
    assert overlap_of(clean, "flickr30k", split, "flickr8k").notes() == []


def test_the_same_content_is_found_under_another_name(tmp_path):
    content = np.random.default_rng(0).bytes(50_000)
    for name, own in {"a.jpg": content, "b.jpg": content, "c.jpg": content[:-1] + b"!"}.items():
        (tmp_path / name).write_bytes(own)
    train = named("a.jpg", folder=tmp_path)
    found = overlap_of(train, "folder", named("b.jpg", "c.jpg", folder=tmp_path), "folder")
    assert dict(found.found) == {"b.jpg": ""} and found.details()["by"] == {"content": 1}
    assert content_key(content) == content_key(tmp_path / "a.jpg")
    pixels = np.zeros([2, 3, 3], np.uint8)
    split = [Example("x", pixels.copy(), ()), Example("y", pixels.reshape(3, 2, 3), ())]
    assert list(overlap_of([Example("z", pixels, ())], "scenes", split, "scenes").found) == ["x"]


@pytest.mark.parametrize(
    ("trained", "theirs", "asked", "ours"),
    [
        ("1000268201.jpg", "flickr30k", "1000268201.jpg", "folder"),
        ("COCO_val2014_000000000139.jpg", "coco_captions", "000000000139.jpg", "folder"),
        ("dog.jpg", "folder", "dog.jpg", "folder"),
    ],
)
def test_a_bare_number_or_a_name_does_not_count(trained, theirs, asked, ours):
    assert overlap_of(named(trained), theirs, named(asked), ours).notes() == []


def test_numbers_of_flickr_and_coco_are_not_compared():
    coco = named("COCO_val2014_000010000001.jpg")
    found = overlap_of(coco, "coco_captions", named("10000001_0123456789.jpg"), "flickr8k")
    assert found.notes() == []


def test_a_record_names_earlier_sources_once_and_those_without_a_record():
    first = SeenImages.of(named("1_0123456789.jpg", "2_0123456789.jpg"), "flickr8k")
    own = SeenImages.of(named("2.jpg", "3.jpg"), "flickr30k")
    both = own.after("first", first).after("gone", None).after("again", first)
    assert [source.name for source in both.sources] == ["", "first"]
    found = find_overlap(both, named("1.jpg", "2.jpg", "4.jpg"), "flickr30k")
    assert dict(found.found) == {"1.jpg": "first", "2.jpg": ""}
    seen, unknown = found.notes(with_boxes=["1.jpg", "4.jpg"])
    assert "learned from (1 of first; 1 of its own), 2 by Flickr's photo id" in seen
    assert seen.endswith("Of the 2 images with boxes, 1 are among them.")
    assert unknown.startswith("Whether images were seen in training cannot be checked for gone")


def test_a_record_stays_the_same_as_json():
    numbers = random.Random(1).sample(range(5 * 10**9), 5999)
    seen = SeenImages.of(named(*(f"{n}.jpg" for n in numbers)), "flickr30k").after("x", None)
    assert len(seen.content()) < 30_000
    again = SeenImages.from_json(json.loads(seen.content()))
    assert again.unknown == ("x",) and again.sources[0].images == 5999
    assert again.sources[0].keys[FLICKR].tolist() == sorted(numbers)


@pytest.mark.parametrize(
    "values", [None, [], {"format": 2}, {"format": 1}, {"format": 1, "sources": [{}]}]
)
def test_without_a_record_that_can_be_read_the_check_says_so(values):
    assert SeenImages.from_json(values) is None
    (note,) = seen_notes(find_overlap(None, named("1.jpg"), "folder"))
    assert note.startswith("Whether images were seen in training cannot be checked: ")


def test_a_record_that_cannot_be_opened_is_none(tmp_path, monkeypatch):
    RunFolder(tmp_path).training_images.write_bytes(SeenImages.of(named("1.jpg"), "x").content())
    assert read_seen(tmp_path).sources[0].images == 1

    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert read_seen(tmp_path) is None


@pytest.mark.parametrize("name", published.names())
def test_a_captioner_that_ships_knows_its_training_images(name):
    seen = read_seen(published.locate(name))
    split = named("2903617548_d3e38d7f88.jpg", "2090545563_a4e66ec76b.jpg")  # train, dev
    assert list(find_overlap(seen, split, "flickr8k").found) == ["2903617548_d3e38d7f88.jpg"]
    assert seen.sources[0].images == 5999 and dataclasses.asdict(seen)["unknown"] == ()
