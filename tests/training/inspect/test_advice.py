"""Warnings: each for its cause, and none for good data."""

from __future__ import annotations

import copy

import pytest

from training.config import DataConfig
from training.inspect import survey as advice
from training.inspect.survey import warnings_of

SPLIT = {
    "listed": 100,
    "used": 100,
    "rotated": 0,
    "images_of_earlier_splits": 0,
    "captions_per_image": {"max": 5},
    "blank": 0,
    "without_words": 0,
    "cut_share": 0.0,
    "unknown_share": 0.01,
}


@pytest.fixture(autouse=True)
def _java(monkeypatch):
    monkeypatch.setattr(advice, "find_java", lambda: "java")


def warnings(changes: dict, config: DataConfig | None = None, **report) -> list[str]:
    """Warnings of good data with some of dev's figures changed."""
    splits = {"train": copy.deepcopy(SPLIT), "dev": copy.deepcopy(SPLIT) | changes}
    if "captions_per_image" in changes or "cut_share" in changes:
        splits["train"] |= changes
    whole = {"splits": splits, "vocabulary": {"size": 50}, "scripts": {"LATIN": 1.0}} | report
    return warnings_of(whole, config or DataConfig())


def test_good_data_has_no_warnings():
    assert warnings({}) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"used": 98}, "2 of 100 images of dev skipped"),
        ({"images_of_earlier_splits": 4}, "4 images of dev also in an earlier split"),
        ({"used": 9, "listed": 9}, "dev has 9 images: too few"),
        ({"captions_per_image": {"max": 1}}, "a single caption"),
        ({"blank": 2, "without_words": 1}, "3 captions without a word"),
        ({"blank": None, "without_words": 1}, "1 caption without a word"),
        ({"cut_share": 0.06}, "6% of the training captions are cut to 30 words"),
        ({"unknown_share": 0.2}, "20% of the words of dev are unknown"),
    ],
)
def test_each_defect_has_its_warning(changes, said):
    (warning,) = warnings(changes)
    assert said in warning


@pytest.mark.parametrize(
    ("script", "config", "said"),
    [
        ("CJK", {"language": "zh"}, ["`--data.tokens characters`", "METEOR"]),
        ("CJK", {"language": "zh", "tokens": "characters"}, ["METEOR"]),
        ("CYRILLIC", {}, ["really en?"]),
        ("CYRILLIC", {"language": "ru"}, ["METEOR"]),
        ("LATIN", {"language": "de"}, ["METEOR"]),
        ("LATIN", {"language": "en-GB"}, []),
    ],
)
def test_a_script_that_tokens_or_language_do_not_suit_has_a_warning(script, config, said):
    found = warnings({}, DataConfig(**config), scripts={script: 1.0})
    assert len(found) == len(said)
    assert all(text in warning for text, warning in zip(said, found, strict=True))


def test_images_without_a_row_have_a_warning():
    (warning,) = warnings({}, uncaptioned=["b.jpg", "c.jpg"])
    assert warning.startswith("2 images of the folder not in the caption file, such as b.jpg;")


def test_without_java_meteor_is_left_out(monkeypatch):
    monkeypatch.setattr(advice, "find_java", lambda: None)
    (warning,) = warnings({})
    assert "need Java" in warning
