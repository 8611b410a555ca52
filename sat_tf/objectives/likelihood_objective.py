"""The likelihood of given captions, with soft attention's penalty (eq. 14)."""

from __future__ import annotations

import keras
import tensorflow as tf

from sat_tf.config import AttentionConfig
from sat_tf.fields import Fraction, Probability, check_argument
from sat_tf.layers.attention import Selection
from sat_tf.layers.decoder_types import DecoderOutput
from sat_tf.objectives.caption_means import (
    ATTENTION_MEANS,
    WORD_MEANS,
    attention_means,
    word_means,
)
from sat_tf.objectives.likelihood import log_likelihoods, word_mask
from sat_tf.objectives.replica_context import replica_seed
from sat_tf.objectives.soft_labels import SoftLabels, predictions, soft_labels
from sat_tf.objectives.supervision import ATTENTION_TARGETS, SUPERVISION_MEANS, supervised
from sat_tf.objectives.terms import Batch, Terms


class LikelihoodObjective:
    """Negative log-likelihood of a caption, and the doubly stochastic penalty (eq. 14).

    `-log p(y|a) + lambda sum_i (1 - sum_t alpha[t,i])^2`

    Args:
        attention: The configuration; its `kind` is soft or none.
        label_smoothing: Share of the target spread over the vocabulary, in [0, 1).
        distillation_weight: Share of the target that other captioners predict, in [0, 1].

    Raises:
        ValueError: A share is out of its range.

    References:
        Xu et al. (2015), Sec. 4.2.1, arXiv:1502.03044.
    """

    selection: Selection = "expectation"
    """Choice of a location in training."""
    samples = 1
    """M, samples per caption."""

    def __init__(
        self,
        attention: AttentionConfig,
        label_smoothing: float = 0.0,
        distillation_weight: float = 0.0,
    ) -> None:
        self.attention = attention
        self.label_smoothing = check_argument("label_smoothing", label_smoothing, Fraction)
        self.distillation_weight = check_argument(
            "distillation_weight", distillation_weight, Probability
        )
        self.penalty_weight = attention.penalty_weight if attention.kind == "soft" else 0.0

    @property
    def log_names(self) -> tuple[str, ...]:
        """Keys of `Terms.means`."""
        supervision = SUPERVISION_MEANS if self.attention.supervision_weight else ()
        attention = ATTENTION_MEANS if self.attention.kind != "none" else ()
        return WORD_MEANS + attention + supervision

    def make_baseline(self, state_dim: int) -> keras.layers.Layer | None:
        """Makes the baseline that has state, if any; `state_dim` is the width of the LSTM."""
        return None

    def draw_expectation(self, seed: tf.Tensor, size: tf.Tensor) -> tf.Tensor | None:
        """Draws the captions that take the expectation instead of a sample.

        Args:
            seed: int32 `[2]`, the same on all replicas.
            size: B.

        Returns:
            bool `[B]`, or None if attention never draws.
        """
        return None

    def describe(self, batch_size: int) -> dict[str, float | str]:
        """Describes the objective by its effective constants, for the start of a run."""
        if self.attention.kind == "none":
            return {}
        return {"doubly stochastic lambda per caption": self.penalty_weight}

    def __call__(self, model, batch: Batch, seed: tf.Tensor, global_size: tf.Tensor) -> Terms:
        """Computes the loss of a batch of captions; see `Objective`.

        Args:
            model: The captioner.
            batch: `tokens` int32 `[B, T + 1]`, and images or annotations; with a weight of
                supervision also `attention_targets` float16 `[B, T, L]`, with a weight of
                distillation `predicted_words` and `predicted_shares` `[B, T, J]`.
            seed: int32 `[2]`, the same on all replicas.
            global_size: float32 scalar, captions on all replicas.
        """
        draws, _ = tf.unstack(tf.random.experimental.stateless_split(replica_seed(seed), 2))
        expectation = self.draw_expectation(seed, tf.shape(batch["tokens"])[0])
        outputs = model(
            batch,
            training=True,
            selection=self.selection,
            seed=draws,
            use_expectation=expectation,
            samples=self.samples,
        )
        targets = batch["tokens"][:, 1:]
        predicted = predictions(batch) if self.distillation_weight else None
        terms = self.terms(outputs, targets, expectation, model.baseline, global_size, predicted)
        if weight := self.attention.supervision_weight:
            maps = tf.repeat(batch[ATTENTION_TARGETS], self.samples, axis=0)
            return supervised(terms, outputs.alignment_scores, maps, weight)
        return terms

    def terms(
        self,
        outputs: DecoderOutput,
        targets: tf.Tensor,
        expectation: tf.Tensor | None = None,
        baseline: keras.layers.Layer | None = None,
        global_size: tf.Tensor | None = None,
        predicted: SoftLabels | None = None,
    ) -> Terms:
        """Computes the loss of captions that were read.

        Args:
            outputs: The decoder's, M rows per caption, side by side.
            targets: int32 `[B, T]`, the words to predict, ending with <end>, padded with 0.
            expectation: bool `[B]`, from `draw_expectation`.
            baseline: From `make_baseline`.
            global_size: Captions on all replicas; None for B.
            predicted: What other captioners predict, if the words are distilled from them.
        """
        mask = word_mask(targets)
        labels = self.labels(targets, predicted)
        log_lik, soft = log_likelihoods(outputs.logits, targets, mask, labels)
        loss = -tf.reduce_mean(tf.reduce_sum(soft, axis=-1))
        words, captions = tf.reduce_sum(mask), tf.cast(tf.shape(targets)[0], tf.float32)
        means = word_means(outputs, log_lik, mask, words)
        if self.attention.kind != "none":
            means |= attention_means(outputs, mask, words, captions)
            if self.penalty_weight:
                loss += self.penalty_weight * means["penalty"][0]
        return Terms(loss, means)

    def labels(self, targets: tf.Tensor, predicted: SoftLabels | None) -> SoftLabels | None:
        """Returns the soft labels of `targets` `[B, T]`; None if there is nothing soft in them."""
        return soft_labels(targets, self.label_smoothing, predicted, self.distillation_weight)
