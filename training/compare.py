"""Compare two evaluated runs: `python -m training.compare RUN_A RUN_B --data-dir DIR`."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import tyro

_METRICS = ("bleu_4", "meteor", "cider", "rouge_l")


@dataclass(frozen=True)
class Arguments:
    """Score two runs on the same pictures and give the differences with paired intervals."""

    runs: tyro.conf.Positional[tuple[Path, Path]]
    """Two runs evaluated on the split, A and B; differences are A - B."""
    data_dir: Path | None = None
    """Your copy of the data set; drawn data needs none."""
    split: str = "dev"
    """train, dev or test."""
    samples: int = 1000
    """Bootstrap resamples."""


def main(argv: list[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    arguments = tyro.cli(Arguments, args=argv, prog="python -m training.compare")
    try:
        print(run(arguments))
    except (ValueError, OSError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    return 0


def run(arguments: Arguments) -> str:
    """The comparison as a table."""
    from training.datasets import canonical_split, load_split
    from training.metrics.bootstrap import paired_bootstrap
    from training.metrics.captions import score_captions
    from training.recipes import read_run_config

    configs = [read_run_config(path) for path in arguments.runs]
    if configs[0].data != configs[1].data:
        raise ValueError(
            "Received runs on different data: expected the same `data` configuration, got "
            f"{configs[0].data} and {configs[1].data}."
        )
    data = configs[0].data
    split = load_split(
        data.name, arguments.split, arguments.data_dir, seed=data.seed, limit=data.limit
    )
    found = [_captions(path, canonical_split(arguments.split)) for path in arguments.runs]
    references = {e.image_id: list(e.captions) for e in split.examples if e.image_id in found[0]}
    first, second = (score_captions(captions, references) for captions in found)
    lines = [
        f"A: {arguments.runs[0]}",
        f"B: {arguments.runs[1]}",
        f"{split.name}, {len(references)} pictures, {arguments.samples} resamples",
        f"{'':<8}  {'A':>7}  {'B':>7}  {'A - B':>7}  95 % interval",
    ]
    for metric in _METRICS:
        if metric in first.scores and metric in second.scores:
            interval = paired_bootstrap(first, second, metric, arguments.samples)
            a, b = first.scores[metric], second.scores[metric]
            lines.append(
                f"{metric:<8}  {a:7.2f}  {b:7.2f}  {interval.difference:+7.2f}  "
                f"[{interval.low:+.2f}, {interval.high:+.2f}]"
            )
    return "\n".join([*lines, *(f"Note: {note}" for note in first.notes)])


def _captions(run_dir: Path, split: str) -> dict[str, str]:
    """Image id -> caption, as the run's evaluation left them."""
    path = run_dir / "evaluation" / split / "captions.json"
    if not path.is_file():
        raise ValueError(
            f"{path} is missing: first run `python -m training.evaluate --run-dir {run_dir} "
            f"--split {split}`."
        )
    return {row["image_id"]: row["caption"] for row in json.loads(path.read_text("utf-8"))}


if __name__ == "__main__":
    sys.exit(main())
