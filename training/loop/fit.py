"""One training loop for every task: prepare -> build -> run."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras

from training.distributed.collectives import SingleProcess
from training.loop.callbacks import CheckpointAndStop, LearningRate, TensorBoardFigures, Validate
from training.loop.epochs import best_epoch, train_epochs
from training.run_state.checkpoints import Checkpoints, Progress, restore_layers
from training.run_state.event_files import TensorBoardScalars, remove_from
from training.run_state.ownership import check_run_dir, claim
from training.run_state.preemption import Interrupts
from training.tasks.base import Task

Say = Callable[[str], Any]


def fit(
    task: Task,
    group: SingleProcess | None = None,
    say: Say = print,
    interrupts: Interrupts | None = None,
) -> Any:
    """Trains a run to its end, resuming from its last checkpoint if it has one.

    Args:
        task: The run.
        group: The processes that train it; None for this one, on one device.
        say: Receives the messages.
        interrupts: Signals that end the run at the next checkpoint; None ignores them.

    Returns:
        The trained model as `task.load_model` gives it; None on a worker that is not the chief.
    """
    group = group or SingleProcess()
    say = functools.partial(group.on_chief, say)
    model, data = prepare(task, group, say)
    trainer = build(task, group, model, data)
    run(trainer, say, interrupts or Interrupts())
    return group.on_chief(task.load_model)


def prepare(task: Task, group: SingleProcess, say: Say) -> tuple[keras.Model, Any]:
    """Loads the data, builds the model, and claims the run's folder once both are there.

    Returns:
        The model with its initial weights, not compiled, and the task's data.
    """
    group.on_chief(check_run_dir, task.places.run_dir, task.config, task.read_config)
    say(f"Recipe {task.config.recipe}, seed {task.config.seed}, in {task.places.run_dir}.")
    keras.utils.set_random_seed(task.config.seed)
    data = task.load_data()
    group.check_equal("configuration or data", lambda: task.fingerprint(data))
    # A run that is resumed has the weights of its checkpoint: the files and the run that it started
    # from may be gone.
    begun = group.broadcast_scalar(bool(group.on_chief(task.places.folder.has_checkpoint)))
    with group.strategy.scope():
        model = task.make_model(data, resumed=bool(begun))
    if task.config.init_from is not None and not begun:
        say(task.initialize(model, data))
    _restore_frozen_layers(task, model, group)
    data = task.open_inputs(data, model)
    group.check_equal("readable images", lambda: task.fingerprint(data))
    group.on_chief(_claim, task, data)
    return model, data


def _claim(task: Task, data: Any) -> None:
    task.check_data(data)
    claim(task.places.run_dir, task.config_text(), task.config.init_from)
    task.write_data(data)


def _restore_frozen_layers(task: Task, model: keras.Model, group: SingleProcess) -> None:
    """Gives frozen layers their final weights before their outputs are stored.

    The weights are those of the last checkpoint, if any, and the chief's on all workers: the files
    that they once came from may have changed since.
    """
    layers = task.frozen_layers(model)
    group.on_chief(restore_layers, task.places.folder.checkpoints, model, layers)
    group.broadcast(variable for layer in layers for variable in layer.variables)


@dataclass(frozen=True, eq=False)
class Trainer:
    """A run that is ready to train, in the state of its last checkpoint."""

    task: Task
    group: SingleProcess
    model: keras.Model
    data: Any
    steps: int
    checkpoints: Checkpoints
    progress: Progress


def build(task: Task, group: SingleProcess, model: keras.Model, data: Any) -> Trainer:
    """Compiles the model and restores the last checkpoint, if any."""
    steps = task.steps(data)
    with group.strategy.scope():
        task.compile(model, data, steps)
    checkpoints = Checkpoints(task.places.folder.checkpoints, model)
    progress = _resume(checkpoints, group)
    return Trainer(task, group, model, data, steps, checkpoints, progress)


def _resume(checkpoints: Checkpoints, group: SingleProcess) -> Progress:
    """Restores the last checkpoint, if any; workers get the chief's state.

    Returns:
        The progress of the run; that of a new one without a checkpoint.
    """
    progress = group.on_chief(checkpoints.restore) or Progress()
    group.broadcast(checkpoints.variables)
    text = group.broadcast_text(json.dumps(dataclasses.asdict(progress)))
    return Progress(**json.loads(text))


def run(trainer: Trainer, say: Say, interrupts: Interrupts) -> None:
    """Trains the epochs that are left and reports the best one."""
    task, progress, fit_config = trainer.task, trainer.progress, trainer.task.config.fit
    for line in task.describe(trainer.model, trainer.data):
        say(line)
    say(progress.outlook(fit_config.epochs, trainer.steps))
    if not progress.finished(fit_config.epochs):
        trainer.group.on_chief(remove_from, task.places.folder.logs, progress.epoch)
        callbacks = make_callbacks(trainer, interrupts)
        train_epochs(
            trainer.model,
            functools.partial(_batches_from, trainer),
            fit_config.epochs,
            trainer.steps,
            progress,
            callbacks,
            trainer.group,
        )
    say(best_epoch(progress, fit_config.monitor))


def _batches_from(trainer: Trainer, epoch: int, step: int) -> Any:
    return trainer.group.distribute(
        lambda shard: trainer.task.batches(trainer.data, epoch, step, shard)
    )


def make_callbacks(trainer: Trainer, interrupts: Interrupts) -> list[keras.callbacks.Callback]:
    """Returns the callbacks in the order they run: scores first, as the others read them."""
    task, group, model, data = trainer.task, trainer.group, trainer.model, trainer.data
    folder = task.places.folder
    return [
        Validate(task.validator(model, data, group)),
        *map(group.chief_only, task.callbacks()),
        LearningRate(),
        group.chief_only(TensorBoardScalars(str(folder.logs), write_graph=False)),
        group.chief_only(TensorBoardFigures(task.figures(model, data), folder.logs)),
        CheckpointAndStop(
            trainer.checkpoints,
            trainer.progress,
            task.config.fit,
            trainer.steps,
            folder.best_weights,
            interrupts,
            group,
        ),
    ]
