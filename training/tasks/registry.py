"""The task of a configuration, a run folder or a report: the one place that tells them apart."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sat_tf.config import SYSTEM_KEY
from training.config import RunConfig, read_run_config
from training.recipes.digits import RECIPES
from training.tasks.base import Places
from training.tasks.digits.config import DigitRunConfig, PairsRun, read_digit_config, system_of

if TYPE_CHECKING:
    from training.tasks.base import Task


def task_type(config: RunConfig | DigitRunConfig | type) -> type[Task]:
    """Returns the task of a configuration, or of its type; loads TensorFlow."""
    kind = config if isinstance(config, type) else type(config)
    if issubclass(kind, DigitRunConfig):
        from training.tasks.digits.task import DigitTask

        return DigitTask
    from training.tasks.captioning.task import CaptioningTask

    return CaptioningTask


def read_config(run_dir: Path) -> RunConfig | DigitRunConfig:
    """Reads the configuration of a run, whatever its task.

    Raises:
        ValueError: The folder is not a run, or comes from another version.
    """
    return read_run_config(run_dir) if system_of(run_dir) is None else read_digit_config(run_dir)


def task_of_run(run_dir: Path) -> Task:
    """Returns the task of a run's folder.

    Raises:
        ValueError: The folder is not a run, or comes from another version.
    """
    config = read_config(run_dir)
    return task_type(config)(config, Places(run_dir))


def task_of_report(report: Path) -> type[Task]:
    """Returns the task that a report is about.

    Raises:
        ValueError: The file is no report of an evaluation.
    """
    try:
        values = json.loads(report.read_text("utf-8"))
        return task_type(DigitRunConfig if SYSTEM_KEY in dict(values) else RunConfig)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{report} is not the report of an evaluation.") from error


def single_run(config: Any) -> DigitRunConfig | None:
    """Returns the run on single digits that comes first: the same model on the same canvas.

    Pairs teach a new network next to nothing: it earns a fiftieth of the reward.

    Returns:
        None if nothing comes first: no pairs, no epochs for it, or a run to start from is given.
    """
    if not isinstance(config, PairsRun) or not config.single_epochs or config.init_from:
        return None
    base = RECIPES[config.single_recipe]
    same = {key: getattr(config.data, key) for key in ("size", "dev_digits", "limit", "examples")}
    return dataclasses.replace(
        base,
        seed=config.seed,
        data=dataclasses.replace(base.data, **same),
        model=dataclasses.replace(config.model, random_steps=base.model.random_steps),
        optimizer=config.optimizer,
        fit=dataclasses.replace(config.fit, epochs=config.single_epochs),
    )


def single_dir(run_dir: Path) -> Path:
    """Returns the folder of the run on single digits, beside that of the run on pairs."""
    return run_dir.with_name(f"{run_dir.name}_single")


def stages(config: RunConfig | DigitRunConfig, places: Places) -> list[Task]:
    """Returns the runs to train one after the other: at last the one of this configuration.

    Pairs of digits learn from a run on single digits, beside theirs.
    """
    first = single_run(config)
    if first is None:
        return [task_type(config)(config, places)]
    elsewhere = dataclasses.replace(places, run_dir=single_dir(places.run_dir))
    config = dataclasses.replace(config, init_from=str(elsewhere.run_dir))
    return [*stages(first, elsewhere), task_type(config)(config, places)]
