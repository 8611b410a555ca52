"""Compare the estimators of hard attention: `python -m benchmarks.estimators`.

Each estimator is trained from the same seeds on drawn scenes and evaluated; the noise of its
gradient is measured from shared weights. docs/estimators.md explains the figures.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from benchmarks.case import Row
from benchmarks.dot_plot import Panel, Spread, save_plot
from benchmarks.run import chosen, prepare_file
from sat_tf.errors import invalid_value
from sat_tf.fields import to_dict
from sat_tf.files import default_cache_dir, write_atomically
from training.cli import Settings
from training.config import RunConfig
from training.recipes.captioning import RECIPES
from training.run_state.preemption import Interrupts, exit_status
from training.tables import Column, format_table

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
DEFAULT = ("soft", "paper", "reinforce", "rloo", "vimco")
REFERENCE = "paper"
UNBIASED = "rloo"
"""Estimator whose mean gradient stands for that of the ELBO."""
_DRAWN = RECIPES["scenes_hard"]
BASE = dataclasses.replace(_DRAWN, fit=dataclasses.replace(_DRAWN.fit, epochs=3, figures=0))
"""Configuration that all share."""

_NO_FIGURES = ("estimator", "seed", "samples")


@dataclass(frozen=True)
class Arguments:
    """Train the estimators of hard attention from the same seeds, and compare them."""

    config: Settings = BASE
    """Shared configuration: the recipe scenes_hard, shortened. The estimators set --attention."""
    estimators: tuple[str, ...] = ()
    """Estimators, separated by spaces or commas: soft (for reference), paper, arctic, reinforce,
    rloo, vimco; all but arctic by default."""
    seeds: tuple[str, ...] = ("0", "1", "2")
    """Seeds, separated by spaces or commas."""
    out: Path = Path("runs/estimators")
    """Folder of the runs, which are resumed from there."""
    json: Path | None = None
    """File of all measurements; comparison.json in OUT by default."""
    plot: Path | None = None
    """File of the plot; comparison.png in OUT by default."""
    batches: int = 4
    """Training batches on which gradients and steps are measured."""
    draws: int = 64
    """Gradients drawn per batch."""


@dataclass(frozen=True)
class Plan:
    """Checked arguments.

    Attributes:
        configs: Configuration of the runs by estimator, apart from the seeds.
        seeds: At least one.
        reference: Hard-attention estimator that the noise of the others is compared with, and
            from whose weights it is measured.
    """

    configs: dict[str, RunConfig]
    seeds: tuple[int, ...]
    reference: str


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    arguments = tyro.cli(Arguments, args=argv, prog="python -m benchmarks.estimators")
    return exit_status(lambda interrupts: print(run(arguments, interrupts)))


def run(arguments: Arguments, interrupts: Interrupts | None = None) -> str:
    """Trains, measures and writes; returns the table."""
    plan = plan_of(arguments)
    report_path = arguments.json or arguments.out / "comparison.json"
    plot_path = arguments.plot or arguments.out / "comparison.png"
    prepare_file("--json", report_path)
    prepare_file("--plot", plot_path)
    # Wrong flags are answered before TensorFlow is loaded.
    from benchmarks.measure import machine

    load = [os.getloadavg()[0]]
    # Only the table goes to standard output.
    with contextlib.redirect_stdout(sys.stderr):
        rows = [row for seed in plan.seeds for row in _one_seed(plan, seed, arguments, interrupts)]
    load.append(os.getloadavg()[0])
    compared = summarise(rows)
    report = {
        "reference": plan.reference,
        "configurations": {name: to_dict(config) for name, config in plan.configs.items()},
        "batches": arguments.batches,
        "draws": arguments.draws,
        "machine": machine(),
        "load_average": load,
        "runs": rows,
    }
    write_atomically(report_path, json.dumps(report, indent=1) + "\n")
    save_plot(plot_path, panels(plan.reference), compared)
    return format_table(columns(plan.reference), compared)


def plan_of(arguments: Arguments) -> Plan:
    """Checks the arguments.

    Raises:
        ValueError: An argument is out of range or set by the estimators; the message names it.
    """
    config = arguments.config
    for key, flag in (("recipe", None), ("seed", "--seeds"), ("attention", "--estimators")):
        value = getattr(config, key)
        if value != getattr(BASE, key):
            instead = f"; see `{flag}`" if flag else ""
            raise ValueError(
                f"Received a value for `--{key}`, which the comparison sets itself{instead}."
            )
    for name, least in (("batches", 1), ("draws", 2)):
        if getattr(arguments, name) < least:
            raise invalid_value(f"--{name}", f"{least} or more", getattr(arguments, name))
    names = chosen("--estimators", arguments.estimators, ESTIMATORS, DEFAULT)
    hard = [name for name in names if name != "soft"]
    if not hard:
        raise invalid_value("--estimators", "one of hard attention", ", ".join(names))
    configs = {name: config_of(name, config) for name in names}
    return Plan(configs, _seeds(arguments.seeds), REFERENCE if REFERENCE in hard else hard[0])


def config_of(name: str, shared: RunConfig) -> RunConfig:
    """Returns the configuration of an estimator's runs, apart from the seed."""
    attention = dataclasses.replace(shared.attention, **ESTIMATORS[name])
    # All train for the same number of epochs.
    fit = dataclasses.replace(shared.fit, patience=shared.fit.epochs)
    return dataclasses.replace(
        shared, recipe=f"scenes_{attention.kind}", attention=attention, fit=fit
    )


def _seeds(given: Iterable[str]) -> tuple[int, ...]:
    texts = [text for part in given for text in part.split(",") if text]
    if not texts or not all(text.isdecimal() for text in texts):
        raise invalid_value("--seeds", "integers of 0 or more", " ".join(given) or "none")
    return tuple(dict.fromkeys(map(int, texts)))


def _one_seed(
    plan: Plan, seed: int, arguments: Arguments, interrupts: Interrupts | None
) -> list[Row]:
    """Trains and measures every estimator from one seed; returns a row each."""
    from benchmarks.estimator_runs import figures
    from benchmarks.gradient_noise import measure
    from training.tasks.base import Places

    configs = {n: dataclasses.replace(config, seed=seed) for n, config in plan.configs.items()}
    places = {n: Places(arguments.out / f"{n}-seed{seed}", default_cache_dir()) for n in configs}
    rows = {}
    for name, config in configs.items():
        print(f"\n{name}, seed {seed}", flush=True)
        found = figures(config, places[name], interrupts)
        rows[name] = {"estimator": name, "seed": seed, **found}
    print(f"\nGradients and steps, seed {seed}", flush=True)
    start = places[plan.reference]
    target = dataclasses.replace(config_of(UNBIASED, arguments.config), seed=seed)
    settings = arguments.batches, arguments.draws
    measured = measure(configs, start.run_dir, start, target, *settings)
    for name, row in measured.items():
        rows[name] |= row
    return at_equal_compute(list(rows.values()), plan.reference)


def at_equal_compute(rows: Sequence[Row], reference: str) -> list[Row]:
    """Adds `equal_compute`: relative variance times step time, relative to the reference.

    The number of estimates averaged in a given time is its number of steps, and the variance of
    their mean falls with that number.
    """
    (base,) = (_noise_time(row) for row in rows if row["estimator"] == reference)
    added = []
    for row in rows:
        own = _noise_time(row)
        known = own is not None and base is not None
        added.append(row | {"equal_compute": own / base if known else None})
    return added


def _noise_time(row: Row) -> float | None:
    variance = row.get("relative_variance")
    return None if variance is None else variance * row["step_ms"]


def summarise(rows: Sequence[Row]) -> list[Row]:
    """Combines the seeds: one row per estimator with a `Spread` per figure."""
    by_name: dict[str, list[Row]] = {}
    for row in rows:
        by_name.setdefault(row["estimator"], []).append(row)
    return [_summary(name, found) for name, found in by_name.items()]


def _summary(name: str, rows: Sequence[Row]) -> Mapping[str, Any]:
    summary: dict[str, Any] = {"estimator": name, "samples": rows[0].get("samples")}
    for key in dict.fromkeys(key for row in rows for key in row):
        values = tuple(row[key] for row in rows if row.get(key) is not None)
        if key not in _NO_FIGURES and values:
            summary[key] = Spread(values)
    return summary


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


def panels(reference: str) -> tuple[Panel, ...]:
    """Returns the panels of the plot."""
    return (
        Panel("equal_compute", "Gradient variance, equal compute", f"times that of {reference}"),
        Panel("elbo", "ELBO", "nats per caption"),
        Panel("importance_weighted_bound_50", "IW bound, 50 samples", "nats per caption"),
        Panel("bleu_4", "BLEU-4", "0 to 100"),
        Panel("cider", "CIDEr", "100 times the metric"),
        Panel("pointing_game", "Pointing game", "%"),
        Panel("minutes", "Training", "minutes"),
    )


if __name__ == "__main__":
    # TensorFlow warns of functions traced for several shapes, which are intended here.
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    sys.exit(main())
