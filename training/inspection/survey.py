"""Everything that `training.inspect` says of a data set, gathered for one configuration."""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import tensorflow as tf

from sat_tf.config import to_dict
from sat_tf.vocabulary import SPECIAL_TOKENS, Vocabulary
from training.datasets import SPLITS, DataError, Split, load_split
from training.datasets.base import NO_CAPTIONS, NO_FILE
from training.datasets.batches import caption_table
from training.datasets.sources import check_readable
from training.inspection.advice import warnings_of
from training.inspection.captions import caption_figures, captions_of, scripts, spoken_captions
from training.inspection.duplicates import find_twins
from training.inspection.pictures import Pictures, read_pictures
from training.inspection.timing import measure
from training.recipes import RunConfig
from training.run_data import training_vocabulary

TRAINED_WITH = ("train", "dev")  # without one of them there is no training


@dataclass(eq=False)
class Survey:
    """What was found.

    Attributes:
        report: What `inspect.json` holds.
        splits: Those that can be loaded.
        pictures: What the pass over the pictures of each of them saw.
    """

    report: dict[str, Any]
    splits: dict[str, Split] = field(default_factory=dict)
    pictures: dict[str, Pictures] = field(default_factory=dict)


def survey(config: RunConfig, data_dir: Path | None, verbose: bool = True) -> Survey:
    """Inspects the data that a configuration would be trained on.

    Defects never end it: files are set aside and counted, and what would keep training from
    starting is listed under `errors`.

    Args:
        config: What would be trained.
        data_dir: The user's copy of the data set; None for drawn ones.
        verbose: Show progress on standard error.
    """
    found = Survey(
        {"recipe": config.recipe, "data": config.data.name, "data_dir": data_dir and str(data_dir)}
    )
    errors, notes = _load(found, config, data_dir)
    for name, split in found.splits.items():
        found.pictures[name] = read_pictures(split, config.encoder, verbose)
        if name in TRAINED_WITH:
            _attempt(errors, check_readable, split, found.pictures[name].set_aside)
    report = found.report
    report["splits"] = {name: _picture_figures(found, name) for name in found.splits}
    if "train" in found.splits:
        vocabulary = training_vocabulary(config.data, found.splits["train"])
        _add_captions(found, config, vocabulary)
        _add_twins(found)
        report["time"] = _time(found, config, vocabulary, errors)
    report["set_aside"] = {
        name: split.unusable(found.pictures[name].set_aside) for name, split in found.splits.items()
    }
    report["rotated"] = {
        name: [found.splits[name].examples[index].image_id for index in pictures.rotated]
        for name, pictures in found.pictures.items()
    }
    report["errors"] = list(dict.fromkeys(errors))
    report["trainable"] = not errors
    report["warnings"] = notes + warnings_of(report, config.data)
    report["configuration"] = to_dict(config)
    return found


def _load(found: Survey, config: RunConfig, data_dir: Path | None) -> tuple[list[str], list[str]]:
    """Loads what can be loaded; what training cannot do without, and what it can."""
    errors, notes = [], []
    for name in SPLITS:
        try:
            found.splits[name] = load_split(
                config.data.name, name, data_dir, **config.data.options()
            )
        except DataError as error:
            (errors if name in TRAINED_WITH else notes).append(str(error))
    # A file that does not parse is the same error for every split.
    return errors, [f"Nothing to test on: {note}" for note in notes if note not in errors]


def _attempt(errors: list[str], function, *arguments) -> Any:
    """The function's answer; None, and its message among the errors, where it has none."""
    try:
        return function(*arguments)
    except ValueError as error:
        errors.append(str(error))
    except tf.errors.OpError as error:
        errors.append(error.message)
    return None


def _picture_figures(found: Survey, name: str) -> dict[str, int]:
    split, pictures = found.splits[name], found.pictures[name]
    reasons = Counter(_kind(reason) for _, reason in split.set_aside)
    return {
        "listed": len(split) + len(split.set_aside),
        "used": len(split) - len(pictures.set_aside),
        "no_file": reasons[NO_FILE],
        "no_captions": reasons[NO_CAPTIONS],
        "unreadable": len(pictures.set_aside),
        "rotated": len(pictures.rotated),
    }


def _kind(reason: str) -> str:
    return NO_FILE if reason.startswith(NO_FILE) else NO_CAPTIONS


def _add_captions(found: Survey, config: RunConfig, vocabulary: Vocabulary) -> None:
    """Figures of the captions, and how many of a split are those of an earlier one."""
    report, unit = found.report, config.data.tokens
    report["vocabulary"] = {
        "unit": unit,
        "size": len(vocabulary) - len(SPECIAL_TOKENS),
        "min_count": config.data.min_count,
    }
    report["scripts"] = scripts(captions_of(found.splits["train"]))
    earlier: set[str] = set()
    for name, split in found.splits.items():
        spoken = spoken_captions(split, unit)
        report["splits"][name] |= caption_figures(split, vocabulary, config.data.max_length)
        report["splits"][name]["captions_of_earlier_splits"] = sum(c in earlier for c in spoken)
        earlier.update(spoken)


def _add_twins(found: Survey) -> None:
    """Pictures that an earlier split has too."""
    twins = []
    for earlier, name in combinations(found.splits, 2):
        pair = (found.splits[name], found.pictures[name].prints)
        twins += find_twins(*pair, found.splits[earlier], found.pictures[earlier].prints)
    for name in found.splits:
        same = {twin.image for twin in twins if twin.split == name}
        found.report["splits"][name]["pictures_of_earlier_splits"] = len(same)
    found.report["duplicates"] = [dataclasses.asdict(twin) for twin in twins]


def _time(
    found: Survey, config: RunConfig, vocabulary: Vocabulary, errors: list[str]
) -> dict[str, Any] | None:
    """What training would take; None where it cannot start."""
    train, pictures = found.splits["train"], found.pictures["train"]
    table = _attempt(errors, caption_table, train, vocabulary, config.data.max_length)
    if errors:
        return None
    readable = [e for i, e in enumerate(train.examples) if i not in pictures.set_aside]
    arguments = (config, len(vocabulary), table, pictures.set_aside, readable)
    timed = _attempt(errors, measure, *arguments)
    if timed is not None and "pictures_per_second" in timed:
        # Training stores the pictures of these two; test's are for its evaluation.
        wanted = sum(len(found.splits[name]) for name in TRAINED_WITH)
        timed["store_seconds"] = wanted / timed["pictures_per_second"]
        timed["store_bytes"] = wanted * timed["bytes_per_picture"]
    return timed
