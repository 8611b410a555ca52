"""The interface between the training loop and the tasks that it trains."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from sat_tf.run_folder import RunFolder

if TYPE_CHECKING:
    import keras
    import numpy as np
    import tensorflow as tf

    from training.data.bucketing import Shard
    from training.distributed.collectives import SingleProcess

C = TypeVar("C")
D = TypeVar("D")


@dataclass(frozen=True)
class Places:
    """Folders that a run reads and writes; they are no part of its configuration.

    Attributes:
        run_dir: Everything the run leaves behind.
        cache_dir: Feature stores, shared by runs.
        data_dir: The user's copy of the data set; None for drawn or downloaded data.
    """

    run_dir: Path
    cache_dir: Path | None = None
    data_dir: Path | None = None

    @property
    def folder(self) -> RunFolder:
        """Names of the files in `run_dir`."""
        return RunFolder(self.run_dir)


class Task(abc.ABC, Generic[C, D]):
    """Everything that the training loop needs to know of a kind of run.

    The methods are grouped by when the loop calls them. None of them keeps state: `data`, of a type
    of the task's choice, holds what they share.

    Args:
        config: The run's configuration, with `recipe`, `seed`, `init_from`, `optimizer` (a
            `BaseOptimizerConfig`) and `fit` (a `BaseFitConfig`).
        places: The run's folders.
    """

    name: ClassVar[str]
    """Plural of the models, for messages."""

    def __init__(self, config: C, places: Places) -> None:
        self.config, self.places = config, places

    # Before training.

    @staticmethod
    @abc.abstractmethod
    def read_config(run_dir: Path) -> Any:
        """Reads the configuration of a run of this task; a ValueError says what is wrong."""

    @abc.abstractmethod
    def config_text(self) -> str:
        """Returns the content of config.json."""

    @abc.abstractmethod
    def load_data(self) -> D:
        """Reads the training and dev splits."""

    @abc.abstractmethod
    def fingerprint(self, data: D) -> str:
        """Describes configuration and data; processes that train together have equal ones."""

    @abc.abstractmethod
    def make_model(self, data: D, resumed: bool = False) -> keras.Model:
        """Builds the model, not compiled; if `resumed`, its weights are those of a checkpoint."""

    @abc.abstractmethod
    def initialize(self, model: keras.Model, data: D) -> str:
        """Gives the model the weights of `init_from`; returns a line that says so."""

    def frozen_layers(self, model: keras.Model) -> Sequence[keras.layers.Layer]:
        """Returns the layers whose outputs `open_inputs` stores, so they need final weights."""
        return ()

    def open_inputs(self, data: D, model: keras.Model) -> D:
        """Returns the data with the model's inputs ready to be read."""
        return data

    @abc.abstractmethod
    def check_data(self, data: D) -> None:
        """Checks that a run that is resumed was started with the same data.

        Raises:
            RunError: It was started with other data.
        """

    @abc.abstractmethod
    def write_data(self, data: D) -> None:
        """Records in the run's folder what `check_data` compares."""

    # Training.

    @abc.abstractmethod
    def steps(self, data: D) -> int:
        """Returns the number of batches per epoch."""

    @abc.abstractmethod
    def compile(self, model: keras.Model, data: D, steps: int) -> None:
        """Gives the model its optimizer, its objective and the constants of its train step."""

    @abc.abstractmethod
    def describe(self, model: keras.Model, data: D) -> Iterator[str]:
        """Yields a line per fact that the user should know before training starts."""

    @abc.abstractmethod
    def batches(self, data: D, epoch: int, step: int, shard: Shard) -> tf.data.Dataset:
        """Returns the endless training batches that start at a step of an epoch."""

    @abc.abstractmethod
    def validator(
        self, model: keras.Model, data: D, group: SingleProcess
    ) -> Callable[[], Mapping[str, float]]:
        """Returns a function that scores the model on the dev split.

        All processes of the group call it together; the chief's result has all scores.
        """

    @abc.abstractmethod
    def figures(self, model: keras.Model, data: D) -> Callable[[], Mapping[str, np.ndarray | str]]:
        """Returns a function that draws figures of the model: TensorBoard tag -> image or text."""

    def callbacks(self) -> list[keras.callbacks.Callback]:
        """Returns the task's own callbacks, which read the scores in the logs."""
        return []

    # Afterwards.

    @abc.abstractmethod
    def load_model(self) -> Any:
        """Returns the model with the best weights, in the form that `evaluate` takes."""

    @abc.abstractmethod
    def evaluate(self, trained: Any) -> dict:
        """Scores the trained model on the dev split; prints, writes and returns the report."""

    # Several runs.

    @abc.abstractmethod
    def load_weights(self, run_dir: Path, trained: Any) -> keras.Model:
        """Gives the model of `trained` the best weights of a run with the same shapes.

        Returns:
            The model.

        Raises:
            RunError: The run is not finished, or has other weights or another vocabulary.
        """

    @staticmethod
    @abc.abstractmethod
    def compare(
        folders: Sequence[Path], split: str, data_dir: Path | None, samples: int, seeds: int
    ) -> list[str]:
        """Compares systems by evaluations of this task, the later ones with the first.

        Args:
            folders: Evaluations, those of a system in a row.
            split: What they were evaluated on.
            data_dir: The data set; None for the one that the runs were trained on.
            samples: Bootstrap resamples.
            seeds: Evaluations of each system, whose means are compared.

        Returns:
            The lines of the comparison.
        """
