"""Training of a digit system as a task of the training loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from sat_tf.digits.models.digit_model import DigitModel
from sat_tf.runs import RunError
from training.data.bucketing import Shard
from training.data.digits.batches import epoch_steps, training_batches
from training.data.digits.mnist import Digits, load_digits
from training.distributed.workers import SingleProcess
from training.optimizers import make_optimizer
from training.tasks.base import Task
from training.tasks.digits import comparison, training_digits
from training.tasks.digits.config import DigitRunConfig, read_digit_config, to_text
from training.tasks.digits.evaluation import Scorer, evaluate_run
from training.tasks.digits.model import load, new_model, start_from


class Data(NamedTuple):
    """The digits of the training and dev splits."""

    train: Digits
    dev: Digits


class DigitTask(Task[DigitRunConfig, Data]):
    """Training of a digit system."""

    name = "digit systems"
    read_config = staticmethod(read_digit_config)
    compare = staticmethod(comparison.compare)

    def config_text(self) -> str:
        return to_text(self.config)

    def load_data(self) -> Data:
        data = self.config.data
        load_split = lambda split: load_digits(  # noqa: E731
            split, self.places.data_dir, data.dev_digits, data.limit
        )
        digits = Data(load_split("train"), load_split("dev"))
        epoch_steps(digits.train, data, self.config.fit.batch_size)  # an error comes early
        return digits

    def fingerprint(self, data: Data) -> str:
        return " ".join([self.config_text(), *(digits.fingerprint() for digits in data)])

    def make_model(self, data: Data, resumed: bool = False) -> DigitModel:
        return new_model(self.config)

    def initialize(self, model: DigitModel, data: Data) -> str:
        other = Path(self.config.init_from)
        taken = start_from(other, model)
        theirs, ours = read_digit_config(other).data, self.config.data
        training_digits.check_init_from(other, theirs, ours, self.places.data_dir)
        return f"Initialized with weights of {other}: {', '.join(taken)}."

    def check_data(self, data: Data) -> None:
        training_digits.check_resumed(self.places.run_dir, data.train)

    def write_data(self, data: Data) -> None:
        training_digits.write_fingerprint(self.places.run_dir, data.train)

    def steps(self, data: Data) -> int:
        return epoch_steps(data.train, self.config.data, self.config.fit.batch_size)

    def compile(self, model: DigitModel, data: Data, steps: int) -> None:
        config = self.config
        model.compile(
            optimizer=make_optimizer(config.optimizer, steps, config.fit.epochs),
            clip_norm=config.optimizer.clip_norm,
            seed=config.seed,
            jit_compile=config.fit.jit_compile,
        )

    def describe(self, model: DigitModel, data: Data) -> Iterator[str]:
        weights = sum(int(tf.size(v)) for v in model.trainable_variables)
        yield f"Data: {len(data.train)} digits to train on, {len(data.dev)} dev digits."
        yield f"System: {self.config.system}, {weights / 1e6:.2f} M weights."
        yield f"Batches of {self.config.fit.batch_size} examples."

    def batches(self, data: Data, epoch: int, step: int, shard: Shard) -> tf.data.Dataset:
        config = self.config
        size = config.fit.batch_size
        return training_batches(data.train, config.data, size, config.seed, epoch, step)

    def validator(
        self, model: DigitModel, data: Data, group: SingleProcess
    ) -> Callable[[], Mapping[str, float]]:
        return self._scorer(model, data).scores

    def figures(self, model: DigitModel, data: Data) -> Callable[[], Mapping[str, np.ndarray]]:
        scorer, count = self._scorer(model, data), self.config.fit.figures
        return lambda: {
            f"attention/{number}": figure for number, figure in enumerate(scorer.figures(count))
        }

    def _scorer(self, model: DigitModel, data: Data) -> Scorer:
        return Scorer(model, self.config.data, data.dev, "dev")

    def load_model(self) -> DigitModel:
        return load(self.config, self.places.run_dir)

    def evaluate(self, trained: DigitModel) -> dict:
        return evaluate_run(trained, self.config, self.places)

    def load_weights(self, run_dir: Path, trained: DigitModel) -> DigitModel:
        found = training_digits.read_fingerprint(run_dir)
        if found != training_digits.read_fingerprint(self.places.run_dir):
            raise RunError(
                f"{run_dir} and {self.places.run_dir} learned from different digits, so their "
                "average could not be scored on dev. Average runs with the same `--data-dir`, "
                "`--data.dev_digits` and `--data.limit`."
            )
        taken = start_from(run_dir, trained, "runs", "argument")
        others = [name for name, layer in trained.saved_layers().items() if layer.weights]
        if taken != others:
            missing = ", ".join(sorted(set(others) - set(taken)))
            raise RunError(f"{run_dir} has other layers than {self.places.run_dir}: {missing}.")
        return trained
