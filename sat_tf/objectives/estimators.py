"""Bounds, returns, baselines and the score-function loss of models that draw actions.

Pure functions over a `Rollout`, and the moving-average baseline. Actions are locations (hard
attention, glimpses) or words (sequence-level training). Shapes: M samples per example, B examples,
T steps; the comments speak of captions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import keras
import tensorflow as tf

from sat_tf.config import AttentionConfig, Baseline, Bound
from sat_tf.util.errors import invalid_value


class Rollout(NamedTuple):
    """M samples of a stochastic model, each part `[M, B, T]`."""

    log_prob: tf.Tensor
    """Differentiable log-probability of each action drawn, nats."""
    entropy: tf.Tensor | None
    """Differentiable entropy of the distribution drawn from, nats, zero on padding; or None."""
    log_lik: tf.Tensor
    """Differentiable task term log p(y_t | s, a), zero where there is none."""
    reward: tf.Tensor
    """Reward at each step, zero on padding; no gradient flows through it."""
    mask: tf.Tensor
    """1.0 where an action was drawn: not padding, not replaced by the mean."""
    value: tf.Tensor | None = None
    """Learned baseline f(stop_gradient(h)), or None."""


@dataclass(frozen=True, eq=False)
class Estimator:
    """The bound that is maximised, and how its score-function gradient is estimated."""

    reward_weight: tf.Tensor | float = 1.0
    """lambda_r; 1 gives the unbiased gradient of the bound."""
    entropy_weight: tf.Tensor | float = 0.0
    """lambda_e."""
    value_weight: float = 1.0
    """Weight of the learned baseline's squared error; unused without a `value`."""
    bound: Bound = "elbo"
    """The mean of log p(y|s_m, a) over the samples, or the logarithm of their mean likelihood."""
    baseline: Baseline | Literal["learned"] = "none"
    """Subtracted from the returns; leave_one_out is VIMCO for the importance-weighted bound."""
    to_go: bool = False
    """Credit an action with the rewards of its and later steps only."""


class Signal(NamedTuple):
    """Returns and baseline of each action; both broadcast to `[M, B, T]`, without gradient."""

    returns: tf.Tensor
    """`[M, B, T]` to go, `[M, B, 1]` whole, `[1, B, 1]` of the importance-weighted bound."""
    baseline: tf.Tensor | float
    """Expected return; does not depend on the action that it is used for."""

    @property
    def advantage(self) -> tf.Tensor:
        """Returns minus baseline; a positive advantage makes its action more likely."""
        return self.returns - self.baseline


def by_sample(rows: tf.Tensor, samples: int) -> tf.Tensor:
    """`[B M, T] -> [M, B, T]`, the M samples of an example side by side in `rows`."""
    rows = tf.reshape(rows, [-1, samples, tf.shape(rows)[1]])
    return tf.transpose(rows, [1, 0, 2])


# --- bounds ---


def elbo(log_lik: tf.Tensor) -> tf.Tensor:
    """Lower bound on log p(y|a), the mean over samples (eq. 10): `[M, B, T] -> [B]`, nats."""
    return tf.reduce_mean(tf.reduce_sum(log_lik, axis=-1), axis=0)


def importance_weighted_bound(log_lik: tf.Tensor) -> tf.Tensor:
    """`log 1/M sum_m p(y|s_m, a)`, the samples drawn from p(s|a): `[M, B, T] -> [B]`, nats.

    The ELBO at M = 1; its mean does not fall as M grows, and never passes log p(y|a).

    References:
        Burda et al. (2015), arXiv:1509.00519.
    """
    return _log_mean_exp(tf.reduce_sum(log_lik, axis=-1), axis=0)


BOUNDS = {"elbo": elbo, "importance_weighted": importance_weighted_bound}


# --- returns and baselines ---


def reward_to_go(reward: tf.Tensor) -> tf.Tensor:
    """`R_t = sum_{u >= t} r_u`, rewards t..T, zero on padding: `[M, B, T] -> [M, B, T]`."""
    return tf.cumsum(reward, axis=-1, reverse=True)


def whole_return(reward: tf.Tensor) -> tf.Tensor:
    """`R = sum_u r_u`, the same for every step, as in the paper: `[M, B, T] -> [M, B, 1]`."""
    return tf.reduce_sum(reward, axis=-1, keepdims=True)


def leave_one_out(returns: tf.Tensor) -> tf.Tensor:
    """RLOO baseline: the mean return, `[M, B, T]` or `[M, B, 1]`, of the caption's other samples.

    `b_m = 1 / (M - 1) sum_{n != m} R_n`, M at least 2

    Raises:
        ValueError: M is 1.

    References:
        Kool et al. (2019), "Buy 4 REINFORCE samples, get a baseline for free!".
    """
    samples = returns.shape[0]
    if samples is None or samples < 2:
        expected = "at least 2 samples on the first axis for a leave-one-out baseline"
        raise invalid_value("returns", expected, samples)
    return (tf.reduce_sum(returns, axis=0, keepdims=True) - returns) / (samples - 1)


def vimco_baseline(reward: tf.Tensor, to_go: bool = False) -> tf.Tensor:
    """VIMCO baseline: the importance-weighted bound with a substitute for the sample.

    The substitute's weight is the geometric mean of the other samples' weights. To go, it has the
    sample's own rewards before t and the mean of the others' from t on: the action at t cannot
    change the past, so the past belongs in the baseline.

    Args:
        reward: `[M, B, T]`, M at least 2, zero on padding; its sum over T is log p(y|s_m, a).
        to_go: Keep the sample's past.

    Returns:
        `[M, B, T]` to go, else `[M, B, 1]`.

    Raises:
        ValueError: M is 1.

    References:
        Mnih & Rezende (2016), arXiv:1602.06725, eq. 9-10 (whole returns).
    """
    log_weight = whole_return(reward)
    ahead = reward_to_go(reward) if to_go else log_weight
    stand_in = log_weight - ahead + leave_one_out(ahead)
    own = tf.eye(reward.shape[0], dtype=tf.bool)[:, :, tf.newaxis, tf.newaxis]
    return _log_mean_exp(tf.where(own, stand_in[:, tf.newaxis], log_weight[tf.newaxis]), axis=1)


def action_returns(reward: tf.Tensor, estimator: Estimator) -> tf.Tensor:
    """Return of each action, without gradient.

    The importance-weighted bound is not a sum over steps: every action of a caption has the bound
    itself as its return, and only VIMCO's baseline can account for the past.

    Returns:
        `[1, B, 1]` of the importance-weighted bound, else `[M, B, T]` to go or `[M, B, 1]`.
    """
    reward = tf.stop_gradient(reward)
    if estimator.bound == "importance_weighted":
        return importance_weighted_bound(reward)[tf.newaxis, :, tf.newaxis]
    return reward_to_go(reward) if estimator.to_go else whole_return(reward)


def learning_signal(
    rollout: Rollout, estimator: Estimator, average: tf.Tensor | float = 0.0
) -> Signal:
    """Returns and baseline of each action, without gradient.

    Args:
        rollout: The samples; a learned baseline reads their `value`.
        estimator: The bound and the baseline.
        average: Value of the moving-average baseline, if that is the baseline.

    Raises:
        ValueError: Leave-one-out with a single sample.
    """
    returns, reward = action_returns(rollout.reward, estimator), tf.stop_gradient(rollout.reward)
    if estimator.baseline == "moving_average":
        return Signal(returns, average)
    if estimator.baseline == "learned":
        return Signal(returns, tf.stop_gradient(rollout.value))
    if estimator.baseline == "leave_one_out":
        weighted = estimator.bound == "importance_weighted"
        others = vimco_baseline(reward, estimator.to_go) if weighted else leave_one_out(returns)
        return Signal(returns, others)
    return Signal(returns, tf.zeros([], reward.dtype))


# --- losses ---


def score_function_loss(
    log_prob: tf.Tensor, advantage: tf.Tensor, mask: tf.Tensor, sum_samples: bool = False
) -> tf.Tensor:
    """Scalar with the REINFORCE estimator as its gradient (eq. 11-12).

    `grad = -mean_{m,b} sum_t mask * stop_grad(advantage) * grad log_prob`

    Args:
        log_prob: `[M, B, T]` log-probability of each action drawn, nats.
        advantage: Broadcasts to `log_prob`; no gradient flows through it.
        mask: `[M, B, T]`, 1.0 where an action was drawn, else 0.0.
        sum_samples: Sum over the samples instead of averaging, for advantages of the whole
            bound rather than of one of its M terms.

    Returns:
        Scalar loss.

    References:
        Williams (1992); Xu et al. (2015), Sec. 4.1, arXiv:1502.03044.
    """
    loss = -_caption_mean(mask * tf.stop_gradient(advantage) * log_prob)
    return loss * log_prob.shape[0] if sum_samples else loss


def stochastic_loss(rollout: Rollout, signal: Signal, estimator: Estimator) -> tf.Tensor:
    """Loss of every model here that draws actions.

    `-bound + reward_weight * score_function_loss - entropy_weight * H
    + value_weight * (value - stop_grad(returns))^2`

    Scalar: sums over a caption's steps, averaged over samples and captions.
    """
    loss = -tf.reduce_mean(BOUNDS[estimator.bound](rollout.log_lik))
    loss += estimator.reward_weight * score_function_loss(
        rollout.log_prob,
        signal.advantage,
        rollout.mask,
        sum_samples=estimator.bound == "importance_weighted",
    )
    if rollout.entropy is not None:
        loss -= estimator.entropy_weight * _caption_mean(rollout.entropy)
    if rollout.value is not None:
        error = rollout.mask * tf.square(rollout.value - tf.stop_gradient(signal.returns))
        loss += estimator.value_weight * _caption_mean(error)
    return loss


def _caption_mean(values: tf.Tensor) -> tf.Tensor:
    """Sum over a caption's steps, averaged over samples and captions: `[M, B, T] -> []`."""
    return tf.reduce_mean(tf.reduce_sum(values, axis=-1))


def _log_mean_exp(values: tf.Tensor, axis: int) -> tf.Tensor:
    return tf.reduce_logsumexp(values, axis=axis) - math.log(values.shape[axis])


# --- what training logs of rollouts ---

ROLLOUT_LOGS = (
    "elbo",
    "importance_weighted_bound",
    "reward_variance",
    "advantage_variance",
    "explained_variance",
)
"""Keys of `rollout_logs`."""


def rollout_logs(rollout: Rollout, signal: Signal, log_lik: tf.Tensor) -> dict[str, tf.Tensor]:
    """Scalars over the captions and locations that were drawn; 0 if none was.

    Args:
        rollout: Of the loss, as `signal`.
        signal: Returns and baseline.
        log_lik: `[M, B, T]`, unsmoothed log p of the words.

    Returns:
        `elbo` and `importance_weighted_bound` (nats per caption); the variances of returns and
        advantages (nats squared); `explained_variance`, the share of the returns' variance that
        the baseline removes.
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
    }


def weighted_mean(values: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Scalar; `values` broadcast to `weights`. 0 if all weights are."""
    values = values * tf.ones_like(weights)
    return tf.math.divide_no_nan(tf.reduce_sum(values * weights), tf.reduce_sum(weights))


def variance(values: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Weighted variance, a scalar; `values` broadcast to `weights`."""
    return weighted_mean(tf.square(values - weighted_mean(values, weights)), weights)


# --- baselines with state ---


@keras.saving.register_keras_serializable(package="sat_tf")
class MovingAverageBaseline(keras.layers.Layer):
    """`b_k = decay b_{k-1} + (1 - decay) mean(return)`, the paper's baseline.

    It starts at the first batch's mean return, so that no advantage is a whole return.

    Args:
        decay: Share of the old value that is kept.

    Call arguments:
        mean_return: Scalar, the mean return of the present batch over all replicas.

    Output:
        The baseline of the present batch, a float32 scalar: the average over earlier batches, or
        `mean_return` in the first.

    References:
        Weaver & Tao (2001); Xu et al. (2015), Sec. 4.1, arXiv:1502.03044.
    """

    def __init__(self, decay: float = 0.9, **kwargs) -> None:
        super().__init__(**{**kwargs, "dtype": "float32"})
        self.decay = decay
        # Each replica updates with the mean over all of them, so "mean" keeps them equal.
        options = {"shape": (), "initializer": "zeros", "trainable": False, "aggregation": "mean"}
        self.average = self.add_weight(name="average", **options)
        self.started = self.add_weight(name="started", **options)
        self.built = True

    @property
    def value(self) -> tf.Tensor:
        """The average so far, a float32 scalar; 0 before the first update."""
        return tf.convert_to_tensor(self.average)

    def call(self, mean_return: tf.Tensor) -> tf.Tensor:
        return tf.where(tf.convert_to_tensor(self.started) > 0.0, self.value, mean_return)

    def update(self, mean_return: tf.Tensor) -> None:
        """Moves towards the mean return of the global batch, a scalar."""
        decay = self.decay * self.started
        self.average.assign(decay * self.average + (1.0 - decay) * mean_return)
        self.started.assign(tf.ones([]))

    def get_config(self) -> dict:
        return {**super().get_config(), "decay": self.decay}


def make_baseline(attention: AttentionConfig) -> MovingAverageBaseline | None:
    """Makes the baseline of hard attention that has state, if any."""
    averaged = attention.kind == "hard" and attention.estimator.baseline == "moving_average"
    return MovingAverageBaseline(attention.baseline_decay) if averaged else None
