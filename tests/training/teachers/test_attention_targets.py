"""Boxes as maps at the words of their phrases, in the views of the images."""

import json

import numpy as np

from sat_tf.objectives.likelihood import ATTENTION_TARGETS
from tests.training.data.small_captions import epochs, table_of
from training.data.boxes import place_boxes
from training.data.examples import Example, Phrase, Split
from training.data.image_loader import ImageSource
from training.teachers.boxes import attention_targets

SIZE = 8
LEFT_HALF = (0.0, 0.0, 1.0, 0.5)


def example(name="a.jpg", captions=("a red dog runs",), phrases=()):
    pixels = np.zeros([SIZE, SIZE, 3], np.uint8)
    pixels[:, 0] = 200
    return Example(name, pixels, captions, phrases)


def targets_of(examples, boxes=None, grid=(2, 4), resize="crop"):
    split = Split("train", tuple(examples))
    return attention_targets(place_boxes(boxes, split, resize), grid)


def read(targets, table, words):
    return targets.read(table, np.array([0]), words, None)[ATTENTION_TARGETS]


def boxes_of(tmp_path, **row):
    row = {"image": "a.jpg", "caption": 0, "phrase": "red dog", "span": [1, 3]} | row
    (tmp_path / "boxes.jsonl").write_text(json.dumps({"boxes": [[0, 0, 0.5, 1]]} | row))
    return tmp_path / "boxes.jsonl"


def test_every_word_of_a_phrase_gets_the_map_of_its_boxes(tmp_path):
    examples = (example(),)
    targets, (table, _) = targets_of(examples, boxes_of(tmp_path)), table_of(examples)
    (maps,) = read(targets, table, 6).reshape(1, 6, 2, 4)
    expected = np.array([[0.25, 0.25, 0.0, 0.0]] * 2)
    np.testing.assert_array_equal(maps[1], expected)
    np.testing.assert_array_equal(maps[2], expected)
    assert not maps[[0, 3, 4, 5]].any()
    assert len(targets) == 1
    first = targets_of((example(),), boxes_of(tmp_path))
    assert first.fingerprint() == targets_of((example(),), boxes_of(tmp_path)).fingerprint()
    other = targets_of((example(),), boxes_of(tmp_path, boxes=[[0, 0, 0.6, 1]]))
    assert first.fingerprint() != other.fingerprint()


def test_maps_turn_with_mirrored_images():
    phrase = Phrase(caption=0, word=2, box=LEFT_HALF, text="dog")
    examples = tuple(example(f"{n}.jpg", phrases=(phrase,)) for n in range(6))
    targets, (table, _) = targets_of(examples), table_of(examples)
    source, seen = ImageSource(examples, SIZE, "crop", mirrored=True), set()
    for batch in epochs(source, table, 0, 3, targets)[1]:
        maps = batch[ATTENTION_TARGETS].reshape(*batch[ATTENTION_TARGETS].shape[:2], 2, 4)
        assert batch["tokens"].shape[1] == maps.shape[1] + 1
        bright_left = batch["images"][:, 0, 0, 0] == 200
        assert ((maps[:, 2, :, :2].sum((1, 2)) == 1) == bright_left).all()
        seen |= set(bright_left)
    assert seen == {True, False}


def test_a_phrase_beyond_a_cut_caption_is_left_out():
    long = example(captions=("a " * 12 + "dog",), phrases=(Phrase(0, 12, LEFT_HALF, "dog"),))
    table, _ = table_of((long,))  # cut to 10 words
    assert not read(targets_of((long,)), table, 11).any()
