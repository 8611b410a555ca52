"""The likelihood of given captions, with soft attention's penalty (eq. 14), and its terms.

A term is a sum over the words of a caption: a mean over words plus an unscaled penalty would make
its lambda about T times larger.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from sat_tf.config import AttentionConfig
from sat_tf.layers.attention import entropy_share
from sat_tf.layers.decoder import DecoderOutput
from sat_tf.ops import replica_seed, step_seeds
from sat_tf.text.vocabulary import PAD
from sat_tf.train_step import Batch, Means, Terms
from sat_tf.util.fields import Fraction, Probability, checked

ATTENTION_TARGETS = "attention_targets"
"""Name of the maps in a batch: float16 `[B, T, L]`, each of sum 1, or 0 without a target."""
PREDICTED_WORDS, PREDICTED_SHARES = "predicted_words", "predicted_shares"
"""Names in a batch of what the teachers predict, `[B, T, J]` each."""
WORD_MEANS = ("nll", "beta")
"""Keys of `word_means`."""
ATTENTION_MEANS = ("alpha_entropy", "alpha_variation", "penalty")
"""Keys of `attention_means`."""


class SoftLabels(NamedTuple):
    """A distribution over words for each word of a caption.

    What the shares leave of 1 is spread evenly over the vocabulary.
    """

    words: tf.Tensor
    """int32 `[B, T, J]`; a word may occur more than once."""
    shares: tf.Tensor
    """float32 `[B, T, J]`, at least 0, of sum 1 at most."""

    def repeated(self, samples: int) -> SoftLabels:
        """Returns the labels of each caption `samples` times, side by side."""
        return SoftLabels(*(tf.repeat(part, samples, axis=0) for part in self))


def predictions(batch: Batch, weight: float = 1.0) -> SoftLabels | None:
    """Returns what the teachers predict for the captions of a batch; None without a weight."""
    if not weight:
        return None
    shares = tf.cast(batch[PREDICTED_SHARES], tf.float32)
    return SoftLabels(tf.cast(batch[PREDICTED_WORDS], tf.int32), shares)


def soft_labels(
    targets: tf.Tensor, smoothing: float, predicted: SoftLabels | None = None, weight: float = 0.0
) -> SoftLabels | None:
    """Mixes smoothed labels with the predictions of teachers.

    `(1 - v) ((1 - s) [k = y_t] + s / K) + v q_t(k)`, the share of word k of K at place t.

    Args:
        targets: int32 `[B, T]`, y.
        smoothing: s in [0, 1).
        predicted: q, the teachers' distribution.
        weight: v in [0, 1], the share of q.

    Returns:
        The mixture; None if it is the target alone.

    References:
        Szegedy et al. (2016), arXiv:1512.00567 (smoothing); Hinton et al. (2015),
        arXiv:1503.02531 (distillation of an ensemble, here at a temperature of 1).
    """
    if not smoothing and predicted is None:
        return None
    words = tf.cast(targets, tf.int32)[..., tf.newaxis]
    shares = tf.fill(tf.shape(words), 1.0 - smoothing)
    if predicted is None:
        return SoftLabels(words, shares)
    return SoftLabels(
        tf.concat([words, predicted.words], axis=-1),
        tf.concat([(1.0 - weight) * shares, weight * predicted.shares], axis=-1),
    )


class LogLikelihoods(NamedTuple):
    """Log-likelihoods of the words of captions, nats."""

    exact: tf.Tensor
    """`log p(y_t | y_<t, a)`."""
    soft: tf.Tensor
    """The mean of `log p(k | y_<t, a)` over words k, with soft labels."""


def word_mask(targets: tf.Tensor) -> tf.Tensor:
    """float32, 1.0 at words to predict, 0.0 on padding; the shape of `targets`."""
    return tf.cast(targets != PAD, tf.float32)


def word_mean(values: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Scalar: mean of `values` `[B, T]` where `mask` is 1."""
    return tf.reduce_sum(values * mask) / tf.reduce_sum(mask)


def word_log_likelihood(logits: tf.Tensor, targets: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """`log p(y_t | y_<t, a)`, float32 `[..., T]`, nats; arguments as in `log_likelihoods`."""
    return log_likelihoods(logits, targets, mask).exact


def log_likelihoods(
    logits: tf.Tensor, targets: tf.Tensor, mask: tf.Tensor, labels: SoftLabels | None = None
) -> LogLikelihoods:
    """Log-likelihoods of the targets, and of soft labels.

    Args:
        logits: float32 `[..., T, K]`.
        targets: int32 `[..., T]`.
        mask: float32 `[..., T]`, 1.0 at words.
        labels: `[..., T, J]`, of `soft_labels`; None for the targets themselves.

    Returns:
        float32 `[..., T]` each, zero where the mask is.
    """
    exact = -mask * tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits)
    if labels is None:
        return LogLikelihoods(exact, exact)
    log_probs = tf.nn.log_softmax(logits)
    at_words = tf.gather(log_probs, labels.words, batch_dims=len(logits.shape) - 1)
    spread = (1.0 - tf.reduce_sum(labels.shares, axis=-1)) * tf.reduce_mean(log_probs, axis=-1)
    soft = tf.reduce_sum(labels.shares * at_words, axis=-1) + spread
    return LogLikelihoods(exact, mask * soft)


def doubly_stochastic_penalty(alpha: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """`sum_i (1 - sum_t alpha[t,i])^2` of each caption (eq. 14, without its lambda).

    Args:
        alpha: float32 `[B, T, L]`.
        mask: float32 `[B, T]`, 1.0 at words.

    Returns:
        float32 `[B]`.

    References:
        Xu et al. (2015), Sec. 4.2.1, eq. 14, arXiv:1502.03044.
    """
    attended = tf.einsum("btl,bt->bl", alpha, mask)
    return tf.reduce_sum(tf.square(1.0 - attended), axis=-1)


def supervision(alignment_scores: tf.Tensor, targets: tf.Tensor) -> tuple[tf.Tensor, Means]:
    """Cross-entropy of alpha under target maps: `-sum_t sum_i g[t,i] log alpha[t,i]`.

    Args:
        alignment_scores: float32 `[B, T, L]`.
        targets: `[B, T, L]`, g, each of sum 1, or all zero at words without a target.

    Returns:
        The mean over captions, a scalar, nats; and `supervision`, nats per word with a target.

    References:
        Liu et al. (2017), "Attention Correctness in Neural Image Captioning", eq. 6,
        arXiv:1605.09553.
    """
    log_alpha = tf.nn.log_softmax(alignment_scores)
    entropies = -tf.reduce_sum(tf.cast(targets, tf.float32) * log_alpha, axis=-1)
    loss = tf.reduce_mean(tf.reduce_sum(entropies, axis=-1))
    captions = tf.cast(tf.shape(targets)[0], tf.float32)
    words = tf.reduce_sum(tf.cast(tf.reduce_any(targets > 0, axis=-1), tf.float32))
    return loss, {"supervision": (loss * captions / words, words)}


# --- means that are logged beside the loss ---


def word_means(
    outputs: DecoderOutput, log_lik: tf.Tensor, mask: tf.Tensor, words: tf.Tensor
) -> Means:
    """`nll` (nats per token, unsmoothed, from `log_lik` `[B, T]`) and `beta`, of weight `words`."""
    nll = -tf.reduce_sum(log_lik) / tf.reduce_sum(mask)
    return {"nll": (nll, words), "beta": (word_mean(outputs.beta, mask), words)}


def attention_means(
    outputs: DecoderOutput, mask: tf.Tensor, words: tf.Tensor, captions: tf.Tensor
) -> Means:
    """`alpha_entropy` (share of log L) over words; `alpha_variation` and `penalty` over captions.

    `words` and `captions` are the weights of these means.
    """
    alpha = tf.nn.softmax(outputs.alignment_scores)
    penalty = tf.reduce_mean(doubly_stochastic_penalty(alpha, mask))
    return {
        "alpha_entropy": (word_mean(entropy_share(outputs.alignment_scores), mask), words),
        "alpha_variation": (alpha_variation(alpha, mask), captions),
        "penalty": (penalty, captions),
    }


def alpha_variation(alpha: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Movement of attention over the words of a caption, in [0, 1].

    The variance of alpha over time, summed over locations, as a share of the largest possible
    for maps this peaked: `sum_i var_t alpha[t,i] / mean_t sum_i alpha[t,i]^2`. 0 if alpha is the
    same at every step. Alpha is float32 `[B, T, L]`; a scalar, the mean over captions.
    """
    words = tf.reduce_sum(mask, axis=-1, keepdims=True)
    weight = tf.math.divide_no_nan(mask, words)[..., tf.newaxis]
    mean = tf.reduce_sum(weight * alpha, axis=1, keepdims=True)
    variance = tf.reduce_sum(weight * tf.square(alpha - mean), axis=[1, 2])
    peakedness = tf.reduce_sum(weight * tf.square(alpha), axis=[1, 2])
    return tf.reduce_mean(tf.math.divide_no_nan(variance, peakedness))


# --- the objective ---


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
        """Returns the constants in effect, for the start of a run."""
        return {"penalty_weight": self.penalty_weight}

    def __call__(self, model, batch: Batch, seed: tf.Tensor) -> Terms:
        """Reads a batch of captions and computes their loss; see `Objective`.

        Args:
            model: The captioner.
            batch: `tokens` int32 `[B, T + 1]`, and images or annotations; with a weight of
                supervision also `attention_targets` float16 `[B, T, L]`, with a weight of
                distillation `predicted_words` and `predicted_shares` `[B, T, J]`.
            seed: int32 `[2]`, the same on all replicas.
        """
        draws, _ = tf.unstack(step_seeds(replica_seed(seed), 2))
        outputs = model(batch, training=True, selection="expectation", seed=draws)
        return self.terms(outputs, batch["tokens"][:, 1:], **self.taught(batch))

    def taught(self, batch: Batch) -> dict[str, Any]:
        """Returns the arguments of `terms` that teachers put into a batch."""
        maps = batch[ATTENTION_TARGETS] if self.attention.supervision_weight else None
        return {"predicted": predictions(batch, self.distillation_weight), "maps": maps}

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
        words, captions = tf.reduce_sum(mask), tf.cast(tf.shape(targets)[0], tf.float32)
        means = word_means(outputs, log_lik.exact, mask, words)
        if attention.kind != "none":
            means |= attention_means(outputs, mask, words, captions)
        if self.penalty_weight:
            loss += self.penalty_weight * means["penalty"][0]
        if attention.supervision_weight:
            by_maps, logged = supervision(outputs.alignment_scores, maps)
            loss, means = loss + attention.supervision_weight * by_maps, means | logged
        return Terms(loss, means)
