"""Compare the estimators of hard attention: `python -m benchmarks.estimators`.

Each estimator is trained from the same seeds on drawn scenes and evaluated; the noise of its
gradient is measured from shared weights. docs/estimators.md explains the figures.
"""

from __future__ import annotations

import json
import logging
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from benchmarks.measure import Column, format_table
from benchmarks.run import chosen
from sat_tf.commands import exit_status
from sat_tf.errors import invalid_value
from sat_tf.fields import NonNegativeInt, PositiveInt, check_fields
from sat_tf.files import write_json
from training.run_state.checkpoints import last_progress

ESTIMATORS: dict[str, dict[str, Any]] = {
    "soft": {"kind": "soft"},
    "paper": {"preset": "paper"},
    "arctic": {"preset": "arctic"},
    # An unbiased form of the paper's estimator: its sample and its baseline alone.
    "reinforce": {"reward_weight": 1.0, "entropy_weight": 0.0, "expectation_probability": 0.0},
    "rloo": {"preset": "rloo"},
    "vimco": {"preset": "vimco"},
}
"""Keys of `attention` that each estimator sets."""

Row = dict[str, Any]
_SETTINGS = {"recipe": "scenes_hard", "fit.epochs": 3, "fit.figures": 0}
_SCORES = ("bleu_4", "cider", "pointing_game")
_BOUNDS = ("elbo", "importance_weighted_bound_50")


@dataclass(frozen=True)
class Arguments:
    """Train the estimators of hard attention from the same seeds, and compare them.

    Other flags, but for --attention, are those of training.train, for all runs.
    """

    estimators: tuple[str, ...] = ("soft", "paper", "reinforce", "rloo", "vimco")
    """Estimators, separated by spaces or commas: soft (for reference), paper, arctic, reinforce,
    rloo, vimco."""
    seeds: tuple[str, ...] = ("0", "1", "2")
    """Seeds, separated by spaces or commas."""
    out: Path = Path("runs/estimators")
    """Folder of the runs, which are resumed from there, and of comparison.json."""
    batches: PositiveInt = 4
    """Training batches on which gradients and steps are measured."""
    draws: NonNegativeInt = 64
    """Gradients drawn per batch; 0 leaves the noise out."""


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    arguments, keys = tyro.cli(
        Arguments, args=argv, prog="python -m benchmarks.estimators", return_unknown_args=True
    )
    return exit_status(lambda: run(arguments, keys))


def run(arguments: Arguments, keys: Sequence[str] = ()) -> None:
    """Trains, measures, writes and prints the table."""
    check_fields(arguments)
    names = chosen("--estimators", arguments.estimators, ESTIMATORS)
    hard = [name for name in names if name != "soft"]
    if not hard:
        raise invalid_value("--estimators", "one of hard attention", ", ".join(names))
    seeds = [int(text) for part in arguments.seeds for text in part.split(",")]
    reference = "paper" if "paper" in hard else hard[0]
    rows: list[Row] = []
    for seed in seeds:
        runs = {name: arguments.out / f"{name}-seed{seed}" for name in names}
        found = {name: figures(name, seed, runs[name], keys) for name in names}
        if arguments.draws:
            from benchmarks.gradient_noise import measure

            attention = {name: ESTIMATORS[name] for name in names}
            noise = measure(attention, runs[reference], arguments.batches, arguments.draws)
            base = noise[reference]
            for name, row in noise.items():
                # In a given time the mean is over so many steps, and its variance so much lower.
                own = row.get("relative_variance"), base.get("relative_variance")
                if None not in own:
                    row["equal_compute"] = own[0] * row["step_ms"] / (own[1] * base["step_ms"])
                found[name] |= row
        rows += found.values()
    write_json(arguments.out / "comparison.json", {"reference": reference, "runs": rows})
    print(format_table(columns(reference), [summary(name, rows) for name in names]))


def figures(name: str, seed: int, run_dir: Path, keys: Sequence[str]) -> Row:
    """Trains and evaluates a run, unless that is done already, and returns its figures.

    Raises:
        OSError: A command failed; it says why on standard error.
    """
    report = run_dir / "evaluation" / "dev" / "report.json"
    if not report.is_file():
        print(f"\n{name}, seed {seed}", file=sys.stderr, flush=True)
        attention = {f"attention.{key}": value for key, value in ESTIMATORS[name].items()}
        given = {**_SETTINGS, **attention, "seed": seed, "run-dir": run_dir}
        flags = [part for key, value in given.items() for part in (f"--{key}", str(value))]
        _call("training.train", *flags, *keys)
        _call("training.evaluate", "--run-dir", str(run_dir), "--split", "dev", "--figures", "0")
    found = json.loads(report.read_text("utf-8"))
    row = {"estimator": name, "seed": seed}
    row |= {key: found["scores"][key] for key in _SCORES if key in found["scores"]}
    row |= {key: found["bounds"][key] for key in _BOUNDS if key in found.get("bounds", {})}
    progress = last_progress(run_dir / "checkpoints")
    return row | {"minutes": None if progress is None else progress.seconds / 60}


def _call(*command: str) -> None:
    done = subprocess.run([sys.executable, "-m", *command], stdout=sys.stderr)
    if done.returncode:
        raise OSError(f"{command[0]} ended with status {done.returncode}")


@dataclass(frozen=True)
class Spread:
    """One figure of several runs."""

    values: tuple[float, ...]

    def __format__(self, form: str) -> str:
        mean = f"{statistics.fmean(self.values):{form}}"
        if len(self.values) < 2:
            return mean
        return f"{mean} ± {statistics.stdev(self.values):{form}}"


def summary(name: str, rows: Sequence[Row]) -> Mapping[str, Any]:
    """Combines the seeds of an estimator: a `Spread` per figure."""
    own = [row for row in rows if row["estimator"] == name]
    found: Row = {"estimator": name, "samples": own[0].get("samples")}
    for key in own[0].keys() - {"estimator", "seed", "samples"}:
        if values := tuple(row[key] for row in own if row.get(key) is not None):
            found[key] = Spread(values)
    return found


def columns(reference: str) -> tuple[Column, ...]:
    """Returns the columns of the table."""
    return (
        Column("estimator"),
        Column("samples", "M"),
        Column("step_ms", "step ms", ".0f"),
        Column("relative_variance", "variance", ".3g"),
        Column("equal_compute", f"x {reference} at equal compute", ".2f"),
        Column("cosine", "cosine", ".2f"),
        Column("elbo", "ELBO", ".2f"),
        Column("importance_weighted_bound_50", "IW bound 50", ".2f"),
        Column("bleu_4", "BLEU-4", ".1f"),
        Column("cider", "CIDEr", ".0f"),
        Column("pointing_game", "pointing game", ".1f"),
        Column("minutes", "minutes", ".1f"),
    )


if __name__ == "__main__":
    # TensorFlow warns of functions traced for several shapes, which are intended here.
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    sys.exit(main())
