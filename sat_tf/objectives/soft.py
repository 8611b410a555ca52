"""The likelihood of given captions, with soft attention's penalty (eq. 14)."""

from __future__ import annotations

import tensorflow as tf

from sat_tf.config import AttentionConfig
from sat_tf.fields import Fraction, Probability, checked
from sat_tf.layers.decoder import DecoderOutput
from sat_tf.objectives.likelihood import (
    ATTENTION_MEANS,
    ATTENTION_TARGETS,
    WORD_MEANS,
    SoftLabels,
    attention_means,
    doubly_stochastic_penalty,
    log_likelihoods,
    predictions,
    soft_labels,
    supervision,
    word_mask,
    word_means,
)
from sat_tf.objectives.terms import Batch, Terms
from sat_tf.ops import replica_seed, step_seeds


class SoftObjective:
    """Negative log-likelihood of a caption, and the doubly stochastic penalty (eq. 14).

    `-log p(y|a) + lambda sum_i (1 - sum_t alpha[t,i])^2`

    Args:
        attention: The configuration; its `kind` is soft, or none: the likelihood alone.
        label_smoothing: Share of the target spread over the vocabulary, in [0, 1).
        distillation_weight: Share of the target that other captioners predict, in [0, 1].

    Raises:
        ValueError: A share is out of its range.

    References:
        Xu et al. (2015), Sec. 4.2.1, arXiv:1502.03044.
    """

    @checked
    def __init__(
        self,
        attention: AttentionConfig,
        label_smoothing: Fraction = 0.0,
        distillation_weight: Probability = 0.0,
    ) -> None:
        self.attention = attention
        self.label_smoothing, self.distillation_weight = label_smoothing, distillation_weight
        self.penalty_weight = attention.penalty_weight if attention.kind == "soft" else 0.0

    @property
    def log_names(self) -> tuple[str, ...]:
        """Keys of `Terms.means`."""
        attention = ATTENTION_MEANS if self.attention.kind != "none" else ()
        maps = ("supervision",) if self.attention.supervision_weight else ()
        return WORD_MEANS + attention + maps

    def describe(self, batch_size: int) -> dict[str, float | str]:
        """Describes the objective by its effective constants, for the start of a run."""
        if self.attention.kind == "none":
            return {}
        return {"doubly stochastic lambda per caption": self.penalty_weight}

    def __call__(self, model, batch: Batch, seed: tf.Tensor, global_size: tf.Tensor) -> Terms:
        """Reads a batch of captions and computes their loss; see `Objective`.

        Args:
            model: The captioner.
            batch: `tokens` int32 `[B, T + 1]`, and images or annotations; with a weight of
                supervision also `attention_targets` float16 `[B, T, L]`, with a weight of
                distillation `predicted_words` and `predicted_shares` `[B, T, J]`.
            seed: int32 `[2]`, the same on all replicas.
            global_size: Unused.
        """
        del global_size
        draws, _ = tf.unstack(step_seeds(replica_seed(seed), 2))
        outputs = model(batch, training=True, selection="expectation", seed=draws)
        return self.terms(
            outputs,
            batch["tokens"][:, 1:],
            predicted=predictions(batch, self.distillation_weight),
            maps=batch[ATTENTION_TARGETS] if self.attention.supervision_weight else None,
        )

    def terms(
        self,
        outputs: DecoderOutput,
        targets: tf.Tensor,
        predicted: SoftLabels | None = None,
        maps: tf.Tensor | None = None,
    ) -> Terms:
        """Computes the loss of captions that were read.

        Args:
            outputs: The decoder's.
            targets: int32 `[B, T]`, the words to predict, ending with <end>, padded with 0.
            predicted: Predictions of other captioners, if the words are distilled from them.
            maps: `[B, T, L]`, read with a weight of supervision.
        """
        attention, mask = self.attention, word_mask(targets)
        labels = soft_labels(targets, self.label_smoothing, predicted, self.distillation_weight)
        log_lik = log_likelihoods(outputs.logits, targets, mask, labels)
        loss = -tf.reduce_mean(tf.reduce_sum(log_lik.soft, axis=-1))
        if self.penalty_weight:
            alpha = tf.nn.softmax(outputs.alignment_scores)
            loss += self.penalty_weight * tf.reduce_mean(doubly_stochastic_penalty(alpha, mask))
        words, captions = tf.reduce_sum(mask), tf.cast(tf.shape(targets)[0], tf.float32)
        means = word_means(outputs, log_lik.exact, mask, words)
        if attention.kind != "none":
            means |= attention_means(outputs, mask, words, captions)
        if attention.supervision_weight:
            by_maps, logged = supervision(outputs.alignment_scores, maps)
            loss, means = loss + attention.supervision_weight * by_maps, means | logged
        return Terms(loss, means)
