"""Targets that several words share: smoothed labels, and predictions of other captioners."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from sat_tf.objectives.terms import Batch

PREDICTED_WORDS, PREDICTED_SHARES = "predicted_words", "predicted_shares"
"""Names in a batch of what the teachers predict, `[B, T, J]` each."""


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


def predictions(batch: Batch) -> SoftLabels:
    """Returns what the teachers predict for the captions of a batch."""
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
