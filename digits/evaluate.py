"""Evaluate a digit run: `python -m digits.evaluate --run-dir RUN --data-dir DIR`."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from PIL import Image

from digits.config import (
    RECIPES,
    DigitData,
    DigitRunConfig,
    DRAMConfig,
    PortionsConfig,
    RAMConfig,
    STNConfig,
    changed_flags,
    read_digit_config,
)
from digits.data import Digits, load_digits, scoring_batches
from digits.models import DigitModel
from digits.models.portions import Portions
from digits.models.recurrent_attention import DRAM, RAM
from digits.models.stn import STN
from sat_tf.compat import default_policy
from sat_tf.inference.run_folder import RunFolder
from sat_tf.inference.weights import load_weights
from sat_tf.train_step import Batch
from sat_tf.util.commands import check_folder, exit_status, parse_flags
from sat_tf.util.errors import RunError, invalid_value
from sat_tf.util.fields import NonNegativeInt, check_fields, to_dict
from training.data.examples import SPLITS, canonical_split
from training.evaluation.report import REPORT_FILE, format_scores, package_versions, write_report
from training.run.checkpoints import last_progress

_FIGURES = "figures"


def new_model(config: DigitRunConfig, precision: str | None = None) -> DigitModel:
    """Builds the model with new weights, not compiled, in the run's precision or another one."""
    model, data = config.model, config.data
    if isinstance(model, PortionsConfig):
        return Portions(model, data.portions)
    # Only convolutions profit from another precision.
    reduced = (precision or config.fit.precision) == "bfloat16"
    policy = {"dtype": "mixed_bfloat16" if reduced else "float32"}
    kinds = {STNConfig: (STN, policy), RAMConfig: (RAM, {}), DRAMConfig: (DRAM, {})}
    kind, options = kinds[type(model)]
    with default_policy("float32"):
        made = kind(model, data.size, len(data.answers), **options)
    made.answers = data.answers
    return made


def load(config: DigitRunConfig, run_dir: Path) -> DigitModel:
    """Loads the best weights of a run, in float32.

    Raises:
        RunError: The weights are missing or do not fit.
    """
    weights = RunFolder(run_dir).best_weights
    if not weights.is_file():
        raise RunFolder(run_dir).without_weights()
    model = new_model(config, "float32")
    model.weights_sha256 = load_weights(model, weights)
    return model


class Scorer:
    """Scores a model on a split, with the same examples and random draws each time."""

    def __init__(self, model: DigitModel, data: DigitData, digits: Digits, split: str) -> None:
        self._model, self._data, self._digits, self._split = model, data, digits, split

        def sums(batch: Batch, seed: tf.Tensor) -> dict[str, tf.Tensor]:
            found = {}  # [sum of weighted values, sum of weights] of each score
            for name, (values, weights) in model.scores(batch, seed).items():
                weights = tf.ones_like(values) if weights is None else weights
                found[name] = tf.stack([tf.reduce_sum(values * weights), tf.reduce_sum(weights)])
            return found

        self._sums = tf.function(sums, autograph=False, reduce_retracing=True)

    def scores(self) -> dict[str, float]:
        """Returns the mean of each score over the split; NaN if no example counts."""
        totals: dict[str, np.ndarray] = {}
        for batch, seed in self._batches():
            for name, sums in self._sums(batch, seed).items():
                totals[name] = totals.get(name, 0.0) + sums.numpy().astype(np.float64)
        return {
            name: float(total / weight) if weight else float("nan")
            for name, (total, weight) in totals.items()
        }

    def figures(self, count: int) -> dict[str, np.ndarray]:
        """Draws attention on the first examples: "00", "01", ... -> uint8 `[., ., 3]`."""
        found: list[np.ndarray] = []
        for batch, seed in self._batches():
            left = {name: part[: count - len(found)] for name, part in batch.items()}
            drawn = self._model.figures(left, seed) if len(found) < count else []
            if not drawn:
                break
            found += drawn
        return {f"{number:02d}": figure for number, figure in enumerate(found)}

    def _batches(self) -> Iterator[tuple[Batch, tf.Tensor]]:
        code = SPLITS.index(self._split)
        batches = scoring_batches(self._digits, self._data, self._split)
        for number, batch in enumerate(batches):
            yield batch, tf.constant([code, number], tf.int32)


@dataclass(frozen=True)
class Arguments:
    """Evaluate the best weights of a digit run."""

    run_dir: Path
    """The run folder that `python -m digits.train` wrote."""
    data_dir: Path | None = None
    """Folder of mnist.npz; Keras downloads it by default."""
    split: str = "dev"
    """train, dev or test (x_test)."""
    out: Path | None = None
    """Folder of the report; evaluation/SPLIT in RUN by default."""
    figures: NonNegativeInt = 12
    """Figures next to the report."""

    def __post_init__(self) -> None:
        check_fields(self)


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    arguments = parse_flags(Arguments, argv, "digits.evaluate")
    return exit_status(lambda: run(arguments))


def run(arguments: Arguments) -> None:
    """Evaluates the best weights of a run."""
    config = read_digit_config(arguments.run_dir)
    if arguments.out is not None:
        check_folder("--out", arguments.out)
    evaluate_run(load(config, arguments.run_dir), config, arguments)


def evaluate_run(model: DigitModel, config: DigitRunConfig, arguments: Arguments) -> None:
    """Evaluates a run's best model on a split; writes the report and the figures, prints scores.

    Raises:
        DataError: The digits cannot be read.
        ValueError: The folder of the report has figures of something else.
    """
    run_dir, split = arguments.run_dir, canonical_split(arguments.split)
    out = arguments.out or RunFolder(run_dir).evaluation(split)
    folder = out / _FIGURES
    if folder.is_dir() and any(folder.iterdir()) and not (out / REPORT_FILE).is_file():
        expected = f"a folder without `{_FIGURES}`, or of an earlier evaluation"
        raise invalid_value("--out", expected, str(out))
    digits = load_digits(split, config.data, arguments.data_dir)
    scorer, start = Scorer(model, config.data, digits, split), time.monotonic()
    scores = scorer.scores()
    report = {
        "recipe": config.recipe,
        "system": config.system,
        "seed": config.seed,
        "split": split,
        "error": scores["error"],
        "scores": scores,
        "examples": len(digits),
        "command": training_command(config),
        "evaluation_seconds": time.monotonic() - start,
        "configuration": to_dict(config),
        "versions": package_versions(),
        "weights_sha256": model.weights_sha256,
        **_training(run_dir),
    }
    write_report(out, report)
    for old in folder.glob("[0-9][0-9].png"):
        old.unlink()
    drawn = scorer.figures(arguments.figures)
    for name, figure in drawn.items():
        folder.mkdir(exist_ok=True)
        Image.fromarray(figure).save(folder / f"{name}.png")
    print(f"\n{config.recipe}: {split}, {len(digits)} examples, percent")
    print(format_scores(scores))
    print(f"Report{' and figures' if drawn else ''}: {out}")


def _training(run_dir: Path) -> dict[str, Any]:
    """Returns the report's entry about the training; none if the checkpoint is gone or damaged."""
    try:
        progress = last_progress(RunFolder(run_dir).checkpoints)
    except RunError as error:
        print(f"Warning: {error}", file=sys.stderr)
        return {}
    if progress is None:
        return {}
    done = {"epochs": progress.epoch, "best_epoch": progress.best_epoch}
    return {"training": {"minutes": progress.seconds / 60} | done}


def training_command(config: DigitRunConfig) -> str:
    """Returns the command that trains such a run, without the user's `--data-dir`, `--run-dir`."""
    base = RECIPES.get(config.recipe, config)
    flags = ["--recipe", config.recipe, *changed_flags(config, base)]
    return shlex.join(["python", "-m", "digits.train", *flags])


if __name__ == "__main__":
    sys.exit(main())
