"""Stochastic objective: the bound, its baselines and the score-function loss.

Pure functions over a `Rollout`; whatever draws actions (hard attention here) is a client and
holds no estimator code of its own. Shapes: M samples a caption, B captions, T steps.
"""

from __future__ import annotations

from typing import NamedTuple

import keras
import tensorflow as tf


class Rollout(NamedTuple):
    """What M samples of a stochastic model did, each `[M, B, T]`."""

    log_prob: tf.Tensor
    """Differentiable log-probability of each action drawn, nats."""
    entropy: tf.Tensor | None
    """Differentiable entropy of the distribution drawn from, nats, zero on padding; or None."""
    log_lik: tf.Tensor
    """Differentiable task term log p(y_t | s, a), zero where there is none."""
    reward: tf.Tensor
    """Reward at each step; no gradient flows through it."""
    mask: tf.Tensor
    """1.0 where an action was drawn: not padding, not replaced by its expectation."""
    value: tf.Tensor | None = None
    """Learned baseline f(stop_gradient(h)), or None."""


def reward_to_go(reward: tf.Tensor) -> tf.Tensor:
    """`R_t = sum_{u >= t} r_u`: attention at t answers for words t..T.

    Args:
        reward: `[M, B, T]`, zero on padding.

    Returns:
        `[M, B, T]`.
    """
    return tf.cumsum(reward, axis=-1, reverse=True)


def whole_return(reward: tf.Tensor) -> tf.Tensor:
    """`R = sum_u r_u` for every step, as in the paper: `[M, B, T] -> [M, B, 1]`."""
    return tf.reduce_sum(reward, axis=-1, keepdims=True)


def leave_one_out(returns: tf.Tensor) -> tf.Tensor:
    """Baseline of a sample: the mean return of the caption's other samples (RLOO).

    Args:
        returns: `[M, B, T]` or `[M, B, 1]`, M at least 2.

    Returns:
        A tensor like `returns`.

    Raises:
        ValueError: M is 1, so that there is no other sample.

    References:
        Kool et al. (2019), "Buy 4 REINFORCE samples, get a baseline for free!".
    """
    samples = returns.shape[0]
    if samples is None or samples < 2:
        raise ValueError(
            "Received an invalid value for argument `returns`: expected at least 2 samples "
            f"on the first axis for a leave-one-out baseline, got {samples}."
        )
    return (tf.reduce_sum(returns, axis=0, keepdims=True) - returns) / (samples - 1)


def elbo(log_lik: tf.Tensor) -> tf.Tensor:
    """Lower bound on log p(y|a), the mean over samples (eq. 10): `[M, B, T] -> [B]`, nats."""
    return tf.reduce_mean(tf.reduce_sum(log_lik, axis=-1), axis=0)


def score_function_loss(log_prob: tf.Tensor, advantage: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Scalar whose gradient is the REINFORCE estimator (eq. 11-12).

    `grad = -mean_{m,b} sum_t mask * stop_grad(advantage) * grad log_prob`

    Args:
        log_prob: `[M, B, T]` log-probability of each action drawn, nats.
        advantage: Broadcasts to `log_prob`; no gradient flows through it.
        mask: `[M, B, T]`, 1.0 where an action was drawn, else 0.0.

    Returns:
        Scalar loss.

    References:
        Williams (1992); Xu et al. (2015), Sec. 4.1, arXiv:1502.03044.
    """
    weighted = mask * tf.stop_gradient(advantage) * log_prob
    return -_caption_mean(weighted)


def _caption_mean(values: tf.Tensor) -> tf.Tensor:
    """Sum over a caption's steps, averaged over samples and captions: `[M, B, T] -> []`."""
    return tf.reduce_mean(tf.reduce_sum(values, axis=-1))


class Objective(NamedTuple):
    """Weights of the terms of `stochastic_loss`."""

    reward_weight: tf.Tensor | float = 1.0
    """lambda_r; 1 gives the unbiased gradient of the bound."""
    entropy_weight: tf.Tensor | float = 0.0
    """lambda_e."""
    value_weight: float = 1.0
    """Weight of the learned baseline's squared error; unused without a `value`."""


def stochastic_loss(
    rollout: Rollout,
    returns: tf.Tensor,
    baseline: tf.Tensor | float,
    objective: Objective,
) -> tf.Tensor:
    """The loss every stochastic model here minimises.

    `-ELBO + reward_weight * score_function_loss - entropy_weight * H
    + value_weight * mse(value, stop_grad(returns))`

    Args:
        rollout: The samples.
        returns: `[M, B, T]` or `[M, B, 1]`, from `reward_to_go` or `whole_return`.
        baseline: Broadcasts to `returns`.
        objective: The weights.

    Returns:
        Scalar: sums over a caption's words, averaged over samples and over captions.
    """
    loss = -tf.reduce_mean(elbo(rollout.log_lik))
    loss += objective.reward_weight * score_function_loss(
        rollout.log_prob, returns - baseline, rollout.mask
    )
    if rollout.entropy is not None:
        loss -= objective.entropy_weight * _caption_mean(rollout.entropy)
    if rollout.value is not None:
        error = rollout.mask * tf.square(rollout.value - tf.stop_gradient(returns))
        loss += objective.value_weight * _caption_mean(error)
    return loss


@keras.saving.register_keras_serializable(package="sat_tf")
class MovingAverageBaseline(keras.layers.Layer):
    """`b_k = decay b_{k-1} + (1 - decay) mean(return)`, the paper's baseline.

    The first return sets it, so that early advantages are not the whole return.

    Args:
        decay: Share of the old value kept.

    References:
        Weaver & Tao (2001); Xu et al. (2015), Sec. 4.1, arXiv:1502.03044.
    """

    def __init__(self, decay: float = 0.9, **kwargs) -> None:
        super().__init__(**{**kwargs, "dtype": "float32"})
        self.decay = decay
        self.average = self._scalar("average")
        self.started = self._scalar("started")
        self.built = True

    def _scalar(self, name: str):
        # Each replica updates with the mean over all of them, so "mean" keeps them equal.
        return self.add_weight(
            name=name, shape=(), initializer="zeros", trainable=False, aggregation="mean"
        )

    @property
    def value(self) -> tf.Tensor:
        """The baseline before the present batch's update, a float32 scalar."""
        return tf.convert_to_tensor(self.average)

    def update(self, mean_return: tf.Tensor) -> None:
        """Move towards the mean return of the global batch, a scalar."""
        decay = self.decay * self.started
        self.average.assign(decay * self.average + (1.0 - decay) * mean_return)
        self.started.assign(tf.ones([]))

    def get_config(self) -> dict:
        """Constructor arguments."""
        return {**super().get_config(), "decay": self.decay}
