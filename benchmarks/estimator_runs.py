"""Runs of the comparison: trained and evaluated, or read if they are finished."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.case import Row
from sat_tf.runs import RunError
from training.config import RunConfig
from training.evaluate.reports import REPORT_FILE
from training.evaluate.run_evaluation import evaluate_run
from training.loop.fit import fit
from training.run_state.checkpoints import last_progress
from training.run_state.ownership import check_run_dir
from training.run_state.preemption import Interrupts
from training.tasks.base import Places
from training.tasks.captioning.task import CaptioningTask

_SPLIT = "dev"


def figures(config: RunConfig, places: Places, interrupts: Interrupts | None = None) -> Row:
    """Trains and evaluates a run, unless that is done already, and returns its figures.

    Returns:
        `bleu_4`, `cider` and `pointing_game` of the dev split, `elbo` and
        `importance_weighted_bound_50` of hard attention, `minutes` of training.

    Raises:
        RunError: The folder belongs to a run with another configuration.
    """
    task = CaptioningTask(config, places)
    try:
        check_run_dir(task)
    except RunError as error:
        raise RunError(str(error).replace("--run-dir", "--out")) from error
    report = places.folder.evaluation(_SPLIT) / REPORT_FILE
    if not report.is_file():
        captioner = fit(task, interrupts=interrupts)
        evaluate_run(captioner, config, places, _SPLIT, figures=0)
    return read_figures(report) | {"minutes": minutes(places.run_dir)}


def read_figures(report: Path) -> Row:
    """Reads the figures that are compared from a report."""
    found = json.loads(report.read_text("utf-8"))
    scores, bounds = found["scores"], found.get("bounds", {})
    row = {name: scores[name] for name in ("bleu_4", "cider", "pointing_game")}
    names = ("elbo", "importance_weighted_bound_50")
    return row | {name: bounds[name] for name in names if name in bounds}


def minutes(run_dir: Path) -> float:
    """Returns the training time, validation included, over all processes it took."""
    progress = last_progress(run_dir / "checkpoints")
    if progress is None:
        raise RunError(f"{run_dir} has no checkpoint: how long it was trained is not known.")
    return progress.seconds / 60
