"""Compare evaluated runs: `python -m training.compare RUN RUN ...`.

Captioners are compared on the same images, with paired bootstrap intervals of every difference
from the first one.
"""

from __future__ import annotations

import json
import math
import string
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import tyro

from sat_tf.inference.published import locate, output_dir
from sat_tf.inference.run_folder import SYSTEM_KEY, RunFolder
from sat_tf.scores.tokens import ScoreTokens, default_tokens
from sat_tf.text.detokenize import primary
from sat_tf.util.commands import command_line, exit_status, parse_flags, text_table
from sat_tf.util.errors import invalid_value
from sat_tf.util.fields import PositiveInt, check_fields, from_dict
from training.data.config import DataConfig
from training.data.dataset import common_data_dir
from training.data.examples import Split, canonical_split
from training.data.readers import load_split
from training.evaluation.bootstrap import SAMPLES, Interval, few_images_note, resampled_means
from training.evaluation.pointing import SIZES, sums_and_sizes
from training.evaluation.report import (
    CAPTIONS_FILE,
    REPORT_FILE,
    number,
    parse_captions,
    read_grounding,
)
from training.evaluation.scores import paired_over_seeds, score_captions

LABELS = string.ascii_uppercase
"""Names of the systems, in the order given."""
_METRICS = ("bleu_4", "meteor", "cider", "rouge_l")


@dataclass(frozen=True)
class Arguments:
    """Compare runs on the same examples: differences from the first one, with paired intervals."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Two or more runs, or other folders with an evaluation (a report) on the split."""
    seeds: PositiveInt = 1
    """Runs of each system, given one after the other: A A A B B B. Scores are their means."""
    data_dir: Path | None = None
    """Your copy of the data set; the one that the runs were trained on by default."""
    split: str = "dev"
    """Split: train, dev or test."""

    def __post_init__(self) -> None:
        check_fields(self)


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    return exit_status(lambda: print(run(parse_flags(Arguments, argv, "training.compare"))))


def run(arguments: Arguments) -> str:
    """Returns the comparison as text."""
    runs, split, seeds = arguments.runs, canonical_split(arguments.split), arguments.seeds
    if not 2 <= len(runs) / seeds <= len(LABELS):
        raise invalid_value("runs", f"{2 * seeds} to {len(LABELS) * seeds} folders", len(runs))
    if len(runs) % seeds:
        raise invalid_value("runs", f"{seeds} folders for each system", len(runs))
    found = [Evaluated.read(evaluation_folder(path, split), split) for path in runs]
    systems = zip(LABELS, _by_system(runs, seeds), strict=False)
    lines = [f"{label}: {', '.join(map(str, paths))}" for label, paths in systems]
    return "\n".join([*lines, *compare(found, arguments)]).rstrip()


def _by_system(values: Sequence, seeds: int) -> list[Sequence]:
    return [values[start : start + seeds] for start in range(0, len(values), seeds)]


def evaluation_folder(path: Path, split: str) -> Path:
    """Returns `RUN/evaluation/SPLIT`, or the folder itself if it holds a report."""
    if (path / REPORT_FILE).is_file():
        return path
    run, folder = RunFolder(locate(path)), RunFolder(output_dir(path)).evaluation(split)
    if not (folder / REPORT_FILE).is_file():
        if not run.config.is_file():
            raise ValueError(f"{path} is not a run and holds no evaluation: no {REPORT_FILE}.")
        command = command_line("training.evaluate", "--run-dir", path, "--split", split)
        raise ValueError(f"{folder / REPORT_FILE} is missing: first run `{command}`.")
    return folder


@dataclass(frozen=True, eq=False)
class Evaluated:
    """An evaluation: its folder, report, image id -> caption, and image id -> grounding."""

    folder: Path
    report: Mapping
    captions: Mapping[str, str]
    grounding: Mapping[str, Mapping[str, float]]

    @classmethod
    def read(cls, folder: Path, split: str) -> Self:
        """Reads an evaluation; a ValueError for one of something else or on another split."""
        file, path = folder / REPORT_FILE, folder / CAPTIONS_FILE
        try:
            report = json.loads(file.read_text("utf-8"))
            found, _ = report["split"], report["configuration"]["data"]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{file} is not the report of an evaluation.") from error
        if SYSTEM_KEY in report:
            raise ValueError(f"{folder} is of a digit system; only captioners can be compared.")
        if found != split:
            raise ValueError(f"{folder} is an evaluation on {found}: expected one on {split}.")
        if not path.is_file():
            raise ValueError(f"{path} is missing: run `python -m training.evaluate` again.")
        return cls(folder, report, parse_captions(path.read_bytes(), path), read_grounding(path))

    @property
    def data(self) -> DataConfig:
        """The data set it was made on."""
        return from_dict(DataConfig, self.report["configuration"]["data"])


def compare(found: Sequence[Evaluated], arguments: Arguments) -> list[str]:
    """Compares evaluations of captioners, those of a system one after the other; returns lines."""
    data_dir, seeds = arguments.data_dir, arguments.seeds
    if data_dir is None:
        # An evaluation of a run is its folder `evaluation/SPLIT`.
        data_dir = common_data_dir(RunFolder(one.folder.absolute().parent.parent) for one in found)
    split, tokens = common_split(found, data_dir), common_tokens(found)
    shared = set.intersection(*(set(one.captions) for one in found))
    if not shared:
        raise ValueError("The evaluations have no image in common.")
    references = split.references(of=shared)
    scores = []
    for one in found:
        captions = {image_id: one.captions[image_id] for image_id in references}
        scores.append(score_captions(captions, references, tokens=tokens, **one.data.splitting))
    first, *others = _by_system(scores, seeds)
    table, differences = {}, {}
    for name in (name for name in _METRICS if all(name in one.scores for one in scores)):
        table[name] = [np.mean([one.scores[name] for one in own]) for own in (first, *others)]
        differences[name] = [paired_over_seeds(own, first, name) for own in others]
    of_phrases, left_out = grounded(found, list(references))
    for name, (sums, sizes) in of_phrases.items():
        means = [np.mean(own, axis=0) for own in _by_system(sums, seeds)]
        table[name] = [one.sum() / sizes.sum() for one in means]
        differences[name] = [resampled_means(other - means[0], sizes) for other in means[1:]]
    lines = [f"{split.name}, {len(shared)} images, {SAMPLES} resamples", ""]
    lines += [*_tables(table, differences), f"Signature: {scores[0].signature}"]
    lines += _notes([one.notes for one in scores], seeds)
    lines += [f"Note: {note}" for note in (*few_images_note(len(shared)), *left_out)]
    if extra := {image_id for one in found for image_id in one.captions} - shared:
        some = f"{len(extra)}, such as {min(extra)!r}"
        lines.append(f"Note: skipped images that only some have captioned: {some}.")
    return lines


def _tables(
    scores: Mapping[str, Sequence[float]], differences: Mapping[str, Sequence[Interval]]
) -> list[str]:
    """Formats the scores of each system, and the differences of all from the first one."""
    labels = LABELS[: len(next(iter(scores.values())))]
    rows = [[name, *(number(name, value) for value in own)] for name, own in scores.items()]
    pairs = [["", *(cell for b in labels[1:] for cell in (f"{b} - {LABELS[0]}", "95 % interval"))]]
    for name, intervals in differences.items():
        pairs.append([name])
        for one in intervals:
            by, low, high = (number(name, value, sign="+") for value in one)
            pairs[-1] += [by, "" if math.isnan(one.low) else f"[{low}, {high}]"]
    table = text_table([["", *labels], *rows])
    return [table, "", text_table(pairs, left=range(0, 2 * len(labels) - 1, 2)), ""]


def common_split(found: Sequence[Evaluated], data_dir: Path | None) -> Split:
    """Loads the split that all were evaluated on, a ValueError if there is none."""
    split = load_split(found[0].data, found[0].report["split"], data_dir)
    for one in found:
        if one.report["split_fingerprint"] != split.fingerprint():
            raise ValueError(
                f"{one.folder} was evaluated on other images or captions than the present "
                f"{split.name} split of {found[0].data.name}, {data_dir or 'drawn'}."
            )
    return split


def common_tokens(found: Sequence[Evaluated]) -> ScoreTokens | None:
    """Returns the tokeniser that all are scored by; None for that of their language."""
    ways = {(primary(one.data.language), one.report["tokeniser"]): one.folder for one in found}
    if len(ways) > 1:
        (first, folder), (other, its_folder), *_ = ways.items()
        raise ValueError(
            f"{its_folder} was scored as {':'.join(other)}, {folder} as {':'.join(first)}: "
            "evaluate both with one `--score-tokens`, captions from elsewhere also with their "
            "`--data.language`."
        )
    ((_, name),) = ways
    return None if {default_tokens(**one.data.splitting) for one in found} == {name} else name


def grounded(
    found: Sequence[Evaluated], image_ids: Sequence[str]
) -> tuple[dict[str, tuple[list[np.ndarray], np.ndarray]], list[str]]:
    """Reads the scores of phrases that all evaluations have.

    Returns:
        Score -> its sum in each image, `[N]` for each evaluation, and `[N]`, the phrases or words
        that it is over. And a note on scores over different phrases, which are left out.
    """
    scores, left_out = {}, []
    boxes = {one.report.get("grounding", {}).get("boxes") for one in found} - {None}
    for name in SIZES:
        read = [sums_and_sizes(one.grounding, name, image_ids) for one in found]
        if any(one is None for one in read):
            continue
        sums, sizes = zip(*read, strict=True)
        if len(boxes) <= 1 and all(np.array_equal(own, sizes[0]) for own in sizes[1:]):
            scores[name] = list(sums), sizes[0]
        else:
            left_out.append(name)
    reason = "the evaluations have other boxes, or see other parts of the images"
    return scores, [f"{', '.join(left_out)} left out: {reason}."] if left_out else []


def _notes(of_each: Sequence[Sequence[str]], seeds: int) -> list[str]:
    """Each note once, with the labels of the systems it is about, unless it is all."""
    lines = []
    for note in dict.fromkeys(note for notes in of_each for note in notes):
        about = [LABELS[n // seeds] for n, notes in enumerate(of_each) if note in notes]
        labels = "" if len(about) == len(of_each) else f" on {', '.join(dict.fromkeys(about))}"
        lines.append(f"Note{labels}: {note}")
    return lines


if __name__ == "__main__":
    sys.exit(main())
