"""Words of captions of drawn scenes, judged by what the scenes hold."""

import numpy as np
import pytest

from training.data.examples import Example, Split
from training.data.sources import scenes
from training.data.sources.scenes import SceneObject, describe
from training.metrics.scene_words import NounPhrase, parse, word_scores

RED_CIRCLE = SceneObject("small", "red", "circle", 12.0, 30.0, 12.0)
BLUE_SQUARE = SceneObject("large", "blue", "square", 45.0, 32.0, 20.0)
RED_STAR = SceneObject("small", "red", "star", 30.0, 30.0, 12.0)  # held out


def split_of(*objects):
    captions, phrases = describe(objects)
    example = Example("a", np.zeros((64, 64, 3), np.uint8), captions, phrases)
    return Split("dev", (example,))


def score(caption, *objects):
    scores = word_scores({"a": caption}, split_of(*objects))
    return {name.removeprefix("words_"): value for name, value in scores.items()}


@pytest.mark.parametrize("which", range(5))
def test_reference_captions_are_all_right(which):
    split = scenes.load("dev", count=200)
    captions = {e.image_id: e.captions[which] for e in split.examples}
    scores = word_scores(captions, split)
    assert set(scores.values()) == {100.0}
    assert {name.removeprefix("words_") for name in scores} == {
        "colour_seen", "colour_held_out", "shape_seen", "shape_held_out",
        "pair_seen", "pair_held_out", "size", "relation", "objects",
    }  # fmt: skip


def test_parse_reads_phrases_and_relations():
    phrases, relations = parse("There is a small red circle left of the blue square, and a star")
    assert phrases == [
        NounPhrase("small", "red", "circle"),
        NounPhrase(None, "blue", "square"),
        NounPhrase(None, None, "star"),
    ]
    assert relations == [(0, "left of", 1)]


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        (
            "a large blue square right of a small red circle",  # in another order
            {"pair_seen": 100, "size": 100, "relation": 100, "objects": 100},
        ),
        (
            "a small blue circle left of a large red square",  # swapped attributes
            {"pair_seen": 0, "relation": 0, "objects": 100},
        ),
        (
            "a small red circle above a large blue square",  # the wrong relation
            {"pair_seen": 100, "relation": 0},
        ),
        (
            "a small red circle alone",  # an object is missing: there is no relation to judge
            {"colour_seen": 50, "shape_seen": 50, "objects": 0, "relation": None},
        ),
        (
            "a small red circle left of a small red circle",  # said twice, matched once
            {"pair_seen": 50, "relation": 0},
        ),
    ],
)
def test_what_is_said_wrongly_alone_lowers_the_scores_it_concerns(caption, expected):
    scores = score(caption, RED_CIRCLE, BLUE_SQUARE)
    assert {name: scores.get(name) for name in expected} == expected


def test_size_decides_between_equal_matches():
    assert score("a small red circle right of a large red circle", RED_CIRCLE)["size"] == 100
    assert score("a large red circle right of a small red circle", RED_CIRCLE)["size"] == 100


def test_held_out_objects_are_counted_apart():
    scores = score("a small red cross left of a large blue square", RED_STAR, BLUE_SQUARE)
    assert scores["colour_held_out"] == 100
    assert scores["shape_held_out"] == scores["pair_held_out"] == 0
    assert scores["pair_seen"] == 100
