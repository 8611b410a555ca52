"""Words of captions of scenes are judged where they stand; the diagram shows every bin."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from sat_tf.captions import Caption
from training.data.examples import Split
from training.data.sources import scenes
from training.evaluate.page import reliability_diagram
from training.metrics.calibration import WordConfidence, calibrate, reliability
from training.metrics.scene_words import judge_words, scene_word_confidence


@pytest.fixture(scope="module")
def example():
    return scenes.load("dev", count=1).examples[0]


def caption(text: str) -> Caption:
    words = tuple(text.split())
    log_probs = np.log(np.linspace(0.1, 0.9, len(words), dtype=np.float32))
    return Caption(text, words, 0.0, 0.0, log_probs, None, None)


def test_references_are_right_in_every_word_for_size_colour_and_shape(example):
    judged = [judge_words(text, example) for text in example.captions]
    assert all(all(right.values()) for right in judged) and sum(map(len, judged))
    words = example.captions[0].split()
    assert all(words[place].isalpha() for place in judged[0])


def test_a_word_is_judged_where_it_stands(example):
    size, colour, shape = example.phrases[0].text.split()
    other = "green" if colour != "green" else "blue"
    text = f"there is a {size} {other} {shape}"
    assert judge_words(text, example)[4] is False and judge_words(text, example)[5] is True
    found = scene_word_confidence({example.image_id: caption(text)}, Split("dev", (example,)))
    np.testing.assert_allclose(found.confidence, np.linspace(0.1, 0.9, 6)[3:], rtol=1e-5)
    assert found.right[1:].tolist() == [False, True]


def test_images_without_a_caption_are_left_out(example):
    assert not len(scene_word_confidence({}, Split("dev", (example,))).right)


def test_scores_and_intervals_are_of_the_words():
    words = WordConfidence(np.array([0.5, 0.9]), np.array([False, True]), np.array([0, 1]))
    found = calibrate(words)
    assert found.scores == {
        "calibration_error": pytest.approx(30.0),
        "next_word_accuracy": pytest.approx(50.0),
        "next_word_confidence": pytest.approx(70.0),
    }
    assert set(found.intervals) == {"calibration_error"}
    assert calibrate(words, words).scores["words_auroc"] == pytest.approx(100.0)


def test_the_diagram_has_a_bar_for_each_bin_with_words():
    words = WordConfidence(np.array([0.05, 0.55, 0.56]), np.array([0, 1, 0]), np.arange(3))
    drawn = ElementTree.fromstring(reliability_diagram(reliability(words, bins=10)))
    titles = [node.text for node in drawn.iter() if node.tag.endswith("title")]
    assert titles == [
        "1 words, confidence 5 %, right 0 %",
        "2 words, confidence 56 %, right 50 %",
    ]
