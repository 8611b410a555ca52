"""The survey of a data set for one configuration: everything that `training.inspect` reports."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import tensorflow as tf

from sat_tf.fields import to_dict
from sat_tf.files import printable
from sat_tf.vocabulary import SPECIAL_TOKENS, Vocabulary
from training.cli import check_init_from
from training.config import RunConfig
from training.data.bucketing import caption_table
from training.data.examples import NO_CAPTIONS, NO_FILE, SPLITS, Split
from training.data.input_source import check_readable
from training.data.sources import load_split
from training.inputs import check_vocabulary, training_vocabulary
from training.inspect.advice import warnings_of
from training.inspect.caption_statistics import (
    caption_figures,
    captions_of,
    scripts,
    spoken_captions,
)
from training.inspect.duplicates import find_twins
from training.inspect.image_scan import ImageScan, scan_images
from training.inspect.timing import measure
from training.inspect.weights import check_imagenet_weights

TRAINED_WITH = ("train", "dev")  # splits that training cannot do without


@dataclass(eq=False)
class Survey:
    """Results of a survey.

    Attributes:
        report: The content of `inspect.json`.
        splits: The splits that can be loaded.
        scans: Results of the pass over the images of each of them.
        errors: What would keep training from starting.
    """

    report: dict[str, Any]
    splits: dict[str, Split] = field(default_factory=dict)
    scans: dict[str, ImageScan] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    def attempt(self, function: Callable, *arguments: Any) -> Any:
        """Calls a function; if it raises an error of the user's, notes it and returns None."""
        try:
            return function(*arguments)
        except ValueError as error:
            self.errors.append(str(error))
        except tf.errors.OpError as error:
            self.errors.append(error.message)
        return None


def survey(config: RunConfig, data_dir: Path | None) -> Survey:
    """Inspects the data that a configuration would be trained on.

    Defects do not end it: unusable images are skipped and counted, and what would keep training
    from starting is listed under `errors`.
    """
    report = {"recipe": config.recipe, "data": config.data.name}
    found = Survey(report | {"data_dir": data_dir and printable(str(data_dir))})
    report, splits, scans = found.report, found.splits, found.scans
    notes = _load(found, config, data_dir)
    for name, split in splits.items():
        scans[name] = scan_images(split, config.encoder)
        if name in TRAINED_WITH:
            found.attempt(check_readable, split, scans[name].skipped)
    if config.init_from is None:  # else the encoder's weights are those of that run
        found.attempt(check_imagenet_weights, config.encoder)
    found.attempt(check_init_from, config)
    report["splits"] = {name: _image_figures(splits[name], scans[name]) for name in splits}
    if "train" in splits:
        vocabulary = training_vocabulary(config.data, splits["train"])
        _add_captions(found, config, vocabulary)
        _add_twins(found)
        report["time"] = _time(found, config, vocabulary)
    report["skipped"] = {name: splits[name].unusable(scans[name].skipped) for name in splits}
    report["uncaptioned"] = list(next(iter(splits.values())).uncaptioned) if splits else []
    report["rotated"] = {
        name: [split.examples[index].image_id for index in scans[name].rotated]
        for name, split in splits.items()
    }
    report["errors"] = list(dict.fromkeys(map(printable, found.errors)))
    report["trainable"] = not found.errors
    report["warnings"] = [*map(printable, notes), *warnings_of(report, config.data)]
    report["configuration"] = to_dict(config)
    return found


def _load(found: Survey, config: RunConfig, data_dir: Path | None) -> list[str]:
    """Loads the splits that can be loaded; returns notes on those that training does not need."""
    notes = []
    for name in SPLITS:
        try:
            found.splits[name] = load_split(config.data, name, data_dir)
        except ValueError as error:
            (found.errors if name in TRAINED_WITH else notes).append(str(error))
    # A file that does not parse is the same error for every split.
    return [f"Nothing to test on: {note}" for note in notes if note not in found.errors]


def _image_figures(split: Split, scan: ImageScan) -> dict[str, int]:
    kinds = Counter(
        NO_FILE if reason.startswith(NO_FILE) else NO_CAPTIONS for _, reason in split.skipped
    )
    return {
        "listed": len(split) + len(split.skipped),
        "used": len(split) - len(scan.skipped),
        "no_file": kinds[NO_FILE],
        "no_captions": kinds[NO_CAPTIONS],
        "unreadable": len(scan.skipped),
        "rotated": len(scan.rotated),
    }


def _add_captions(found: Survey, config: RunConfig, vocabulary: Vocabulary) -> None:
    """Adds caption figures, and the number of captions that an earlier split has too."""
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
    """Adds the images that an earlier split has too."""
    splits, prints = found.splits, {name: scan.prints for name, scan in found.scans.items()}
    twins = []
    for earlier, name in combinations(splits, 2):
        twins += find_twins(splits[name], prints[name], splits[earlier], prints[earlier])
    for name in splits:
        same = {twin.image for twin in twins if twin.split == name}
        found.report["splits"][name]["images_of_earlier_splits"] = len(same)
    found.report["duplicates"] = [dataclasses.asdict(twin) for twin in twins]


def _time(found: Survey, config: RunConfig, vocabulary: Vocabulary) -> dict[str, Any] | None:
    """Measures what training would take; None if it cannot start."""
    train, skipped = found.splits["train"], found.scans["train"].skipped
    table = found.attempt(caption_table, train, vocabulary, config.data.max_length)
    if table is not None:
        found.attempt(check_vocabulary, config.data, vocabulary)
    if "dev" in found.splits:  # read by the model after each epoch
        found.attempt(caption_table, found.splits["dev"], vocabulary, config.data.max_length)
    if found.errors:
        return None
    readable = [example for i, example in enumerate(train.examples) if i not in skipped]
    timed = found.attempt(measure, config, vocabulary, table, skipped, readable)
    if timed is not None and "images_per_second" in timed:
        # Training stores the images of these splits; those of test are stored by its evaluation.
        wanted = sum(len(found.splits[name]) for name in TRAINED_WITH)
        timed["store_seconds"] = wanted / timed["images_per_second"]
        timed["store_bytes"] = wanted * timed["bytes_per_image"]
    return timed
