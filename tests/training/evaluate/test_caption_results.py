"""Files of captions: what is read, what is refused, and that they are the split's."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from training.data.examples import DataError, Example, Split
from training.evaluate.given_captions import captions_of, parse_captions, write_captions

PATH = Path("theirs.json")
PIXELS = np.zeros([2, 2, 3], np.uint8)
SPLIT = Split("dev", tuple(Example(i, PIXELS, ("c",)) for i in "abc"), (("d", "no file"),))


def parse(rows) -> dict[str, str]:
    return parse_captions(json.dumps(rows).encode(), PATH)


def test_a_character_of_two_escapes_is_whole():
    row = b'[{"image_id": 1, "caption": "\\ud83d\\ude00"}]'
    assert parse_captions(row, PATH) == {"1": "\U0001f600"}


def test_what_is_written_is_read_again(tmp_path):
    rows = [{"image_id": "x", "caption": "caf\u00e9 \u72d7", "score": -1.5, "alternatives": []}]
    write_captions(tmp_path, rows)
    path = tmp_path / "captions.json"
    assert json.loads(path.read_text("utf-8")) == rows
    assert parse_captions(path.read_bytes(), path) == {"x": "caf\u00e9 \u72d7"}


def test_results_of_coco_with_numbers_as_ids_are_read():
    rows = [{"image_id": 42, "caption": "a cat", "id": 7}, {"image_id": "9", "caption": ""}]
    assert parse(rows) == {"42": "a cat", "9": ""}
    assert parse_captions(b"\xef\xbb\xbf[]", PATH) == {}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a cat\n", "theirs.json is not JSON"),
        (b"\xff\xfe\xff", "theirs.json is not JSON"),
        (b'{"annotations": []}', "expected a list of captions, got a JSON dict"),
        (b'["a cat"]', "caption 1: expected an object with `image_id` and `caption`"),
        (b'[{"image_id": 3}]', "caption 1: expected an object with `image_id` and `caption`"),
        (b'[{"image_id": true, "caption": ""}]', "as `image_id`: True"),
        (b'[{"image_id": 1.5, "caption": ""}]', "as `image_id`: 1.5"),
        (b'[{"image_id": 1, "caption": ["a"]}]', "expected a text as `caption`"),
        (
            b'[{"image_id": 1, "caption": "a \\udc00"}]',
            "(a lone surrogate) in `caption`",
        ),
        (b'[{"image_id": "\\ud83d", "caption": ""}]', "(a lone surrogate) in `image_id`"),
        (
            b'[{"image_id": 1, "caption": "a"}, {"image_id": "1", "caption": "a"}]',
            "caption 2: image '1' has one already",
        ),
    ],
)
def test_anything_else_is_an_error_that_says_where(content, message):
    with pytest.raises(DataError) as error:
        parse_captions(content, PATH)
    assert message in str(error.value) and "theirs.json" in str(error.value)


def test_captions_follow_the_order_of_the_split_without_skipped_images():
    found = captions_of(SPLIT, {"c": "3", "d": "4", "a": "1", "b": "2"}, PATH)
    assert list(found.items()) == [("a", "1"), ("b", "2"), ("c", "3")]


def test_a_missing_caption_is_named():
    with pytest.raises(DataError, match=r"2 of 3 images of the dev split .* such as 'b'"):
        captions_of(SPLIT, {"a": "1"}, PATH)


def test_an_unknown_image_is_named_beside_a_known_one():
    with pytest.raises(DataError, match=r"1 of 4 captions .* such as 'x.jpg'.* called 'a'"):
        captions_of(SPLIT, {"a": "", "b": "", "c": "", "x.jpg": ""}, PATH)
