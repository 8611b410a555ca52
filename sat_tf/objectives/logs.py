"""Means that training logs beside the loss: of words and captions."""

from __future__ import annotations

import tensorflow as tf

from sat_tf.layers.attention import entropy_share
from sat_tf.layers.decoder import DecoderOutput
from sat_tf.objectives.likelihood import doubly_stochastic_penalty, word_mean
from sat_tf.objectives.terms import Means

WORD_MEANS = ("nll", "beta")
"""Keys of `word_means`."""
ATTENTION_MEANS = ("alpha_entropy", "alpha_variation", "penalty")
"""Keys of `attention_means`."""


def word_means(
    outputs: DecoderOutput, log_lik: tf.Tensor, mask: tf.Tensor, words: tf.Tensor
) -> Means:
    """`nll` (nats per token, unsmoothed) and `beta`.

    Args:
        outputs: The decoder's.
        log_lik: float32 `[B, T]`, from `log_likelihoods`.
        mask: float32 `[B, T]`, 1.0 at words.
        words: Weight of both: words of the batch.
    """
    nll = -tf.reduce_sum(log_lik) / tf.reduce_sum(mask)
    return {"nll": (nll, words), "beta": (word_mean(outputs.beta, mask), words)}


def attention_means(
    outputs: DecoderOutput, mask: tf.Tensor, words: tf.Tensor, captions: tf.Tensor
) -> Means:
    """`alpha_entropy` (share of log L) over words; `alpha_variation` and `penalty` over captions.

    Args:
        outputs: The decoder's.
        mask: float32 `[B, T]`, 1.0 at words.
        words: Weight of means over words.
        captions: Weight of means over captions.
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
    same at every step.

    Args:
        alpha: float32 `[B, T, L]`.
        mask: float32 `[B, T]`, 1.0 at words.

    Returns:
        Scalar, the mean over captions.
    """
    words = tf.reduce_sum(mask, axis=-1, keepdims=True)
    weight = tf.math.divide_no_nan(mask, words)[..., tf.newaxis]
    mean = tf.reduce_sum(weight * alpha, axis=1, keepdims=True)
    variance = tf.reduce_sum(weight * tf.square(alpha - mean), axis=[1, 2])
    peakedness = tf.reduce_sum(weight * tf.square(alpha), axis=[1, 2])
    return tf.reduce_mean(tf.math.divide_no_nan(variance, peakedness))
