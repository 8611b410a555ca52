"""Readers of boxes: Flickr30k Entities' folder, JSON lines, and where phrases are in captions."""

import gzip
import json

import numpy as np
import pytest

from training.data.box_files import OUTSIDE, read_boxes
from training.data.boxes import BAD_SPAN, NO_CAPTION, NO_SPAN, place_phrases
from training.data.examples import DataError, Example

CAPTION = "A man 's red hat , on a dog ."
ROW = {
    "image": "a.jpg",
    "caption": 0,
    "phrase": "red hat",
    "span": [3, 5],
    "entity": "7",
    "type": ["clothing"],
    "boxes": [[0.1, 0.2, 0.5, 0.6]],
}
XML = """<annotation><filename>a.jpg</filename>
<size><width>200</width><height>100</height><depth>3</depth></size>
<object><name>1</name><name>2</name>
<bndbox><xmin>20</xmin><ymin>10</ymin><xmax>100</xmax><ymax>60</ymax></bndbox></object>
<object><name>1</name>
<bndbox><xmin>120</xmin><ymin>10</ymin><xmax>200</xmax><ymax>60</ymax></bndbox></object>
<object><name>3</name><nobndbox>1</nobndbox><scene>1</scene></object></annotation>"""


def example(*captions):
    return Example("a.jpg", np.zeros([2, 2, 3], np.uint8), captions)


def write(path, *rows):
    path.write_text("".join(json.dumps(ROW | row) + "\n" for row in rows))
    return path


SENTENCE = "[/EN#1/people Two men] and [/EN#2/animals/other a dog] , [/EN#3/scene sun] .\n"


def test_a_line_of_json_is_a_phrase_with_its_boxes(tmp_path):
    phrases, dropped = read_boxes(write(tmp_path / "b.jsonl", {}))
    (phrase,) = phrases["a.jpg"]
    assert phrase.boxes == ((0.2, 0.1, 0.6, 0.5),)
    assert phrase.types == ("clothing",) and phrase.span == (3, 5) and phrase.size is None
    assert not dropped
    path = tmp_path / "b.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps(ROW | {"size": [200, 100]}).encode()))
    (phrase,) = read_boxes(path)[0]["a.jpg"]
    assert phrase.size == (200, 100)


def test_the_folder_of_flickr30k_entities_is_read(tmp_path):
    for name, file, text in (("Annotations", "a.xml", XML), ("Sentences", "a.txt", SENTENCE)):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text(text)
    phrases, _ = read_boxes(tmp_path)
    men, dog = phrases["a.jpg"]
    assert men.text == "Two men" and men.span == (0, 2)
    assert men.boxes == ((0.1, 0.1, 0.6, 0.5), (0.1, 0.6, 0.6, 1.0))
    assert dog.span == (3, 5) and dog.types == ("animals", "other") and dog.size == (200, 100)
    placed, dropped = place_phrases([example("Two men and a dog , sun .")], phrases)
    assert [(p.first, p.last) for p in placed[0, 0]] == [(0, 1), (3, 4)] and not dropped


def test_places_count_tokens_of_the_tokeniser_and_what_does_not_fit_is_counted(tmp_path):
    phrases, _ = read_boxes(write(tmp_path / "b", {}, {"phrase": "a dog", "span": [7, 9]}))
    placed, dropped = place_phrases([example(CAPTION)], phrases)
    # The comma is no token.
    assert [(p.first, p.last) for p in placed[0, 0]] == [(3, 4), (6, 7)] and not dropped
    rows = (
        {"span": None},
        {"span": [3, 99]},
        {"span": [0, 2]},
        {"caption": 4},
        {"caption": None},
        {"image": "other.jpg"},
        {"boxes": [[0.1, 0.2, 1.7, 0.6]]},
        {"boxes": [[0.5, 0.2, 0.5, 0.6]]},
    )
    phrases, outside = read_boxes(write(tmp_path / "b", *rows))
    placed, dropped = place_phrases([example(CAPTION)], phrases)
    assert not placed and outside == {OUTSIDE: 2}
    assert dropped == {NO_SPAN: 1, BAD_SPAN: 2, NO_CAPTION: 2}


def instances(**changes) -> dict:
    values = {
        "images": [{"id": 5, "file_name": "a.jpg", "width": 200, "height": 100}],
        "categories": [{"id": 1, "name": "fire hydrant"}, {"id": 2, "name": "dog"}],
        "annotations": [
            {"image_id": 5, "category_id": 1, "bbox": [20, 10, 80, 50]},
            {"image_id": 5, "category_id": 2, "bbox": [0, 0, 100, 100]},
            {"image_id": 5, "category_id": 2, "bbox": [100, 0, 100, 50]},
        ],
    }
    return values | changes


def test_instances_belong_to_every_caption_that_names_their_category(tmp_path):
    (tmp_path / "instances.json").write_text(json.dumps(instances()))
    captions = ("Two dogs by a fire hydrant .", "A dog , a dog .", "Doggy fire .")
    placed, dropped = place_phrases(
        [example(*captions)], read_boxes(tmp_path / "instances.json")[0]
    )
    found = {key: [(p.first, p.last, p.phrase.text) for p in of] for key, of in placed.items()}
    hydrant, dog = (4, 5, "fire hydrant"), "dog"
    assert found == {(0, 0): [hydrant, (1, 1, dog)], (0, 1): [(1, 1, dog), (3, 3, dog)]}
    assert placed[0, 0][0].phrase.boxes == ((0.1, 0.1, 0.6, 0.5),)
    assert placed[0, 0][0].phrase.size == (200, 100)
    assert placed[0, 0][1].phrase.boxes == ((0.0, 0.0, 1.0, 0.5), (0.0, 0.5, 0.5, 1.0))
    assert not dropped


@pytest.mark.parametrize(
    "text", ["[]", "{", json.dumps(instances(images=[])), json.dumps(instances(categories=[{}]))]
)
def test_a_file_that_holds_no_instances_is_an_error(tmp_path, text):
    (tmp_path / "instances.json").write_text(text)
    with pytest.raises(DataError, match="expected instances of COCO"):
        read_boxes(tmp_path / "instances.json")


@pytest.mark.parametrize(
    "text",
    ["{}", "not json", *(json.dumps(ROW | one) for one in ({"boxes": [[1, 2]]}, {"size": [0, 9]}))],
)
def test_a_line_that_is_no_phrase_is_an_error(tmp_path, text):
    (tmp_path / "b").write_text(text + "\n")
    with pytest.raises(DataError, match="line 1"):
        read_boxes(tmp_path / "b")


def test_nothing_to_read_is_an_error(tmp_path):
    with pytest.raises(DataError, match="no file or folder"):
        read_boxes(tmp_path / "none")
    with pytest.raises(DataError, match="Sentences"):
        read_boxes(tmp_path)
    with pytest.raises(DataError, match=r"JSON lines must not end in \.json"):
        read_boxes(write(tmp_path / "b.json", {}, {}))
    (tmp_path / "empty").write_text("")
    with pytest.raises(DataError, match="no phrase"):
        read_boxes(tmp_path / "empty")


WHOLE = gzip.compress(json.dumps(ROW).encode() * 50)
DAMAGED = {
    "cut": WHOLE[: len(WHOLE) // 2],
    "no header": b"\x1f\x8b\xff\xff\xff\xff",
    "bad block": WHOLE[:10] + b"\xff" * 20,
    "bad sum": WHOLE[:-8] + b"\0" * 8,
    "no utf-8": json.dumps(ROW).encode() + b"\xe9\n",
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_is_named(tmp_path, name):
    path = tmp_path / "b.jsonl.gz"
    path.write_bytes(DAMAGED[name])
    with pytest.raises(DataError, match=r"b\.jsonl\.gz: expected JSON lines in UTF-8"):
        read_boxes(path)


@pytest.mark.parametrize("image", ["./a.jpg", "x/../a.jpg", "x\\..\\a.jpg"])
def test_an_image_s_name_may_have_another_form(tmp_path, image):
    phrases, _ = read_boxes(write(tmp_path / "b", {"image": image}))
    placed, _ = place_phrases([example(CAPTION)], phrases)
    assert len(placed[0, 0]) == 1
