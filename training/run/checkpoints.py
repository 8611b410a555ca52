"""Checkpoints: the last state of a run, whole or not at all."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import re
import shlex
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import keras
import tensorflow as tf

from sat_tf.inference.run_folder import RunFolder, read_object
from sat_tf.util.errors import RunError
from sat_tf.util.files import literal_path, sync
from training.run.strategy import on_chief

VERSION = 3
"""Version of a checkpoint's contents and their order."""
_STATE_FILE = "state.json"
_PREFIX = "variables"
_WRITING = ".writing-"


@dataclass
class Progress:
    """Position of a run; part of every checkpoint.

    Attributes:
        epoch: Epochs finished.
        best_epoch: Epoch with the best weights so far, from 1; 0 if there is none.
        best_score: The score that decided for it; higher is better.
        best_rank: Place of that score in `resume.monitors`.
        waited: Epochs since the best one.
        stopped: Early stopping ended the run.
        seconds: Time spent training, in all processes that the run took.
        step: Steps done of the current epoch; all of them while it is validated.
        means: State of the running means over the current epoch.
    """

    epoch: int = 0
    best_epoch: int = 0
    best_score: float | None = None
    best_rank: int = 0
    waited: int = 0
    stopped: bool = False
    seconds: float = 0.0
    step: int = 0
    means: list[list[float]] = field(default_factory=list)

    @property
    def where(self) -> str:
        """The position in words: the epoch under way, from 1, and the steps done of it."""
        return f"epoch {self.epoch + 1}, step {self.step}"

    def finished(self, epochs: int) -> bool:
        """Returns whether nothing is left to train of a run of at most so many epochs."""
        return self.stopped or self.epoch >= epochs

    def end_epoch(self, score: float, rank: int = 0) -> bool:
        """Counts an epoch with this score; returns whether it is the best so far.

        One of a lower rank beats all of a higher rank; one that is not a number beats none.
        """
        best = not math.isnan(score) and (
            self.best_score is None or (-rank, score) > (-self.best_rank, self.best_score)
        )
        self.epoch, self.step, self.means = self.epoch + 1, 0, []
        self.waited += 1
        if best:
            self.best_score, self.best_rank = score, rank
            self.best_epoch, self.waited = self.epoch, 0
        return best


class Checkpoints:
    """The variables of model and optimizer with the run's progress, in `RUN/checkpoints/epoch-NNN`.

    Within an epoch the folder is called `epoch-NNN-step-NNNNNN`, for the epochs finished and the
    steps done of the next one. A checkpoint is written under another name and then renamed, so
    that a killed process leaves the previous one; only the last one is kept.
    """

    def __init__(self, directory: Path, model: keras.Model) -> None:
        self._directory = directory
        # The optimizer's variables live where the model's do: on every replica.
        with model.distribute_strategy.scope():
            model.optimizer.build(model.trainable_variables)
        variables = [*model.variables, *model.optimizer.variables]
        self._checkpoint = _checkpoint(enumerate(variables))

    @on_chief
    def save(self, progress: Progress) -> None:
        """Writes the present state and removes older ones; of several workers the chief does.

        Raises:
            RunError: It cannot be written, for example because the disk is full.
        """
        step = f"-step-{progress.step:06d}" if progress.step else ""
        final = self._directory / f"epoch-{progress.epoch:03d}{step}"
        temporary = self._directory / f"{_WRITING}{final.name}"
        try:
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
            self._checkpoint.write(str(temporary / _PREFIX))
            state = {"version": VERSION, **dataclasses.asdict(progress)}
            (temporary / _STATE_FILE).write_text(json.dumps(state), "utf-8")
            for path in (*temporary.iterdir(), temporary):
                sync(path)
            temporary.rename(final)
            sync(self._directory)
        except (OSError, tf.errors.OpError) as error:
            shutil.rmtree(temporary, ignore_errors=True)
            raise RunError(
                f"The checkpoint {final} cannot be written: {_reason(error)}. An earlier one, "
                "if any, is kept: free some space and start the same command again to resume."
            ) from error
        for pattern in ("epoch-*", f"{_WRITING}*"):
            for other in self._directory.glob(pattern):
                if other != final:
                    shutil.rmtree(other, ignore_errors=True)

    def restore(self) -> Progress:
        """Restores the last state and returns its progress, that of a new run without checkpoint.

        Raises:
            RunError: It is damaged, or of another model or version; it stays on disk.
        """
        return last_progress(self._directory, self._checkpoint) or Progress()


def restore_layers(
    directory: Path, model: keras.Model, layers: Iterable[keras.layers.Layer]
) -> None:
    """Restores the variables of some layers from the last checkpoint, if any.

    Raises:
        RunError: The checkpoint is damaged, or of another model or version.
    """
    wanted = {id(variable) for layer in layers for variable in layer.variables}
    places = [(index, v) for index, v in enumerate(model.variables) if id(v) in wanted]
    if places:
        last_progress(directory, _checkpoint(places))


def _checkpoint(places: Iterable[tuple[int, keras.Variable]]) -> tf.train.Checkpoint:
    # Keyed by position: the paths of Keras' variables are not unique.
    return tf.train.Checkpoint(**{f"{_PREFIX}_{index}": v.value for index, v in places})


def another(folder: RunFolder) -> str:
    """Names what to choose instead of a run's folder, and how its best weights are kept in use."""
    origin = shlex.quote(str(folder))
    best = f" (`--init-from {origin}` starts from its best weights)"
    return f"another folder with `--run-dir`{best if folder.best_weights.exists() else ''}"


def last_progress(
    directory: Path, checkpoint: tf.train.Checkpoint | None = None
) -> Progress | None:
    """Reads the progress of the last checkpoint in `RUN/checkpoints`; None if there is none.

    Args:
        directory: The folder.
        checkpoint: Takes the values of its variables from there.

    Raises:
        RunError: It is damaged, or of another model or version; it stays on disk.
    """
    last = _last(directory)
    if last is None:
        return None
    try:
        state = json.loads((last / _STATE_FILE).read_text("utf-8"))
        if (version := state.pop("version", VERSION)) != VERSION:
            raise ValueError(f"expected version {VERSION}, got {version}")
        progress = Progress(**state)
        if checkpoint is not None:
            with literal_path(last) as folder:
                status = checkpoint.read(str(folder / _PREFIX))
                # `restore_layers` leaves the values of other layers unread.
                status.assert_existing_objects_matched().expect_partial()
    except _UNREADABLE as error:
        raise RunError(
            f"The checkpoint {last} is damaged, or of another model or version: "
            f"{_reason(error)}. Choose {another(RunFolder(last.parents[1]))}."
        ) from error
    return progress


def unfinished_note(run_dir: Path) -> tuple[str, ...]:
    """Returns a sentence if a run has epochs left to train, which its weights do not show.

    Nothing is said of a run with an unreadable checkpoint: its weights can still be read.
    """
    folder = RunFolder(run_dir)
    with contextlib.suppress(RunError):
        progress = last_progress(folder.checkpoints)
        epochs = read_object(folder.config)["fit"]["epochs"]
        if progress is not None and not progress.finished(epochs):
            return (
                f"Training of {run_dir.name} is not finished ({progress.epoch} of {epochs} "
                "epochs); repeat its command to resume it.",
            )
    return ()


def _last(directory: Path) -> Path | None:
    numbers = lambda path: [*map(int, re.findall(r"\d+", path.name))]  # noqa: E731
    return max(directory.glob("epoch-*"), key=numbers, default=None)


# TensorFlow raises any of these for a file that is cut short, swapped or missing.
_UNREADABLE = (OSError, ValueError, TypeError, LookupError, RuntimeError, AssertionError)
_UNREADABLE += (tf.errors.OpError,)


def _reason(error: Exception) -> str:
    text = str(error)
    if isinstance(error, tf.errors.OpError):  # {{node}} file; reason [operation]
        text = re.sub(r"\{\{.*?\}\}|\[Op:\w+\]", "", error.message).rpartition("; ")[2]
    return text.strip().partition("\n")[0].rstrip(".")
