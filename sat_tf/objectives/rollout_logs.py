"""Scalars that training logs of rollouts: bounds, and the variance that a baseline removes."""

from __future__ import annotations

import tensorflow as tf

from sat_tf.objectives.estimators import Estimator, Rollout, Signal, elbo, importance_weighted_bound

ROLLOUT_LOGS = (
    "elbo",
    "importance_weighted_bound",
    "reward_variance",
    "advantage_variance",
    "explained_variance",
    "score_gradient_norm",
)
"""Keys of `rollout_logs`."""


def rollout_logs(
    rollout: Rollout,
    signal: Signal,
    estimator: Estimator,
    log_lik: tf.Tensor,
    peakedness: tf.Tensor,
) -> dict[str, tf.Tensor]:
    """Scalars over the captions and locations that were drawn; 0 if none was.

    Args:
        rollout: The samples.
        signal: Returns and baseline of the loss.
        estimator: That of the loss.
        log_lik: `[M, B, T]`, unsmoothed log p of the words.
        peakedness: `[M, B, T]`, `sum_i alpha_i^2`.

    Returns:
        `elbo` and `importance_weighted_bound` (nats per caption); the variances of returns and
        advantages (nats squared); `explained_variance`, the share of the returns' variance that
        the baseline removes; `score_gradient_norm`, see there.
    """
    drawn = tf.reduce_max(rollout.mask, axis=[0, 2])
    reward_variance = variance(signal.returns, rollout.mask)
    advantage_variance = variance(signal.advantage, rollout.mask)
    left = tf.math.divide_no_nan(advantage_variance, reward_variance)
    return {
        "elbo": weighted_mean(elbo(log_lik), drawn),
        "importance_weighted_bound": weighted_mean(importance_weighted_bound(log_lik), drawn),
        "reward_variance": reward_variance,
        "advantage_variance": advantage_variance,
        "explained_variance": tf.where(reward_variance > 0.0, 1.0 - left, 0.0),
        "score_gradient_norm": score_gradient_norm(rollout, signal, estimator, peakedness),
    }


def score_gradient_norm(
    rollout: Rollout, signal: Signal, estimator: Estimator, peakedness: tf.Tensor
) -> tf.Tensor:
    """Norm of the score-function term's gradient with respect to the alignment scores.

    In closed form, which saves a second backward pass: with location s drawn,
    `d log alpha_s / d e_i = [i = s] - alpha_i`, whose squares sum to
    `1 - 2 alpha_s + sum_i alpha_i^2`.

    A scalar; arguments as in `rollout_logs`.
    """
    samples = 1 if estimator.bound == "importance_weighted" else rollout.mask.shape[0]
    captions = tf.cast(tf.shape(rollout.mask)[1], tf.float32)
    weight = estimator.reward_weight * rollout.mask * signal.advantage / (samples * captions)
    squares = tf.maximum(1.0 - 2.0 * tf.exp(rollout.log_prob) + peakedness, 0.0)
    return tf.sqrt(tf.reduce_sum(tf.square(weight) * squares))


def weighted_mean(values: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Scalar; `values` broadcast to `weights`. 0 if all weights are."""
    values = values * tf.ones_like(weights)
    return tf.math.divide_no_nan(tf.reduce_sum(values * weights), tf.reduce_sum(weights))


def variance(values: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Weighted variance, a scalar; `values` broadcast to `weights`."""
    return weighted_mean(tf.square(values - weighted_mean(values, weights)), weights)
