"""Compare evaluated runs: `python -m training.compare RUN RUN ...`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import tyro

from sat_tf.commands import exit_status, loading, program
from sat_tf.errors import invalid_value
from sat_tf.fields import PositiveInt, check_fields
from sat_tf.published import locate, output_dir
from sat_tf.run_folder import RunFolder
from training import digits


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
    samples: int = 1000
    """Bootstrap resamples."""

    def __post_init__(self) -> None:
        check_fields(self)


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    arguments = tyro.cli(Arguments, args=argv, prog=program("training.compare"))
    return exit_status(lambda: print(run(arguments)))


def run(arguments: Arguments) -> str:
    """Returns the comparison as text."""
    from training.data.examples import canonical_split
    from training.evaluate.reports import REPORT_FILE
    from training.tasks.comparison import LABELS

    runs, split = arguments.runs, canonical_split(arguments.split)
    seeds = arguments.seeds
    if not 2 <= len(runs) / seeds <= len(LABELS):
        raise invalid_value("runs", f"{2 * seeds} to {len(LABELS) * seeds} folders", len(runs))
    if len(runs) % seeds:
        raise invalid_value("runs", f"{seeds} folders for each system", len(runs))
    folders = [evaluation_folder(path, split) for path in runs]
    are_digits = [digits.is_digit_report(folder / REPORT_FILE) for folder in folders]
    for path, other in zip(runs, are_digits, strict=True):
        if other is not are_digits[0]:
            raise ValueError(
                f"{path} cannot be compared with {runs[0]}: captioners and digit systems have "
                "different scores."
            )
    if are_digits[0]:
        compare = digits.command("evaluate").compare
    else:
        with loading():
            from training.tasks.captioning.comparison import compare
    systems = [", ".join(map(str, runs[at : at + seeds])) for at in range(0, len(runs), seeds)]
    lines = [f"{label}: {paths}" for label, paths in zip(LABELS, systems, strict=False)]
    lines += compare(folders, split, arguments.data_dir, arguments.samples, seeds)
    return "\n".join(lines).rstrip()


def evaluation_folder(path: Path, split: str) -> Path:
    """Returns `RUN/evaluation/SPLIT`, or the folder itself if it holds a report.

    Raises:
        ValueError: There is no evaluation on that split.
    """
    from training.evaluate.reports import REPORT_FILE

    folder = (
        path if (path / REPORT_FILE).is_file() else RunFolder(output_dir(path)).evaluation(split)
    )
    if not path.is_dir():
        locate(path)  # names what was probably meant
    if not (folder / REPORT_FILE).is_file():
        raise ValueError(
            f"{folder / REPORT_FILE} is missing: first run `python -m training.evaluate --run-dir "
            f"{path} --split {split}`."
        )
    return folder


if __name__ == "__main__":
    sys.exit(main())
