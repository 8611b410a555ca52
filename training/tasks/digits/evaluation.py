"""Evaluation of a digit run: `python -m training.evaluate --run-dir RUN --data-dir DIR`.

Every key of the run's model is a flag, so that settings without weights, such as the choice of a
location by hard attention, can be varied for a trained model.
"""

from __future__ import annotations

import dataclasses
import shlex
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

import numpy as np
import tensorflow as tf
import tyro
from PIL import Image

from sat_tf.commands import program
from sat_tf.digits.models.digit_model import DigitModel
from sat_tf.fields import NonNegativeInt, check_fields, to_dict
from sat_tf.run_folder import RunFolder
from sat_tf.runs import RunError
from training.data.digits.batches import scoring_batches
from training.data.digits.config import DigitData
from training.data.digits.mnist import Digits, load_digits
from training.data.examples import SPLITS, canonical_split
from training.evaluate.reports import REPORT_FILE, format_scores, package_versions, write_report
from training.outputs import check_folder, check_own_images
from training.recipes.digits import RECIPES
from training.run_state.checkpoints import last_progress
from training.tasks.base import Places
from training.tasks.digits.config import (
    DigitRunConfig,
    changed_flags,
    read_digit_config,
)
from training.tasks.digits.model import load
from training.tasks.digits.training_digits import check_scored

OWN_SETTINGS = "the run's own settings"
"""`evaluated_with` in the report of a run that was evaluated as it was trained."""

_FIGURES = "figures"


class Scorer:
    """Scores a model on a split, with the same examples and random draws each time."""

    def __init__(self, model: DigitModel, data: DigitData, digits: Digits, split: str) -> None:
        self._model, self._data, self._digits, self._split = model, data, digits, split
        self._sums = tf.function(self._batch_sums, autograph=False, reduce_retracing=True)

    def scores(self) -> dict[str, float]:
        """Returns the mean of each score over the split; NaN if no example counts."""
        totals: dict[str, np.ndarray] = {}
        for number, batch in enumerate(self._batches()):
            for name, sums in self._sums(batch, self._seed(number)).items():
                totals[name] = totals.get(name, 0.0) + sums.numpy().astype(np.float64)
        return {
            name: float(total / weight) if weight else float("nan")
            for name, (total, weight) in totals.items()
        }

    def figures(self, count: int) -> list[np.ndarray]:
        """Draws attention on the first examples, uint8 `[., ., 3]` each."""
        found: list[np.ndarray] = []
        for number, batch in enumerate(self._batches()):
            if len(found) >= count:
                break
            left = count - len(found)
            first = {name: part[:left] for name, part in batch.items()}
            drawn = self._model.figures(first, self._seed(number))
            if not drawn:
                break
            found += drawn
        return found

    def _batches(self) -> Iterator[dict[str, tf.Tensor]]:
        return scoring_batches(self._digits, self._data, self._split)

    def _seed(self, number: int) -> tf.Tensor:
        return tf.constant([SPLITS.index(self._split), number], tf.int32)

    def _batch_sums(self, batch: dict[str, tf.Tensor], seed: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns `[sum of weighted values, sum of weights]` of each score over a batch."""
        sums = {}
        for name, (values, weights) in self._model.scores(batch, seed).items():
            weights = tf.ones_like(values) if weights is None else weights
            sums[name] = tf.stack([tf.reduce_sum(values * weights), tf.reduce_sum(weights)])
        return sums


M = TypeVar("M")


@dataclass(frozen=True)
class Arguments(Generic[M]):
    """Evaluate the best weights of a digit run."""

    run_dir: Path
    """The run folder that `python -m training.train` wrote."""
    model: Annotated[M, tyro.conf.FlagConversionOff]
    """The run's model; settings that determine weights cannot change."""
    data_dir: Path | None = None
    """Folder of the mnist.npz that the run was trained with; TensorFlow Datasets by default."""
    split: str = "dev"
    """train, dev or test (x_test)."""
    out: Path | None = None
    """Folder of the report; evaluation/SPLIT in RUN by default."""
    figures: NonNegativeInt = 12
    """Figures beside the report."""

    def __post_init__(self) -> None:
        check_fields(self)


def run(run_dir: Path, argv: list[str]) -> int:
    """Runs the command for a known run folder; returns the exit status."""
    config = read_digit_config(run_dir)
    arguments = tyro.cli(
        Arguments[type(config.model)],
        args=argv,
        default=Arguments(run_dir, config.model),
        prog=program("training.evaluate"),
        description=f"Evaluate the best weights of this run of {config.recipe}.",
    )
    asked = dataclasses.replace(config, model=arguments.model)
    if arguments.out is not None:
        check_folder("--out", arguments.out)
    evaluate_run(
        load(asked, run_dir),
        config,
        Places(run_dir, data_dir=arguments.data_dir),
        arguments.split,
        arguments.out,
        arguments.figures,
        asked,
    )
    return 0


def evaluate_run(
    model: DigitModel,
    config: DigitRunConfig,
    places: Places,
    split: str = "dev",
    out: Path | None = None,
    figures: int = 12,
    asked: DigitRunConfig | None = None,
) -> dict:
    """Evaluates a run on a split; prints, writes and returns the report, and draws the figures.

    Args:
        model: The run's best.
        config: The configuration it was trained with.
        places: The run's folders.
        split: `train`, `dev` or `test`.
        out: Output folder; `RUN/evaluation/SPLIT` if None.
        figures: Maximum number of figures.
        asked: The configuration it is evaluated with; None for its own.

    Raises:
        DataError: The digits cannot be read, or the run may have learned from them.
    """
    split, run_dir, data = canonical_split(split), places.run_dir, config.data
    out = out or places.folder.evaluation(split)
    check_own_images("--out", out, _FIGURES, REPORT_FILE)
    check_scored(run_dir, split, data, places.data_dir)
    digits = load_digits(split, places.data_dir, data.dev_digits, data.limit)
    scorer = Scorer(model, data, digits, split)
    start = time.monotonic()
    scores = scorer.scores()
    seconds = time.monotonic() - start
    report = make_report(config, asked or config, split, digits, scores, seconds)
    report |= {"weights_sha256": model.weights_sha256} | training_so_far(run_dir)
    write_report(out, report)
    drawn = scorer.figures(figures)
    save_figures(out / _FIGURES, drawn)
    print(f"\n{config.recipe}: {split}, {len(digits)} examples, percent")
    print(format_scores(scores))
    print(f"Report{' and figures' if drawn else ''}: {out}")
    return report


def make_report(
    config: DigitRunConfig,
    asked: DigitRunConfig,
    split: str,
    digits: Digits,
    scores: dict[str, float],
    seconds: float,
) -> dict[str, Any]:
    """Assembles the report: scores, and everything needed to compare them with others."""
    return {
        "recipe": config.recipe,
        "system": config.system,
        "seed": config.seed,
        "split": split,
        "error": scores["error"],
        "scores": scores,
        "examples": len(digits),
        "digits_fingerprint": digits.fingerprint(),
        "command": training_command(config),
        "evaluated_with": shlex.join(changed_flags(asked, config)) or OWN_SETTINGS,
        "evaluation_seconds": seconds,
        "configuration": to_dict(config),
        "versions": package_versions(),
    }


def training_so_far(run_dir: Path) -> dict[str, Any]:
    """Returns the report's entry about the training; none if the checkpoint is gone or damaged.

    The scores do not depend on it, as they are those of the best weights.
    """
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
    return shlex.join(["python", "-m", "training.train", *flags])


def save_figures(folder: Path, figures: list[np.ndarray]) -> None:
    """Writes `FOLDER/NN.png`, and removes those of an earlier evaluation."""
    for old in folder.glob("*.png"):
        if old.stem.isdecimal():
            old.unlink()
    for number, figure in enumerate(figures):
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(figure).save(folder / f"{number:02d}.png")
