"""How noisy an estimated gradient is, and what a step with it costs, from the same weights."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from benchmarks.case import Row
from benchmarks.measure import medians
from sat_tf.baselines import MovingAverageBaseline
from sat_tf.config import DecoderConfig
from sat_tf.models.captioner import Batch, Captioner
from training.fit import compile_model, make_model
from training.recipes import RunConfig
from training.run_data import Places, batches_from, load_data, open_sources


class Noise(NamedTuple):
    """Of a random vector that estimates a gradient."""

    variance: float
    """Trace of its covariance: the sum of its entries' variances."""
    signal: float
    """Squared norm of its mean; estimated without bias, so that noise may push it below 0."""
    mean: np.ndarray
    """Of the draws."""

    @property
    def relative(self) -> float | None:
        """Variance over signal, which no scale of the loss changes; None if noise hides the mean.

        Averaging n estimates divides it by n.
        """
        return self.variance / self.signal if self.signal > 0.0 else None


def noise_of(estimate: Callable[[int], np.ndarray], draws: int) -> Noise:
    """Variance and signal from independent draws.

    With g_k the draws and gbar their mean: `variance = sum_k |g_k - gbar|^2 / (K - 1)` and
    `signal = |gbar|^2 - variance / K`.

    Args:
        estimate: Number of the draw -> vector.
        draws: K, at least 2.

    Raises:
        ValueError: Fewer than 2 draws.
    """
    if draws < 2:
        raise ValueError(
            f"Received an invalid value for argument `draws`: expected 2 or more, got {draws}."
        )
    total, squares = np.zeros([]), 0.0
    for number in range(draws):
        gradient = np.asarray(estimate(number), np.float64)
        total = total + gradient
        squares += float(gradient @ gradient)
    mean = total / draws
    variance = (squares - draws * float(mean @ mean)) / (draws - 1)
    return Noise(variance, float(mean @ mean) - variance / draws, mean)


def cosine(one: Noise, other: Noise) -> float | None:
    """Of the angle between the means of two estimators; None if noise hides one of them.

    Their draws are independent of each other. The norms are those of `signal`: from few draws the
    cosine of the same two means may pass 1, but noise does not draw it to 0.
    """
    if one.signal <= 0.0 or other.signal <= 0.0:
        return None
    return float(one.mean @ other.mean) / (one.signal * other.signal) ** 0.5


class AttentionGradient:
    """The gradient of the training loss in attention's weights, drawn again and again.

    The pictures are encoded once: between two draws of a batch only the locations and the
    expectation switch differ.

    Args:
        model: With hard attention and without dropout.
        batches: What the gradient is taken on.
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
            # Its first value: where it is after many batches like these.
            model.baseline.update(tf.reduce_mean(tf.concat(returns, axis=0)))

    def noise(self, draws: int, first: int = 1) -> Noise:
        """Of the gradients on all batches, one after another in one vector.

        Args:
            draws: How many.
            first: Number of the first; other numbers give independent draws.
        """
        numbers = range(len(self._batches))
        return noise_of(
            lambda draw: np.concatenate([self._draw(n, first + draw)[0] for n in numbers]), draws
        )

    def _draw(self, number: int, draw: int) -> tuple[tf.Tensor, tf.Tensor]:
        return self._compiled(*self._batches[number], tf.constant([number, draw]))

    def _estimate(
        self, annotations: tf.Tensor, tokens: tf.Tensor, seed: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The gradient as one vector, and the captions' returns."""
        with tf.GradientTape() as tape:
            batch = {"annotations": annotations, "tokens": tokens}
            terms = self._model.training_terms(batch, seed)
        gradients = tape.gradient(terms.loss, self._weights)
        return tf.concat([tf.reshape(g, [-1]) for g in gradients], axis=0), terms.returns


def measure(
    configs: Mapping[str, RunConfig],
    start: Path,
    places: Places,
    target: RunConfig,
    batches: int,
    draws: int,
    repeats: int = 3,
) -> dict[str, Row]:
    """Every estimator from the weights of one run, on the same training batches.

    Args:
        configs: Of runs that differ in attention alone.
        start: A finished run of the same sizes; its best weights are the shared ones.
        places: Of the data.
        target: Its estimator is unbiased: the means of all are compared with its mean.
        batches: How many.
        draws: Of each gradient.
        repeats: Timed steps on each batch.

    Returns:
        By the names of `configs`: `step_ms`, of a whole training step, the steps of all taking
        turns; for hard attention `samples`, `relative_variance` (`Noise.relative`) and `cosine`.
    """
    target = _from_weights(target, start)
    data = load_data(target, places)
    model = make_model(target, data.vocabulary)
    source, _ = open_sources(target, model, data, places.cache_dir)
    dataset, steps = batches_from(target, source, data.table, 0)
    fixed = list(dataset.take(batches))
    aim = AttentionGradient(model, fixed).noise(draws)
    rows: dict[str, Row] = {name: {} for name in configs}
    models = {}
    for number, (name, config) in enumerate(configs.items(), start=1):
        config = _from_weights(config, start)
        models[name] = make_model(config, data.vocabulary)
        if config.attention.kind == "hard":
            noise = AttentionGradient(models[name], fixed).noise(draws, 1 + number * draws)
            rows[name] |= {
                "samples": config.attention.estimator.samples,
                "relative_variance": noise.relative,
                "cosine": cosine(noise, aim),
            }
        compile_model(models[name], config, steps)
    # Last, since steps change the weights.
    for name, seconds in _step_seconds(models, fixed, repeats).items():
        rows[name]["step_ms"] = 1e3 * seconds
    return rows


def _from_weights(config: RunConfig, start: Path) -> RunConfig:
    """The configuration with the weights of a run, and without dropout."""
    names = [field.name for field in dataclasses.fields(DecoderConfig)]
    none = {name: 0.0 for name in names if name.endswith("_dropout")}
    decoder = dataclasses.replace(config.decoder, **none)
    return dataclasses.replace(config, init_from=str(start), decoder=decoder)


def _step_seconds(
    models: Mapping[str, Captioner], batches: Sequence[Batch], repeats: int
) -> dict[str, float]:
    """Of a training step, the mean over the batches of its median on each."""
    calls = {}
    for name, model in models.items():
        step = tf.function(model.train_step, autograph=False, reduce_retracing=True)
        for number, batch in enumerate(batches):
            calls[name, number] = lambda step=step, batch=batch: step(batch)
    # One turn traces, the next may trace once more for any length.
    took = medians(calls, repeats, warm_up=2)
    return {
        name: statistics.fmean(took[name, number] for number in range(len(batches)))
        for name in models
    }
