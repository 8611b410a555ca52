"""Comparison of captioners on the same images, with paired bootstrap intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sat_tf.fields import from_dict
from sat_tf.run_folder import RunFolder
from training.config import DataConfig
from training.data.examples import Split
from training.data.sources import load_split
from training.evaluate.given_captions import CAPTIONS_FILE, parse_captions, read_grounding
from training.evaluate.reports import REPORT_FILE
from training.metrics import bootstrap
from training.metrics.captions import CaptionScores, score_captions
from training.metrics.grounding import SIZES, sums_and_sizes
from training.run_state.ownership import common_data_dir
from training.tasks.comparison import (
    LABELS,
    by_system,
    difference_table,
    means_over_seeds,
    read_report,
    score_table,
)

_METRICS = ("bleu_4", "meteor", "cider", "rouge_l")


@dataclass(frozen=True, eq=False)
class Evaluated:
    """An evaluation: its folder, report, image id -> caption, and image id -> grounding."""

    folder: Path
    report: Mapping
    captions: Mapping[str, str]
    grounding: Mapping[str, Mapping[str, float]]

    @property
    def data(self) -> DataConfig:
        """The data set it was made on."""
        return from_dict(DataConfig, self.report["configuration"]["data"])

    @property
    def boxes(self) -> str | None:
        """SHA-256 of the boxes it was measured with, if any."""
        return (self.report.get("grounding") or {}).get("boxes")


def compare(
    folders: Sequence[Path], split_name: str, data_dir: Path | None, samples: int, seeds: int
) -> list[str]:
    """Compares evaluations of captioners; see `Task.compare`."""
    found = [read_evaluation(folder, split_name) for folder in folders]
    if data_dir is None:
        # An evaluation of a run is its folder `evaluation/SPLIT`.
        data_dir = common_data_dir(RunFolder(f.absolute().parent.parent) for f in folders)
    split = common_split(found, data_dir)
    shared = set.intersection(*(set(one.captions) for one in found))
    references = split.references(of=shared)
    scores = [_score(one, references) for one in found]
    metrics = [name for name in _METRICS if all(name in one.scores for one in scores)]
    table = {
        name: means_over_seeds([one.scores[name] for one in scores], seeds) for name in metrics
    }
    first, *others = by_system(scores, seeds)
    differences = {
        name: [bootstrap.paired_over_seeds(o, first, name, samples) for o in others]
        for name in metrics
    }
    of_phrases, maps_notes = grounded(found, list(references))
    for name, (sums, sizes) in of_phrases.items():
        means = [np.mean(own, axis=0) for own in by_system(sums, seeds)]
        table[name] = [one.sum() / sizes.sum() for one in means]
        differences[name] = [
            bootstrap.resampled_means(other - means[0], sizes, samples) for other in means[1:]
        ]
    lines = [f"{split.name}, {len(shared)} images, {samples} resamples", ""]
    lines += [
        score_table(table),
        "",
        difference_table(differences),
        "",
        *notes(scores, seeds),
        *maps_notes,
    ]
    left_out = {image_id for one in found for image_id in one.captions} - set(references)
    if left_out:
        lines.append(
            f"Note: skipped images that only some have captioned: {len(left_out)}, such as "
            f"{min(left_out)!r}."
        )
    return lines


def read_evaluation(folder: Path, split: str) -> Evaluated:
    """Reads report, captions and grounding from the folder of an evaluation.

    Raises:
        ValueError: A file is missing or no part of an evaluation on this split.
    """
    report, captions_path = read_report(folder / REPORT_FILE, split), folder / CAPTIONS_FILE
    if "split_fingerprint" not in report:
        raise ValueError(f"{folder / REPORT_FILE} is not the report of an evaluation.")
    if not captions_path.is_file():
        raise ValueError(f"{captions_path} is missing: run `python -m training.evaluate` again.")
    captions = parse_captions(captions_path.read_bytes(), captions_path)
    return Evaluated(folder, report, captions, read_grounding(captions_path))


def common_split(found: Sequence[Evaluated], data_dir: Path | None) -> Split:
    """Loads the split that all were evaluated on.

    Raises:
        ValueError: One was evaluated on other images or captions.
    """
    name, data = found[0].report["split"], found[0].data
    split = load_split(data, name, data_dir)
    fingerprint, where = split.fingerprint(), data_dir or f"seed {data.seed}"
    for one in found:
        if one.report["split_fingerprint"] != fingerprint:
            raise ValueError(
                f"{one.folder} was evaluated on other images or captions than the present "
                f"{split.name} split of {data.name} ({where}, limit {data.limit}): "
                f"expected the fingerprint {fingerprint[:12]}..., got "
                f"{one.report['split_fingerprint'][:12]}..."
            )
    return split


def _score(one: Evaluated, references: Mapping[str, list[str]]) -> CaptionScores:
    captions = {image_id: one.captions[image_id] for image_id in references}
    return score_captions(captions, references, language=one.data.language, unit=one.data.tokens)


def grounded(
    found: Sequence[Evaluated], image_ids: Sequence[str]
) -> tuple[dict[str, tuple[list[np.ndarray], np.ndarray]], list[str]]:
    """Reads the scores of phrases that all evaluations have.

    Returns:
        Score -> its sum in each image, `[N]` for each evaluation, and `[N]`, the phrases or words
        that it is over. And notes: scores over different phrases are left out.
    """
    scores, left_out = {}, []
    boxes = {one.boxes for one in found} - {None}
    for name in SIZES:
        read = [sums_and_sizes(one.grounding, name, image_ids) for one in found]
        if any(one is None for one in read):
            continue
        sums, sizes = zip(*read, strict=True)
        if len(boxes) <= 1 and all(np.array_equal(own, sizes[0]) for own in sizes[1:]):
            scores[name] = list(sums), sizes[0]
        else:
            left_out.append(name)
    if not left_out:
        return scores, []
    reason = "the evaluations have other boxes, or see other parts of the images"
    return scores, [f"Note: {', '.join(left_out)} left out: {reason}."]


def notes(scores: Sequence[CaptionScores], seeds: int = 1) -> list[str]:
    """Returns each note once, with the labels of the systems it is about, unless it is all."""
    labels: dict[str, list[str]] = {}
    for number, one in enumerate(scores):
        for note in one.notes:
            labels.setdefault(note, []).append(LABELS[number // seeds])
    return [
        f"Note: {note}"
        if len(about) == len(scores)
        else f"Note on {', '.join(dict.fromkeys(about))}: {note}"
        for note, about in labels.items()
    ]
