"""What a captioner's training minimises: likelihood, penalty, and hard attention's terms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import tensorflow as tf

from sat_tf.config import AttentionConfig
from sat_tf.estimators import (
    MovingAverageBaseline,
    Objective,
    Rollout,
    stochastic_loss,
    whole_return,
)
from sat_tf.layers.attention import Selection, attention_entropy
from sat_tf.layers.rnn_decoder import Taught
from sat_tf.losses import (
    doubly_stochastic_penalty,
    smoothed_log_likelihood,
    word_log_likelihood,
)
from sat_tf.vocabulary import PAD


@dataclass(frozen=True)
class Preset:
    """Constants of hard attention that differ between the paper's text and its code."""

    reward_weight: float
    entropy_weight: float
    switch_per_minibatch: bool
    """One draw of the expectation switch a minibatch instead of one an image."""
    reward_per_word: bool
    """The return is the mean log p over a caption's words instead of their sum."""
    times_batch: bool
    """The two weights grow with the batch: the code divides the likelihood by B, not them."""


PRESETS = {
    "paper": Preset(0.1, 0.002, False, False, False),
    "arctic": Preset(0.1, 0.002, True, True, True),
}


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
    """`[B]`, hard attention's return of each caption."""

    def logs(self, captions: tf.Tensor) -> dict[str, tuple[tf.Tensor, tf.Tensor]]:
        """Named values and their weights, for running means."""
        logs = {"loss": (self.loss, captions)}
        logs |= {name: (value, self.words) for name, value in self.word_means.items()}
        return logs | {name: (value, captions) for name, value in self.caption_means.items()}


class CaptionObjective:
    """Loss of a batch of captions.

    Soft (eq. 14): `-log p(y|a) + lambda sum_i (1 - sum_t alpha[t,i])^2`. Hard (eq. 10-12): the
    bound, its score-function gradient and the entropy term, from `sat_tf.estimators`.

    Args:
        attention: The configuration.
        label_smoothing: Share of the target spread over the vocabulary.
    """

    def __init__(self, attention: AttentionConfig, label_smoothing: float = 0.0) -> None:
        self.attention, self.label_smoothing = attention, label_smoothing
        self.preset = PRESETS[attention.preset]
        self.hard = attention.kind == "hard"
        self.penalty_weight = attention.penalty_weight if attention.kind == "soft" else 0.0

    @property
    def log_names(self) -> tuple[str, ...]:
        """Names in `Terms.logs`, known before the first batch."""
        names = ("loss", "nll", "beta")
        if self.attention.kind != "none":
            names += ("alpha_entropy", "alpha_variation", "penalty")
        return names + (("reward", "baseline", "advantage_variance") if self.hard else ())

    @property
    def selection(self) -> Selection:
        """How a location is chosen in training."""
        return "sample" if self.hard else "expectation"

    def draw_expectation(self, seed: tf.Tensor, size: tf.Tensor) -> tf.Tensor | None:
        """bool `[B]`: which captions take the expectation instead of a sample; None if soft."""
        if not self.hard:
            return None
        draws = 1 if self.preset.switch_per_minibatch else size
        uniform = tf.random.stateless_uniform([draws], seed)
        return tf.broadcast_to(uniform < self.attention.expectation_probability, [size])

    def weights(self, batch_size: tf.Tensor | float) -> Objective:
        """Effective lambdas a caption for a batch of this size."""
        reward, entropy = self.attention.reward_weight, self.attention.entropy_weight
        scale = batch_size if self.preset.times_batch else 1.0
        return Objective(
            (self.preset.reward_weight if reward is None else reward) * scale,
            (self.preset.entropy_weight if entropy is None else entropy) * scale,
        )

    def describe(self, batch_size: int) -> dict[str, float | str]:
        """The effective lambdas, for the start of a run."""
        if self.attention.kind == "none":
            return {}
        if not self.hard:
            return {"doubly stochastic lambda a caption": self.penalty_weight}
        weights = self.weights(float(batch_size))
        preset = self.preset
        return {
            "preset": self.attention.preset,
            "lambda_r a caption": weights.reward_weight,
            "return": "mean log p a word" if preset.reward_per_word else "log p of the caption",
            "lambda_e a caption": weights.entropy_weight,
            "baseline decay": self.attention.baseline_decay,
            "expectation probability": self.attention.expectation_probability,
            "switch drawn for each": "minibatch" if preset.switch_per_minibatch else "image",
            "doubly stochastic lambda a caption": self.penalty_weight,
        }

    def __call__(
        self,
        taught: Taught,
        targets: tf.Tensor,
        expectation: tf.Tensor | None = None,
        baseline: MovingAverageBaseline | None = None,
        captions: tf.Tensor | None = None,
    ) -> Terms:
        """Loss and logs of one batch.

        Args:
            taught: The decoder's answer.
            targets: int32 `[B, T]`, the words to predict, ending with <end>, padded with 0.
            expectation: bool `[B]`, from `draw_expectation`.
            baseline: Hard attention's.
            captions: Captions of the whole batch, other replicas' included; None for B.

        Returns:
            `Terms`.
        """
        mask = word_mask(targets)
        log_lik = word_log_likelihood(taught.logits, targets, mask)
        task = log_lik
        if self.label_smoothing:
            task = smoothed_log_likelihood(taught.logits, targets, mask, self.label_smoothing)
        returns = self._returns(tf.stop_gradient(log_lik), mask)
        word_means = {
            "nll": -tf.reduce_sum(log_lik) / tf.reduce_sum(mask),
            "beta": _word_mean(taught.beta, mask),
        }
        caption_means = {}
        if self.hard:
            size = tf.cast(tf.shape(mask)[0], tf.float32) if captions is None else captions
            rollout = _rollout(taught, task, log_lik, mask, expectation)
            loss = stochastic_loss(
                rollout, returns[tf.newaxis, :, tf.newaxis], baseline.value, self.weights(size)
            )
            caption_means |= _reward_logs(returns, baseline)
        else:
            loss = -tf.reduce_mean(tf.reduce_sum(task, axis=-1))
        if self.attention.kind != "none":
            alpha = tf.nn.softmax(taught.alignment_scores)
            penalty = tf.reduce_mean(doubly_stochastic_penalty(alpha, mask))
            if self.penalty_weight:
                loss += self.penalty_weight * penalty
            caption_means["penalty"] = penalty
            caption_means["alpha_variation"] = alpha_variation(alpha, mask)
            word_means["alpha_entropy"] = _entropy_share(taught.alignment_scores, mask)
        return Terms(loss, tf.reduce_sum(mask), word_means, caption_means, returns)

    def _returns(self, log_lik: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """`[B]`: log p of a caption, or its mean over the words."""
        returns = whole_return(log_lik)[:, 0]
        return returns / tf.reduce_sum(mask, axis=-1) if self.preset.reward_per_word else returns


def _rollout(taught, task, log_lik, mask, expectation) -> Rollout:
    """One sample a caption, as the estimators take it."""
    drawn = mask * tf.cast(~expectation, tf.float32)[:, tf.newaxis]
    return Rollout(
        log_prob=taught.log_prob[tf.newaxis],
        entropy=(mask * attention_entropy(taught.alignment_scores))[tf.newaxis],
        log_lik=task[tf.newaxis],
        reward=tf.stop_gradient(log_lik)[tf.newaxis],
        mask=drawn[tf.newaxis],
    )


def word_mask(targets: tf.Tensor) -> tf.Tensor:
    """float32, 1.0 where there is a word to predict, 0.0 on padding."""
    return tf.cast(targets != PAD, tf.float32)


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


def _reward_logs(returns: tf.Tensor, baseline: MovingAverageBaseline) -> dict[str, tf.Tensor]:
    return {
        "reward": tf.reduce_mean(returns),
        "baseline": baseline.value,
        "advantage_variance": tf.math.reduce_variance(returns - baseline.value),
    }


def _entropy_share(alignment_scores: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Entropy of alpha over its greatest value log L, mean over words: 1 is uniform."""
    locations = tf.cast(tf.shape(alignment_scores)[-1], tf.float32)
    return _word_mean(attention_entropy(alignment_scores), mask) / tf.math.log(locations)


def _word_mean(values: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(values * mask) / tf.reduce_sum(mask)
