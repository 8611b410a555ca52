"""Going on where a run stopped: the last state, whole or not at all, and the best weights."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import tensorflow as tf

from sat_tf.models.captioner import Captioner
from sat_tf.runs import RunError

_STATE_FILE = "state.json"
_PREFIX = "variables"


@dataclass
class Progress:
    """How far a run is; goes into every checkpoint.

    Attributes:
        epoch: Epochs finished.
        best_epoch: Epoch whose weights are the best so far, from 1; 0 before there is one.
        best_score: Its monitored score; higher is better.
        waited: Epochs since then.
        stopped: Early stopping ended the run.
        seconds: Time spent training so far, in all the processes the run took.
    """

    epoch: int = 0
    best_epoch: int = 0
    best_score: float | None = None
    waited: int = 0
    stopped: bool = False
    seconds: float = 0.0

    def better(self, score: float) -> bool:
        """Whether this score beats the best so far; one that is no number never does."""
        if self.best_score is None:
            return not math.isnan(score)
        return score > self.best_score


class Checkpoints:
    """Variables of model and optimiser with the run's progress, in `RUN/checkpoints/epoch-NNN`.

    A checkpoint is written under another name and renamed, so that a killed process leaves the
    one before it; only the last is kept.

    Args:
        directory: `RUN/checkpoints`.
        model: A compiled captioner.
    """

    def __init__(self, directory: Path, model: Captioner) -> None:
        self._directory = directory
        # The optimiser's variables are made where the model's are: on every replica.
        with model.distribute_strategy.scope():
            model.optimizer.build(model.trainable_variables)
        variables = [*model.variables, *model.optimizer.variables]
        # Keyed by position: the paths of Keras' variables are not unique.
        self._checkpoint = tf.train.Checkpoint(
            **{f"{_PREFIX}_{index}": v.value for index, v in enumerate(variables)}
        )

    def save(self, progress: Progress) -> None:
        """Write the present state and remove older ones."""
        final = self._directory / f"epoch-{progress.epoch:03d}"
        temporary = self._directory / f".writing-{final.name}"
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        self._checkpoint.write(str(temporary / _PREFIX))
        (temporary / _STATE_FILE).write_text(json.dumps(dataclasses.asdict(progress)), "utf-8")
        shutil.rmtree(final, ignore_errors=True)
        temporary.rename(final)
        for other in self._directory.iterdir():
            if other != final:
                shutil.rmtree(other, ignore_errors=True)

    def restore(self) -> Progress | None:
        """Take up the last state; None where there is none.

        Raises:
            RunError: It is damaged, or of another model.
        """
        last = max(self._directory.glob("epoch-*"), key=_number, default=None)
        if last is None:
            return None
        try:
            state = json.loads((last / _STATE_FILE).read_text("utf-8"))
            progress = Progress(**state)
            status = self._checkpoint.read(str(last / _PREFIX))
            status.assert_existing_objects_matched()
        except (OSError, ValueError, TypeError, AssertionError, tf.errors.OpError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise RunError(
                f"The checkpoint {last} is damaged or of another model: {reason}"
            ) from error
        return progress


def _number(checkpoint: Path) -> int:
    return int(re.sub(r"\D", "", checkpoint.name))
