"""What a captioner's training minimises: likelihood, penalty, and hard attention's terms."""

from __future__ import annotations

from typing import NamedTuple

import keras
import tensorflow as tf

from sat_tf.baselines import LearnedBaseline, MovingAverageBaseline
from sat_tf.config import AttentionConfig
from sat_tf.estimators import (
    Objective,
    Rollout,
    Signal,
    learning_signal,
    reward_to_go,
    stochastic_loss,
)
from sat_tf.layers.attention import Selection, attention_entropy, entropy_share
from sat_tf.layers.rnn_decoder import Taught
from sat_tf.losses import doubly_stochastic_penalty, log_likelihoods
from sat_tf.models.rollout_logs import ROLLOUT_LOGS, rollout_logs, weighted_mean
from sat_tf.vocabulary import PAD


class Terms(NamedTuple):
    """A batch's loss and what to log of it; scalars but for `returns`."""

    loss: tf.Tensor
    """Sums over a caption's words, averaged over the captions of this replica."""
    words: tf.Tensor
    """Words of the batch."""
    word_means: dict[str, tf.Tensor]
    """Means over words: nll (nats a token, unsmoothed), beta, alpha_entropy (over log L)."""
    caption_means: dict[str, tf.Tensor]
    """Means over captions."""
    returns: tf.Tensor
    """`[B]`, hard attention's mean return of each caption; empty without hard attention."""
    drawn: tf.Tensor
    """Captions whose locations were drawn."""
    drawn_means: dict[str, tf.Tensor]
    """Means over those captions, or over their locations."""

    def logs(self, captions: tf.Tensor) -> dict[str, tuple[tf.Tensor, tf.Tensor]]:
        """Named values and their weights, for running means."""
        logs = {"loss": (self.loss, captions)}
        logs |= {name: (value, self.words) for name, value in self.word_means.items()}
        logs |= {name: (value, captions) for name, value in self.caption_means.items()}
        return logs | {name: (value, self.drawn) for name, value in self.drawn_means.items()}


class AttentionMeans(NamedTuple):
    """Named scalars about where a batch's captions looked, without their weights."""

    of_caption: dict[str, tf.Tensor]
    """Means over captions: penalty, alpha_variation."""
    of_word: dict[str, tf.Tensor]
    """Means over words: alpha_entropy (over log L)."""


class CaptionObjective:
    """Loss of a batch of captions.

    Soft (eq. 14): `-log p(y|a) + lambda sum_i (1 - sum_t alpha[t,i])^2`. Hard (eq. 10-12): the
    bound, its score-function gradient and the entropy term, all from `sat_tf.estimators`.

    Args:
        attention: The configuration.
        label_smoothing: Share of the target spread over the vocabulary.
    """

    def __init__(self, attention: AttentionConfig, label_smoothing: float = 0.0) -> None:
        self.attention, self.label_smoothing = attention, label_smoothing
        self.estimator = attention.estimator
        self.hard = attention.kind == "hard"
        self.samples = self.estimator.samples if self.hard else 1
        self.penalty_weight = attention.penalty_weight if attention.kind == "soft" else 0.0

    @property
    def log_names(self) -> tuple[str, ...]:
        """Names in `Terms.logs`, known before the first batch."""
        names = ("loss", "nll", "beta")
        if self.attention.kind != "none":
            names += ("alpha_entropy", "alpha_variation", "penalty")
        return names + (("reward", "baseline", *ROLLOUT_LOGS) if self.hard else ())

    @property
    def selection(self) -> Selection:
        """How a location is chosen in training."""
        return "sample" if self.hard else "expectation"

    def draw_expectation(self, seed: tf.Tensor, size: tf.Tensor) -> tf.Tensor | None:
        """bool `[B]`: which captions take the expectation instead of a sample; None if soft."""
        if not self.hard:
            return None
        draws = 1 if self.estimator.switch_per_minibatch else size
        uniform = tf.random.stateless_uniform([draws], seed)
        return tf.broadcast_to(uniform < self.estimator.expectation_probability, [size])

    def make_baseline(self, state_dim: int) -> keras.layers.Layer | None:
        """Hard attention's baseline where it has a state; `state_dim` is the LSTM's width."""
        if self.hard and self.estimator.baseline == "moving_average":
            return MovingAverageBaseline(self.attention.baseline_decay)
        if self.hard and self.estimator.baseline == "learned":
            return LearnedBaseline(state_dim, name="baseline")
        return None

    def weights(self, batch_size: tf.Tensor | float) -> Objective:
        """The estimators' objective, with the effective lambdas a caption in such a batch."""
        estimator = self.estimator
        scale = batch_size if estimator.times_batch else 1.0
        return Objective(
            estimator.reward_weight * scale,
            estimator.entropy_weight * scale,
            bound=estimator.bound,
            baseline=estimator.baseline,
            to_go=estimator.reward_to_go,
        )

    def describe(self, batch_size: int) -> dict[str, float | str]:
        """The effective lambdas and the estimator, for the start of a run."""
        if self.attention.kind == "none":
            return {}
        if not self.hard:
            return {"doubly stochastic lambda a caption": self.penalty_weight}
        weights, estimator = self.weights(float(batch_size)), self.estimator
        baseline = estimator.baseline.replace("_", " ")
        if estimator.baseline == "moving_average":
            baseline += f", decay {self.attention.baseline_decay}"
        return {
            "preset": self.attention.preset,
            "samples a caption": estimator.samples,
            "bound": estimator.bound.replace("_", "-"),
            "lambda_r a caption": weights.reward_weight,
            "return": self._describe_return(),
            "baseline": baseline,
            "lambda_e a caption": weights.entropy_weight,
            "expectation probability": estimator.expectation_probability,
            "switch drawn for each": "minibatch" if estimator.switch_per_minibatch else "image",
            "doubly stochastic lambda a caption": self.penalty_weight,
        }

    def _describe_return(self) -> str:
        estimator = self.estimator
        if estimator.bound == "importance_weighted":
            past = ", the past in the baseline" if estimator.reward_to_go else ""
            return f"the bound{past}"
        if estimator.reward_to_go:
            return f"log p to go{' over the words' if estimator.reward_per_word else ''}"
        return "mean log p a word" if estimator.reward_per_word else "log p of the caption"

    def __call__(
        self,
        taught: Taught,
        targets: tf.Tensor,
        expectation: tf.Tensor | None = None,
        baseline: keras.layers.Layer | None = None,
        captions: tf.Tensor | None = None,
    ) -> Terms:
        """Loss and logs of one batch.

        Args:
            taught: The decoder's answer; M rows a caption, side by side.
            targets: int32 `[B, T]`, the words to predict, ending with <end>, padded with 0.
            expectation: bool `[B]`, from `draw_expectation`.
            baseline: Hard attention's, from `make_baseline`.
            captions: Captions of the whole batch, other replicas' included; None for B.

        Returns:
            `Terms`.
        """
        size = tf.shape(targets)[0] if captions is None else captions
        rows = targets if self.samples == 1 else tf.repeat(targets, self.samples, axis=0)
        mask = word_mask(rows)
        log_lik, task = log_likelihoods(taught.logits, rows, mask, self.label_smoothing)
        word_means = {
            "nll": -tf.reduce_sum(log_lik) / tf.reduce_sum(mask),
            "beta": word_mean(taught.beta, mask),
        }
        caption_means, drawn_means, drawn, returns = {}, {}, tf.zeros([]), tf.zeros([0])
        if self.hard:
            objective = self.weights(tf.cast(size, tf.float32))
            rollout = self._rollout(taught, task, log_lik, mask, expectation, baseline)
            average = baseline.value if isinstance(baseline, MovingAverageBaseline) else 0.0
            signal = learning_signal(rollout, objective, average)
            loss = stochastic_loss(rollout, *signal, objective)
            returns = _caption_returns(signal, word_mask(targets))
            caption_means["reward"] = tf.reduce_mean(returns)
            caption_means["baseline"] = _mean_baseline(signal, rollout.mask)
            drawn = tf.reduce_sum(tf.cast(~expectation, tf.float32))
            alpha = tf.nn.softmax(taught.alignment_scores)
            peakedness = self._by_sample(tf.reduce_sum(tf.square(alpha), axis=-1))
            exact = self._by_sample(log_lik)
            drawn_means = rollout_logs(rollout, signal, objective, exact, peakedness)
        else:
            loss = -tf.reduce_mean(tf.reduce_sum(task, axis=-1))
        if self.attention.kind != "none":
            means = attention_means(taught, mask)
            if self.penalty_weight:
                loss += self.penalty_weight * means.of_caption["penalty"]
            caption_means |= means.of_caption
            word_means |= means.of_word
        words = tf.reduce_sum(word_mask(targets))
        return Terms(loss, words, word_means, caption_means, returns, drawn, drawn_means)

    def _rollout(
        self,
        taught: Taught,
        task: tf.Tensor,
        log_lik: tf.Tensor,
        mask: tf.Tensor,
        expectation: tf.Tensor,
        baseline: keras.layers.Layer | None,
    ) -> Rollout:
        """The samples as the estimators take them, from rows `[B M, T]`."""
        drawn = self._by_sample(mask) * tf.cast(~expectation, tf.float32)[:, tf.newaxis]
        words = tf.reduce_sum(mask, axis=-1, keepdims=True)
        reward = tf.stop_gradient(log_lik)
        value = None
        if isinstance(baseline, LearnedBaseline):
            # Most of what a caption's log p can be depends on how many words it sums over.
            left = reward_to_go(mask) if self.estimator.reward_to_go else words
            scale = left / words if self.estimator.reward_per_word else left
            value = self._by_sample(baseline(taught.hidden, scale))
        return Rollout(
            log_prob=self._by_sample(taught.log_prob),
            entropy=self._by_sample(mask * attention_entropy(taught.alignment_scores)),
            log_lik=self._by_sample(task),
            reward=self._by_sample(reward / words if self.estimator.reward_per_word else reward),
            mask=drawn,
            value=value,
        )

    def _by_sample(self, rows: tf.Tensor) -> tf.Tensor:
        return by_sample(rows, self.samples)


def _caption_returns(signal: Signal, mask: tf.Tensor) -> tf.Tensor:
    """`[B]`, mean over samples and words, captions that took the expectation among them."""
    returns = tf.reduce_mean(signal.returns, axis=0)
    if returns.shape[-1] == 1:
        return returns[:, 0]
    return tf.reduce_sum(returns * mask, axis=-1) / tf.reduce_sum(mask, axis=-1)


def by_sample(rows: tf.Tensor, samples: int) -> tf.Tensor:
    """`[B M, T] -> [M, B, T]`, M the samples of a caption, side by side."""
    rows = tf.reshape(rows, [-1, samples, tf.shape(rows)[1]])
    return tf.transpose(rows, [1, 0, 2])


def word_mask(targets: tf.Tensor) -> tf.Tensor:
    """float32, 1.0 where there is a word to predict, 0.0 on padding."""
    return tf.cast(targets != PAD, tf.float32)


def attention_means(taught: Taught, mask: tf.Tensor) -> AttentionMeans:
    """How captions were looked at; `mask` is float32 `[B, T]`, 1.0 where there is a word."""
    alpha = tf.nn.softmax(taught.alignment_scores)
    penalty = tf.reduce_mean(doubly_stochastic_penalty(alpha, mask))
    return AttentionMeans(
        {"penalty": penalty, "alpha_variation": alpha_variation(alpha, mask)},
        {"alpha_entropy": word_mean(entropy_share(taught.alignment_scores), mask)},
    )


def alpha_variation(alpha: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """How much attention moves while a caption is written, in [0, 1].

    The variance of alpha over time, summed over locations, over its greatest possible value for
    maps as peaked as these: `sum_i var_t alpha[t,i] / mean_t sum_i alpha[t,i]^2`. 0 when alpha is
    the same at every step.

    Args:
        alpha: float32 `[B, T, L]`.
        mask: float32 `[B, T]`.

    Returns:
        Scalar, mean over captions.
    """
    weight = (mask / tf.reduce_sum(mask, axis=-1, keepdims=True))[..., tf.newaxis]
    mean = tf.reduce_sum(weight * alpha, axis=1, keepdims=True)
    variance = tf.reduce_sum(weight * tf.square(alpha - mean), axis=[1, 2])
    peakedness = tf.reduce_sum(weight * tf.square(alpha), axis=[1, 2])
    return tf.reduce_mean(variance / peakedness)


def _mean_baseline(signal: Signal, mask: tf.Tensor) -> tf.Tensor:
    """The moving average as it is, any other over the locations drawn."""
    baseline = tf.convert_to_tensor(signal.baseline)
    return baseline if baseline.shape.rank == 0 else weighted_mean(baseline, mask)


def word_mean(values: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Scalar: mean of `values` `[B, T]` where `mask` is 1."""
    return tf.reduce_sum(values * mask) / tf.reduce_sum(mask)
