"""Warnings about a data set: what will hurt training or its scores, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from training.config import DataConfig
from training.metrics.captions import note_on_language
from training.metrics.java import find_java
from training.tables import counted

_FEW_IMAGES = 50  # in dev: with fewer, one image moves a score by whole points
_MANY_CUT = 0.05
_MANY_UNKNOWN = 0.1
# Scripts without spaces between words.
_UNSPACED = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR")


def warnings_of(report: dict[str, Any], config: DataConfig) -> list[str]:
    """Derives warnings from the figures of a report."""
    found = [*_about_images(report)]
    if "vocabulary" in report:
        found += [*_about_captions(report, config), *_about_language(report, config)]
    return found


def _about_images(report: dict[str, Any]) -> Iterator[str]:
    splits = report["splits"].items()
    for name, split in splits:
        if lost := split["listed"] - split["used"]:
            total = counted(split["listed"], "image")
            yield f"{lost} of {total} of {name} skipped; see `skipped` in inspect.json."
    if unlisted := report.get("uncaptioned"):
        yield (
            f"{counted(len(unlisted), 'image')} of the folder not in the caption file, such as "
            f"{unlisted[0]}; see `uncaptioned` in inspect.json."
        )
    for name, split in splits:
        if copies := split.get("images_of_earlier_splits"):
            yield (
                f"{counted(copies, 'image')} of {name} also in an earlier split, so its scores "
                "will be too good; see `duplicates` in inspect.json."
            )
    dev = report["splits"].get("dev")
    if dev and dev["used"] < _FEW_IMAGES:
        yield f"dev has {counted(dev['used'], 'image')}: too few to compare epochs by their scores."


def _about_captions(report: dict[str, Any], config: DataConfig) -> Iterator[str]:
    train, splits = report["splits"]["train"], report["splits"]
    unit = config.tokens
    if train["captions_per_image"]["max"] == 1:
        yield "Every image has a single caption: scores against one reference are low and noisy."
    if empty := sum((s["blank"] or 0) + s["without_words"] for s in splits.values()):
        yield f"{counted(empty, 'caption')} without a word, left out of training."
    if train["cut_share"] > _MANY_CUT:
        yield (
            f"{train['cut_share']:.0%} of the training captions are cut to {config.max_length} "
            f"{unit}: raise `--data.max_length` and `--search.max_length`."
        )
    for name, split in splits.items():
        if split["unknown_share"] > _MANY_UNKNOWN:
            yield (
                f"{split['unknown_share']:.0%} of the {unit} of {name} are unknown: lower "
                "`--data.min_count`, or add captions."
            )


def _about_language(report: dict[str, Any], config: DataConfig) -> Iterator[str]:
    script = next(iter(report["scripts"]), "LATIN")
    if config.tokens == "words" and script in _UNSPACED:
        yield (
            f"The captions are written in {script} letters, mostly without spaces between words: "
            "use `--data.tokens characters`."
        )
    english = config.language.lower().split("-")[0] == "en"
    if english and script != "LATIN":
        yield f"The captions are written in {script} letters: is `--data.language` really en?"
    if left_out := note_on_language(config.language, config.tokens):
        yield left_out
    elif find_java() is None:
        yield "METEOR and the PTB tokeniser are left out of the scores: they need Java."
