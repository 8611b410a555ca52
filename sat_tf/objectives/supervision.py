"""Attention supervised by maps of where the things that words name are."""

from __future__ import annotations

import tensorflow as tf

from sat_tf.objectives.terms import Terms

ATTENTION_TARGETS = "attention_targets"
"""Name of the maps in a batch: float16 `[B, T, L]`, each of sum 1, or 0 without a target."""
SUPERVISION_MEANS = ("supervision",)
"""Keys that `supervised` adds to the means."""


def map_cross_entropy(alignment_scores: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """Cross-entropy of alpha under target maps: `-sum_i g[t,i] log alpha[t,i]`, nats.

    Args:
        alignment_scores: float32 `[B, T, L]`.
        targets: `[B, T, L]`, each of sum 1, or all zero at words without a target.

    Returns:
        float32 `[B, T]`, zero at words without a target.

    References:
        Liu et al. (2017), "Attention Correctness in Neural Image Captioning", eq. 6,
        arXiv:1605.09553.
    """
    log_alpha = tf.nn.log_softmax(alignment_scores)
    return -tf.reduce_sum(tf.cast(targets, tf.float32) * log_alpha, axis=-1)


def supervised(
    terms: Terms, alignment_scores: tf.Tensor, targets: tf.Tensor, weight: float
) -> Terms:
    """Adds `weight` times the cross-entropy of a caption's maps to the loss.

    Args:
        terms: Of the other objective.
        alignment_scores: As in `map_cross_entropy`.
        targets: As in `map_cross_entropy`.
        weight: Per caption, beside its negative log-likelihood.

    Returns:
        The terms with `supervision` among the means: nats per word with a target.
    """
    entropies = map_cross_entropy(alignment_scores, targets)
    loss = tf.reduce_mean(tf.reduce_sum(entropies, axis=-1))
    captions = tf.cast(tf.shape(targets)[0], tf.float32)
    words = tf.reduce_sum(tf.cast(tf.reduce_any(targets > 0, axis=-1), tf.float32))
    mean = {"supervision": (loss * captions / words, words)}
    return terms._replace(loss=terms.loss + weight * loss, means=terms.means | mean)
