"""Noise of the estimators of hard attention: `python -m benchmarks.estimators --run-dir RUN`.

From the weights of one run, on the same training batches. `experiments/estimators.sh` trains the
runs; docs/estimators.md explains the figures.
"""

from __future__ import annotations

import dataclasses
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from benchmarks.measure import command, format_table
from sat_tf.captioner import Batch, Captioner
from sat_tf.objectives import make_objective
from sat_tf.objectives.estimators import MovingAverageBaseline
from sat_tf.util.files import default_cache_dir
from training.data.inputs import batches_of, load_data, open_inputs
from training.data.readers import Source
from training.run.build import new_model
from training.run.config import read_run_config
from training.run.first_weights import start_from
from training.run.recipes import RECIPES

ESTIMATORS: dict[str, dict[str, Any]] = {
    "paper": {"preset": "paper"},
    # An unbiased form of the paper's estimator: its sample and its baseline alone.
    "reinforce": {"reward_weight": 1.0, "entropy_weight": 0.0, "expectation_probability": 0.0},
    "rloo": {"preset": "rloo"},
    "vimco": {"preset": "vimco"},
}
"""Keys of `attention` that each estimator sets."""

_UNBIASED = "rloo"  # its mean gradient stands for that of the ELBO


def run(run_dir: Path, batches: int = 4, draws: int = 64) -> None:
    """Measures the noise of estimators from the weights of one run.

    Args:
        run_dir: Finished run of hard attention on drawn scenes; its best weights are the shared
            ones.
        batches: Training batches on which gradients are measured.
        draws: Gradients drawn per batch, at least 2.
    """
    rows = measure(run_dir, batches, draws)
    print(format_table([{"estimator": name, **row} for name, row in rows.items()]))


class Noise(NamedTuple):
    """Noise of a random vector that estimates a gradient."""

    variance: float
    """Trace of the covariance: the sum of the variances of the entries."""
    signal: float
    """Unbiased estimate of the squared norm of the mean; noise may push it below 0."""
    mean: np.ndarray
    """Mean of the draws."""

    @classmethod
    def of(cls, draws: np.ndarray) -> Noise:
        """Estimates variance and signal from independent draws `[K, P]`.

        variance = sum_k |g_k - gbar|^2 / (K - 1);  signal = |gbar|^2 - variance / K
        """
        mean, variance = draws.mean(axis=0), float(draws.var(axis=0, ddof=1).sum())
        return cls(variance, float(mean @ mean) - variance / len(draws), mean)

    @property
    def relative(self) -> float | None:
        """Variance over signal, free of the scale of the loss; None if noise hides the mean.

        Averaging n estimates divides it by n.
        """
        return self.variance / self.signal if self.signal > 0.0 else None

    def cosine(self, other: Noise) -> float | None:
        """Estimates the cosine between the means of two estimators; None if noise hides one.

        The draws of the two are independent. The norms are those of `signal`: few draws may give
        a cosine above 1, but noise does not pull it towards 0.
        """
        if self.signal <= 0.0 or other.signal <= 0.0:
            return None
        return float(self.mean @ other.mean) / (self.signal * other.signal) ** 0.5


class AttentionGradient:
    """Repeated draws of the gradient of the training loss in attention's weights.

    Images are encoded once: draws on one batch differ only in the locations and the expectation
    switch.
    """

    def __init__(self, model: Captioner, batches: Sequence[Batch]) -> None:
        self._model, self._weights = model, model.decoder.attention.trainable_variables
        self._batches = [
            (model.annotate(batch, training=True), tf.constant(batch["tokens"]))
            for batch in batches
        ]
        self._compiled = tf.function(self._estimate, autograph=False, reduce_retracing=True)
        if isinstance(model.baseline, MovingAverageBaseline):
            returns = [self._draw(number, 0)[1] for number in range(len(batches))]
            # Starts at the value that it reaches after many such batches.
            model.baseline.update(tf.reduce_mean(returns))

    def noise(self, draws: int, first: int = 1) -> Noise:
        """Estimates the noise of the gradients on all batches, concatenated."""
        numbers = range(len(self._batches))
        drawn = [
            np.concatenate([self._draw(n, draw)[0] for n in numbers])
            for draw in range(first, first + draws)
        ]
        return Noise.of(np.array(drawn, np.float64))

    def _draw(self, number: int, draw: int) -> tuple[tf.Tensor, tf.Tensor]:
        return self._compiled(*self._batches[number], tf.constant([number, draw]))

    def _estimate(
        self, annotations: tf.Tensor, tokens: tf.Tensor, seed: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the gradient as one vector, and the mean return of the captions, if averaged."""
        with tf.GradientTape() as tape:
            batch = {"annotations": annotations, "tokens": tokens}
            terms = self._model.objective(self._model, batch, seed)
        gradients = tape.gradient(terms.loss, self._weights)
        return tf.concat([tf.reshape(g, [-1]) for g in gradients], axis=0), terms.mean_return


def measure(start: Path, batches: int, draws: int) -> dict[str, dict[str, Any]]:
    """Measures every estimator from the weights of one run, on the same training batches.

    Returns:
        Name -> `relative_variance` (`Noise.relative`) and `cosine`, with the mean of an unbiased
        estimator.
    """
    run = read_run_config(start)
    data = load_data(run.data, Source(run.data, None))
    none = {name: 0.0 for name in vars(run.decoder) if name.endswith("_dropout")}
    decoder = dataclasses.replace(run.decoder, **none)

    def started(name: str) -> Captioner:
        attention = dataclasses.replace(RECIPES["scenes_hard"].attention, **ESTIMATORS[name])
        config = dataclasses.replace(run, attention=attention, decoder=decoder)
        model = new_model(config.captioner, len(data.vocabulary), load_encoder_weights=False)
        start_from(start, model, data.vocabulary)
        model.objective = make_objective(attention, run.fit.label_smoothing)
        return model

    model = started(_UNBIASED)
    inputs = open_inputs(model, data, default_cache_dir())
    _, batches_from = batches_of(data.table, inputs, run.fit.batch_size, run.seed)
    fixed = list(batches_from(0, 0).take(batches))
    aim = AttentionGradient(model, fixed).noise(draws)
    rows: dict[str, dict[str, Any]] = {}
    for number, name in enumerate(ESTIMATORS, start=1):
        noise = AttentionGradient(started(name), fixed).noise(draws, 1 + number * draws)
        rows[name] = {"relative_variance": noise.relative, "cosine": noise.cosine(aim)}
    return rows


if __name__ == "__main__":
    # TensorFlow warns of functions traced for several shapes, which are intended here.
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    sys.exit(command(run))
