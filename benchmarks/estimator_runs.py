"""Training and evaluating one run of a comparison, or reading what it left when it was done."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.case import Row
from sat_tf.runs import RunError
from training.checkpoints import last_progress
from training.evaluate import evaluate_run
from training.fit import fit
from training.interrupts import Interrupts
from training.recipes import RunConfig
from training.reports import REPORT_FILE
from training.run_data import Places
from training.run_folder import check_run_dir

_SPLIT = "dev"


def figures(config: RunConfig, places: Places, interrupts: Interrupts | None = None) -> Row:
    """A run's figures; it is trained and evaluated as far as it is not yet.

    Args:
        config: What to train.
        places: Where.
        interrupts: Signals that end the run once its state is kept.

    Returns:
        `bleu_4`, `cider` and `pointing_game` of the dev split, `elbo` and
        `importance_weighted_bound_50` of hard attention, `minutes` of training.

    Raises:
        RunError: The folder belongs to a run with another configuration.
    """
    try:
        check_run_dir(config, places.run_dir)
    except RunError as error:
        raise RunError(str(error).replace("--run-dir", "--out")) from error
    report = places.run_dir / "evaluation" / _SPLIT / REPORT_FILE
    if not report.is_file():
        captioner = fit(config, places, interrupts=interrupts)
        evaluate_run(captioner, config, places, _SPLIT, pictures=0)
    return read_figures(report) | {"minutes": minutes(places.run_dir)}


def read_figures(report: Path) -> Row:
    """The figures of a report that are compared."""
    found = json.loads(report.read_text("utf-8"))
    scores, bounds = found["scores"], found.get("bounds", {})
    row = {name: scores[name] for name in ("bleu_4", "cider", "pointing_game")}
    names = ("elbo", "importance_weighted_bound_50")
    return row | {name: bounds[name] for name in names if name in bounds}


def minutes(run_dir: Path) -> float:
    """What training took, validation included, in all the processes it took."""
    progress = last_progress(run_dir / "checkpoints")
    if progress is None:
        raise RunError(f"{run_dir} has no checkpoint: how long it was trained is not known.")
    return progress.seconds / 60
