"""Figures of captions, against counting by hand."""

from __future__ import annotations

import numpy as np
import pytest

from sat_tf.vocabulary import Vocabulary
from training.data.examples import Example, Split
from training.inspect.survey import caption_figures, scripts, spoken_captions


def split_of(*captions: tuple[str, ...], **options) -> Split:
    image = np.zeros([4, 4, 3], np.uint8)
    examples = (Example(f"{n}", image, texts) for n, texts in enumerate(captions))
    return Split("train", tuple(examples), **options)


def test_figures_are_those_counted_by_hand():
    split = split_of(("A dog runs.", "!!!"), ("a big dog barks at a cat",), blank_captions=2)
    vocabulary = Vocabulary.from_captions(["a dog runs", "a cat"], min_count=1)
    assert caption_figures(split, vocabulary, max_length=3) == {
        "captions": 3,
        "captions_per_image": {"min": 1, "median": 1.5, "p95": pytest.approx(1.95), "max": 2},
        "blank": 2,
        "without_words": 1,
        "length": {"min": 3, "median": 5, "p95": pytest.approx(6.8), "max": 7},
        "cut_share": 0.5,
        "unknown_share": 3 / 10,  # big, barks, at
    }


def test_characters_are_counted_as_characters():
    vocabulary = Vocabulary.from_captions(["红色的门"], min_count=1, unit="characters")
    figures = caption_figures(split_of(("红色的门。", "狗")), vocabulary, max_length=4)
    assert figures["length"]["max"] == 4 and figures["cut_share"] == 0
    assert figures["unknown_share"] == 1 / 5


def test_captions_without_any_word_give_zeros_and_no_error():
    vocabulary = Vocabulary.from_captions([], min_count=1)
    figures = caption_figures(split_of(("...", "-")), vocabulary, max_length=5)
    assert figures["without_words"] == 2 and figures["length"]["max"] == 0
    assert figures["cut_share"] == figures["unknown_share"] == 0


def test_captions_are_equal_whatever_their_capitals_and_punctuation():
    one, other, third = spoken_captions(
        split_of(("A dog, runs!", "a dog runs", "adog runs")), "words"
    )
    assert one == other != third
    assert spoken_captions(split_of(("...",)), "words") == []


def test_scripts_are_shares_of_letters():
    assert scripts(["Tür 12!"]) == {"LATIN": 1.0}
    assert scripts(["собака a"]) == pytest.approx({"CYRILLIC": 6 / 7, "LATIN": 1 / 7})
    assert list(scripts(["一只狗 ok?"])) == ["CJK", "LATIN"]
    assert scripts(["123 ..."]) == {}
