"""Compare evaluated runs: `python -m training.compare RUN RUN ... --data-dir DIR`."""

from __future__ import annotations

import json
import string
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from sat_tf.commands import exit_status

if TYPE_CHECKING:
    import numpy as np

    from training.datasets import Split
    from training.metrics.bootstrap import Interval
    from training.metrics.captions import CaptionScores
    from training.recipes import DataConfig

_METRICS = ("bleu_4", "meteor", "cider", "rouge_l")
_POINTING = "pointing_game"
_WIDTH = len(_POINTING)
_LABELS = string.ascii_uppercase


@dataclass(frozen=True)
class Arguments:
    """Score runs on the same pictures; differences from the first, with paired intervals."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Two or more evaluated on the split: runs, folders of given captions, or of a report."""
    data_dir: Path | None = None
    """Your copy of the data set; drawn data needs none."""
    split: str = "dev"
    """train, dev or test."""
    samples: int = 1000
    """Bootstrap resamples."""


@dataclass(frozen=True, eq=False)
class Evaluated:
    """What an evaluation left: its folder, its report, image id -> caption, and -> grounding."""

    folder: Path
    report: Mapping
    captions: Mapping[str, str]
    grounding: Mapping[str, Mapping[str, float]]

    @property
    def data(self) -> DataConfig:
        """The data set it was made on."""
        from sat_tf.config import from_dict
        from training.recipes import DataConfig

        return from_dict(DataConfig, self.report["configuration"]["data"])


def main(argv: list[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    arguments = tyro.cli(Arguments, args=argv, prog="python -m training.compare")
    return exit_status(lambda: print(run(arguments)))


def run(arguments: Arguments) -> str:
    """The comparison as text."""
    from training.datasets import canonical_split
    from training.metrics.captions import score_captions

    if not 2 <= len(arguments.runs) <= len(_LABELS):
        raise ValueError(
            f"Received an invalid value for argument `runs`: expected 2 to {len(_LABELS)} folders, "
            f"got {len(arguments.runs)}."
        )
    found = [read_evaluation(path, canonical_split(arguments.split)) for path in arguments.runs]
    split = common_split(found, arguments.data_dir)
    shared = [e for e in split.examples if all(e.image_id in one.captions for one in found)]
    references = {e.image_id: list(e.captions) for e in shared}
    data = found[0].data
    scores = {
        label: score_captions(
            {i: one.captions[i] for i in references},
            references,
            language=data.language,
            unit=data.tokens,
        )
        for label, one in zip(_LABELS, found, strict=False)
    }
    lines = [f"{label}: {path}" for label, path in zip(_LABELS, arguments.runs, strict=False)]
    lines.append(f"{split.name}, {len(shared)} pictures, {arguments.samples} resamples")
    table, differences = score_table(scores), difference_table(scores, arguments.samples)
    if (places := grounded(found, list(references))) is not None:
        table.append(pointing_line(places))
        differences.append(pointing_differences(places, arguments.samples))
    lines += ["", *table, "", *differences, ""]
    lines += notes(scores)
    left_out = {image_id for one in found for image_id in one.captions} - set(references)
    if left_out:
        lines.append(
            f"Note: pictures that only some have captioned are left out: {len(left_out)}, such as "
            f"{min(left_out)!r}."
        )
    return "\n".join(lines).rstrip()


def read_evaluation(path: Path, split: str) -> Evaluated:
    """Read `RUN/evaluation/SPLIT`, or the folder itself where it holds a report.

    Args:
        path: A run, or the folder of a report.
        split: `train`, `dev` or `test`.

    Raises:
        ValueError: There is no evaluation on that split, or it is one of a digit run.
    """
    from training.caption_results import CAPTIONS_FILE, parse_captions, read_grounding
    from training.digits.config import system_of
    from training.reports import REPORT_FILE

    folder = path if (path / REPORT_FILE).is_file() else path / "evaluation" / split
    for name in (REPORT_FILE, CAPTIONS_FILE):
        if not (folder / name).is_file():
            if system := system_of(path) or _system_in(folder / REPORT_FILE):
                raise ValueError(
                    f"{path} is of the digit system {system!r}, which writes no captions: only "
                    "captioners can be compared. Its figures are in the report of "
                    "`python -m training.evaluate`."
                )
            raise ValueError(
                f"{folder / name} is missing: first run `python -m training.evaluate --run-dir "
                f"{path} --split {split}`."
            )
    try:
        report = json.loads((folder / REPORT_FILE).read_text("utf-8"))
        found = report["split"], report["split_fingerprint"], report["configuration"]["data"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{folder / REPORT_FILE} is no report of an evaluation.") from error
    if found[0] != split:
        raise ValueError(f"{folder} is an evaluation on {found[0]}: expected one on {split}.")
    captions_path = folder / CAPTIONS_FILE
    captions = parse_captions(captions_path.read_bytes(), captions_path)
    return Evaluated(folder, report, captions, read_grounding(captions_path))


def _system_in(report: Path) -> str | None:
    """The digit system that a report is of; None for a captioner's, or for no report."""
    try:
        return json.loads(report.read_text("utf-8")).get("system")
    except (OSError, ValueError, AttributeError):
        return None


def common_split(found: Sequence[Evaluated], data_dir: Path | None) -> Split:
    """The split all were evaluated on.

    Raises:
        ValueError: One was evaluated on other images or captions.
    """
    from training.datasets import load_split

    first, data = found[0].report, found[0].data
    split = load_split(data.name, first["split"], data_dir, **data.options())
    fingerprint = split.fingerprint()
    for one in found:
        if one.report["split_fingerprint"] != fingerprint:
            raise ValueError(
                f"{one.folder} was evaluated on other images or captions than the {split.name} "
                f"split of {data.name} that is read now (seed {data.seed}, limit {data.limit}): "
                f"expected the fingerprint {fingerprint[:12]}..., got "
                f"{one.report['split_fingerprint'][:12]}..."
            )
    return split


def score_table(scores: Mapping[str, CaptionScores]) -> list[str]:
    """A line a metric, a column a run."""
    lines = [f"{'':<{_WIDTH}}" + "".join(f"  {label:>7}" for label in scores)]
    for metric in _common_metrics(scores):
        columns = (f"  {one.scores[metric]:7.2f}" for one in scores.values())
        lines.append(f"{metric:<{_WIDTH}}" + "".join(columns))
    return lines


def difference_table(scores: Mapping[str, CaptionScores], samples: int) -> list[str]:
    """A line a metric; of each run but the first, the difference and its 95 % interval."""
    from training.metrics.bootstrap import paired_bootstrap

    first, *others = scores
    heads = (f"  {f'{o} - {first}':>7}  {'95 % interval':<18}" for o in others)
    lines = [(f"{'':<{_WIDTH}}" + "".join(heads)).rstrip()]
    for metric in _common_metrics(scores):
        found = (paired_bootstrap(scores[o], scores[first], metric, samples) for o in others)
        lines.append(_difference_line(metric, found))
    return lines


def grounded(found: Sequence[Evaluated], image_ids: Sequence[str]) -> list[np.ndarray] | None:
    """Of each evaluation `[N, 2]`: the pointing game of these images, and over how many phrases.

    None where one has no maps, or the images have no boxes. An image without a phrase has zeros.
    """
    import numpy as np

    if not all(one.grounding for one in found):
        return None
    nothing = {_POINTING: 0.0, "phrases": 0}
    rows = ([one.grounding.get(i, nothing) for i in image_ids] for one in found)
    places = [np.array([[row[_POINTING], row["phrases"]] for row in own]) for own in rows]
    return places if places[0][:, 1].any() else None


def pointing_line(places: Sequence[np.ndarray]) -> str:
    """The line of `score_table` for the pointing game."""
    means = (one[:, 0] @ one[:, 1] / one[:, 1].sum() for one in places)
    return f"{_POINTING:<{_WIDTH}}" + "".join(f"  {mean:7.2f}" for mean in means)


def pointing_differences(places: Sequence[np.ndarray], samples: int) -> str:
    """The line of `difference_table` for the pointing game."""
    from training.metrics.bootstrap import paired_means

    first, *others = places
    # The phrases are the references': all have the same.
    found = (paired_means(other[:, 0], first[:, 0], first[:, 1], samples) for other in others)
    return _difference_line(_POINTING, found)


def _difference_line(metric: str, found: Iterable[Interval]) -> str:
    line = f"{metric:<{_WIDTH}}"
    for one in found:
        line += f"  {one.difference:+7.2f}  {f'[{one.low:+.2f}, {one.high:+.2f}]':<18}"
    return line.rstrip()


def notes(scores: Mapping[str, CaptionScores]) -> list[str]:
    """Each note once, with the runs it is about where it is not about all."""
    labels: dict[str, list[str]] = {}
    for label, one in scores.items():
        for note in one.notes:
            labels.setdefault(note, []).append(label)
    return [
        f"Note: {note}" if len(about) == len(scores) else f"Note on {', '.join(about)}: {note}"
        for note, about in labels.items()
    ]


def _common_metrics(scores: Mapping[str, CaptionScores]) -> list[str]:
    return [metric for metric in _METRICS if all(metric in one.scores for one in scores.values())]


if __name__ == "__main__":
    sys.exit(main())
