"""The likelihood of labels after a few glimpses, and the reward that aims the glimpses."""

from __future__ import annotations

import tensorflow as tf

from sat_tf.digits.config import GlimpseConfig
from sat_tf.digits.objectives.classification import predicted_class
from sat_tf.objectives.estimators import (
    Estimator,
    Rollout,
    by_sample,
    learning_signal,
    stochastic_loss,
)
from sat_tf.objectives.logs import weighted_mean
from sat_tf.objectives.terms import Batch, Terms, weighted
from sat_tf.ops.draws import replica_seed


class GlimpseObjective:
    """Bound on log p of the label, with REINFORCE for the locations of the glimpses.

    `-bound + reward_weight * score_function_loss + value_weight * (value - reward)^2
    + aim_weight * sum_t a_t^2`, a_t the policy's mean before its tanh. If a glimpse makes no
    difference, the noise of its reward drives its mean towards the border, where tanh passes no
    gradient; the last term keeps it near the middle.

    References:
        Mnih et al. (2014), arXiv:1406.6247; Ba et al. (2014), arXiv:1412.7755.
    """

    log_names = ("nll", "accuracy", "reward", "value", "score_loss", "aim_penalty")

    def __init__(self, config: GlimpseConfig) -> None:
        self.config = config
        self.estimator = Estimator(
            config.reward_weight, value_weight=config.value_weight, baseline=config.baseline
        )

    def random_share(self, step: tf.Tensor) -> tf.Tensor | float:
        """Share of images looked at in random places: falls linearly from 1 to 0 in the warm-up."""
        if not self.config.random_steps:
            return 0.0
        done = tf.cast(step, tf.float32) / self.config.random_steps
        return tf.maximum(1.0 - done, 0.0)

    def __call__(self, model, batch: Batch, seed: tf.Tensor, global_size: tf.Tensor) -> Terms:
        """Computes the loss of a batch of `images` and `labels`; see `Objective`."""
        del global_size
        config = self.config
        step = model.optimizer.iterations if config.random_steps else 0
        glimpses = model(
            batch,
            replica_seed(seed),
            samples=config.samples,
            random_share=self.random_share(step),
        )
        labels = tf.repeat(batch["labels"], config.samples)
        log_lik = -tf.nn.sparse_softmax_cross_entropy_with_logits(labels, glimpses.logits)
        correct = tf.cast(predicted_class(glimpses.logits) == labels, tf.float32)
        reward = correct if config.reward == "correct" else log_lik
        value = None if model.baseline is None else model.baseline(glimpses.aiming)
        rollout = Rollout(
            log_prob=by_sample(glimpses.log_prob, config.samples),
            entropy=None,
            log_lik=self._at_the_end(log_lik),
            reward=self._at_the_end(reward),
            mask=by_sample(glimpses.drawn, config.samples),
            value=None if value is None else by_sample(value, config.samples),
        )
        signal = learning_signal(rollout, self.estimator)
        squares = glimpses.drawn * tf.reduce_sum(glimpses.activation**2, axis=-1)
        aim_penalty = tf.reduce_mean(tf.reduce_sum(squares, axis=-1))
        loss = stochastic_loss(rollout, signal, self.estimator) + config.aim_weight * aim_penalty
        score = tf.reduce_sum(rollout.mask * signal.advantage * rollout.log_prob, axis=-1)
        means = {
            "nll": -tf.reduce_mean(log_lik),
            "accuracy": 100.0 * tf.reduce_mean(correct),
            "reward": tf.reduce_mean(reward),
            "value": weighted_mean(signal.baseline, rollout.mask),
            "score_loss": -tf.reduce_mean(score),
            "aim_penalty": aim_penalty,
        }
        return Terms(loss, weighted(means, tf.cast(tf.size(batch["labels"]), tf.float32)))

    def _at_the_end(self, values: tf.Tensor) -> tf.Tensor:
        """`[B M] -> [M, B, T]`, zero before the last glimpse."""
        steps = tf.pad(values[:, tf.newaxis], [[0, 0], [self.config.glimpses - 1, 0]])
        return by_sample(steps, self.config.samples)
