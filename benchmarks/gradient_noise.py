"""Noise of estimated gradients, and the cost of a step, from the same weights."""

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
from sat_tf.config import DecoderConfig
from sat_tf.errors import invalid_value
from sat_tf.models.captioner import Batch, Captioner
from sat_tf.objectives.baselines import MovingAverageBaseline
from sat_tf.vocabulary import Vocabulary
from training.config import RunConfig
from training.inputs import batches_of, load_data, open_inputs
from training.model import compile_model, new_model, start_from


class Noise(NamedTuple):
    """Noise of a random vector that estimates a gradient."""

    variance: float
    """Trace of the covariance: the sum of the variances of the entries."""
    signal: float
    """Unbiased estimate of the squared norm of the mean; noise may push it below 0."""
    mean: np.ndarray
    """Mean of the draws."""

    @property
    def relative(self) -> float | None:
        """Variance over signal, free of the scale of the loss; None if noise hides the mean.

        Averaging n estimates divides it by n.
        """
        return self.variance / self.signal if self.signal > 0.0 else None


def noise_of(estimate: Callable[[int], np.ndarray], draws: int) -> Noise:
    """Estimates variance and signal from independent draws.

    variance = sum_k |g_k - gbar|^2 / (K - 1);  signal = |gbar|^2 - variance / K

    Raises:
        ValueError: Fewer than 2 draws.
    """
    if draws < 2:
        raise invalid_value("draws", "2 or more", draws)
    total, squares = np.zeros([]), 0.0
    for number in range(draws):
        gradient = np.asarray(estimate(number), np.float64)
        total = total + gradient
        squares += float(gradient @ gradient)
    mean = total / draws
    variance = (squares - draws * float(mean @ mean)) / (draws - 1)
    return Noise(variance, float(mean @ mean) - variance / draws, mean)


def cosine(one: Noise, other: Noise) -> float | None:
    """Estimates the cosine between the means of two estimators; None if noise hides one.

    The draws of the two are independent. The norms are those of `signal`: few draws may give a
    cosine above 1, but noise does not pull it towards 0.
    """
    if one.signal <= 0.0 or other.signal <= 0.0:
        return None
    return float(one.mean @ other.mean) / (one.signal * other.signal) ** 0.5


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
        return noise_of(
            lambda draw: np.concatenate([self._draw(n, first + draw)[0] for n in numbers]), draws
        )

    def _draw(self, number: int, draw: int) -> tuple[tf.Tensor, tf.Tensor]:
        return self._compiled(*self._batches[number], tf.constant([number, draw]))

    def _estimate(
        self, annotations: tf.Tensor, tokens: tf.Tensor, seed: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the gradient as one vector, and the mean return of the captions, if averaged."""
        with tf.GradientTape() as tape:
            batch = {"annotations": annotations, "tokens": tokens}
            terms = self._model.objective(self._model, batch, seed, tf.shape(tokens)[0])
        gradients = tape.gradient(terms.loss, self._weights)
        return tf.concat([tf.reshape(g, [-1]) for g in gradients], axis=0), terms.mean_return


def measure(
    configs: Mapping[str, RunConfig],
    start: Path,
    cache_dir: Path,
    target: RunConfig,
    batches: int,
    draws: int,
    repeats: int = 3,
) -> dict[str, Row]:
    """Measures every estimator from the weights of one run, on the same training batches.

    Args:
        configs: Configurations by name, which differ in attention alone.
        start: Finished run of the same sizes; its best weights are the shared ones.
        cache_dir: Feature stores.
        target: Configuration with an unbiased estimator, whose mean the others are compared with.
        batches: Number of batches.
        draws: Draws of each gradient.
        repeats: Timed steps per batch.

    Returns:
        Name -> `step_ms`, of a whole training step, all taking turns; for hard attention also
        `samples`, `relative_variance` (`Noise.relative`) and `cosine`.
    """
    target = _from_weights(target, start)
    data = load_data(target)
    model = _initialized(target, data.vocabulary)
    inputs = open_inputs(target, model.encoder, data, cache_dir)
    steps, batches_from = batches_of(target, data.table, inputs)
    fixed = list(batches_from(0, 0).take(batches))
    aim = AttentionGradient(model, fixed).noise(draws)
    rows: dict[str, Row] = {name: {} for name in configs}
    models = {}
    for number, (name, config) in enumerate(configs.items(), start=1):
        config = _from_weights(config, start)
        models[name] = _initialized(config, data.vocabulary)
        if config.attention.kind == "hard":
            noise = AttentionGradient(models[name], fixed).noise(draws, 1 + number * draws)
            rows[name] |= {
                "samples": config.attention.estimator.samples,
                "relative_variance": noise.relative,
                "cosine": cosine(noise, aim),
            }
        compile_model(models[name], config, steps)
    # Steps change the weights: they come last.
    for name, seconds in _step_seconds(models, fixed, repeats).items():
        rows[name]["step_ms"] = 1e3 * seconds
    return rows


def _initialized(config: RunConfig, vocabulary: Vocabulary) -> Captioner:
    """Builds the captioner with the weights of the run that it starts from."""
    model = new_model(config, len(vocabulary), load_encoder_weights=False)
    start_from(Path(config.init_from), model, vocabulary)
    return model


def _from_weights(config: RunConfig, start: Path) -> RunConfig:
    """Returns the configuration with the weights of a run and without dropout."""
    names = [field.name for field in dataclasses.fields(DecoderConfig)]
    none = {name: 0.0 for name in names if name.endswith("_dropout")}
    decoder = dataclasses.replace(config.decoder, **none)
    return dataclasses.replace(config, init_from=str(start), decoder=decoder)


def _step_seconds(
    models: Mapping[str, Captioner], batches: Sequence[Batch], repeats: int
) -> dict[str, float]:
    """Times a training step: median per batch, mean over the batches."""
    calls = {}
    for name, model in models.items():
        step = tf.function(model.train_step, autograph=False, reduce_retracing=True)
        for number, batch in enumerate(batches):
            calls[name, number] = lambda step=step, batch=batch: step(batch)
    # The second turn may trace again, for any length.
    took = medians(calls, repeats, warm_up=2)
    return {
        name: statistics.fmean(took[name, number] for number in range(len(batches)))
        for name in models
    }
