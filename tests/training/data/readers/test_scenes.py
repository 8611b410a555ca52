import itertools

import numpy as np
import pytest

from sat_tf.text.words import tokenize
from training.data.readers import scenes


@pytest.fixture(scope="module")
def train():
    return scenes.load("train", count=300)


@pytest.fixture(scope="module")
def dev():
    return scenes.load("dev", count=300)


def boxes(example):
    return sorted({phrase.box for phrase in example.phrases})


def pairs(split):
    return [tuple(p.text.split()[1:]) for e in split.examples for p in e.phrases if p.caption == 0]


def test_same_seed_draws_the_same_split_whatever_its_count_or_image_size(dev):
    assert scenes.load("dev", count=300).fingerprint() == dev.fingerprint()
    for short, long in zip(scenes.load("dev", count=3).examples, dev.examples, strict=False):
        assert short.captions == long.captions
        assert short.phrases == long.phrases
        np.testing.assert_array_equal(short.image, long.image)
    large = scenes.load("dev", count=4, image_size=96)
    for a, b in zip(large.examples, dev.examples, strict=False):
        assert a.image.shape == (96, 96, 3)
        assert (a.captions, a.phrases) == (b.captions, b.phrases)


@pytest.mark.parametrize("shape", scenes.SHAPES)
@pytest.mark.parametrize("side", [12.3, 20.7])
def test_boxes_are_tight_around_the_drawn_pixels(shape, side):
    item = scenes.SceneObject("small", "white", shape, 27.4, 35.8, side)
    empty, full = (
        scenes.draw(objects, (), np.random.default_rng(3), 64).astype(int)
        for objects in ((), (item,))
    )
    # The same generator draws the same tint; noise aside only the object differs.
    rows, columns = np.nonzero(np.abs(full - empty).max(axis=-1) > 40)
    drawn = (rows.min(), columns.min(), rows.max() + 1, columns.max() + 1)
    np.testing.assert_allclose(drawn, np.array(item.box) * 64, atol=1.5)
    middle = full[34:38, 26:29].min()
    assert middle > 200


def test_marks_stay_off_the_objects_whose_colours_they_share_and_within_their_radius():
    shared = 0
    for index in range(100):
        rng = np.random.default_rng(index)
        objects = scenes.place_objects(rng, scenes.PAIRS)
        marks = scenes.place_marks(rng, objects)
        assert marks
        shared += bool({m.colour for m in marks} & {item.colour for item in objects})
        for mark, item in itertools.product(marks, objects):
            apart = max(abs(mark.x - item.x), abs(mark.y - item.y))
            assert apart >= item.side / 2 + scenes.MARK_RADIUS
    assert shared > 40  # the colours in an image do not tell what its objects are
    for kind in scenes.MARKS:
        y, x = np.mgrid[-9.0:9.1:0.2, -9.0:9.1:0.2]
        mark = scenes.Mark(kind, "red", 0.0, 0.0, 0.7)
        inside = scenes.mark_distances((mark,), x[None], y[None])[0] < 0
        assert 0 < np.hypot(x, y)[inside].max() <= scenes.MARK_RADIUS


def test_training_scenes_hold_every_number_colour_and_shape_but_no_held_out_pair(train):
    assert {len(boxes(e)) for e in train.examples} == {1, 2, 3}
    assert {colour for colour, _ in pairs(train)} == set(scenes.COLOURS)
    assert {shape for _, shape in pairs(train)} == set(scenes.SHAPES)
    shares = [(b[2] - b[0]) * (b[3] - b[1]) for e in train.examples for b in boxes(e)]
    assert 0.03 < np.median(shares) <= 0.1
    assert train.examples[12].image_id == "scenes-train-000012"
    assert not set(pairs(train)) & set(scenes.HELD_OUT)
    assert all(p.seen for e in train.examples for p in e.phrases)
    for example in train.examples:
        assert len(set(example.captions)) == 5
        assert all(4 <= len(tokenize(c)) <= 20 for c in example.captions)
        assert all(" ".join(tokenize(c)) == c for c in example.captions)


def test_held_out_pairs_occur_at_their_rate_in_dev(dev):
    found = [pair in scenes.HELD_OUT for pair in pairs(dev)]
    natural = len(scenes.HELD_OUT) / (len(scenes.COLOURS) * len(scenes.SHAPES))
    assert 0.08 < natural < 0.12
    assert abs(np.mean(found) - natural) < 0.05
    for phrase in (p for e in dev.examples for p in e.phrases):
        assert phrase.seen == (tuple(phrase.text.split()[1:]) not in scenes.HELD_OUT)
    for example in dev.examples:
        colours = [p.text.split()[1] for p in example.phrases if p.caption == 0]
        assert len(set(colours)) == len(colours)


def test_head_noun_is_the_shape_and_every_object_is_named_in_every_caption(dev):
    for example in dev.examples:
        for index, caption in enumerate(example.captions):
            words = tokenize(caption)
            found = [p for p in example.phrases if p.caption == index]
            assert sorted(p.box for p in found) == boxes(example)
            for phrase in found:
                assert words[phrase.word] in scenes.SHAPES
                assert " ".join(words[phrase.word - 2 : phrase.word + 1]) == phrase.text


def test_relations_hold_with_a_margin(dev):
    axis = {"left of": (1, -1), "right of": (1, 1), "above": (0, -1), "below": (0, 1)}
    checked = set()
    for example in dev.examples:
        for index, caption in enumerate(example.captions):
            words = tokenize(caption)
            found = [p for p in example.phrases if p.caption == index]
            for a, b in itertools.pairwise(found):
                name = " ".join(words[a.word + 1 : b.word - 3])
                which, sign = axis[name]
                apart = [(a.box[k] + a.box[k + 2] - b.box[k] - b.box[k + 2]) / 2 for k in (0, 1)]
                assert apart[which] * sign > abs(apart[1 - which]) + 4.9 / 64
                checked.add(name)
    # Captions go from left to right, so nothing is ever to the right of what follows it.
    assert checked == set(scenes.RELATIONS) - {"right of"}


def test_order_of_objects_can_be_seen():
    def item(colour, x, y):
        return scenes.SceneObject("small", colour, "circle", x, y, 12.0)

    upper, lower = item("red", 30.0, 10.0), item("blue", 20.0, 50.0)
    right = item("green", 55.0, 30.0)
    assert scenes.describe((lower, upper))[0] == (
        "a small blue circle below a small red circle",
        "there is a small blue circle below a small red circle",
        "the picture shows a small blue circle below a small red circle",
        "a picture of a small blue circle below a small red circle",
        "we see a small blue circle below a small red circle",
    )
    assert scenes.describe((right, upper, lower))[0][0] == (
        "a small blue circle below a small red circle left of a small green circle"
    )
