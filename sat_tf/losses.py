"""Losses of a captioner. Every one is a sum over a caption's words, one value a caption.

A token mean beside an unscaled penalty would make its lambda about T times larger.
"""

from __future__ import annotations

import tensorflow as tf


def word_log_likelihood(logits: tf.Tensor, targets: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """`log p(y_t | y_<t, a)`, nats, zero where the mask is.

    Args:
        logits: float32 `[..., T, K]`.
        targets: int32 `[..., T]`.
        mask: float32 `[..., T]`, 1.0 where there is a word.

    Returns:
        float32 `[..., T]`.
    """
    return -mask * tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits)


def smoothed_log_likelihood(
    log_lik: tf.Tensor, logits: tf.Tensor, mask: tf.Tensor, smoothing: float
) -> tf.Tensor:
    """Log-likelihood under labels smoothed uniformly over the vocabulary.

    `(1 - s) log p(y_t) + s mean_k log p(k)`

    Args:
        log_lik: float32 `[..., T]`, from `word_log_likelihood` of the same logits and mask.
        logits: float32 `[..., T, K]`.
        mask: float32 `[..., T]`.
        smoothing: s in [0, 1).

    Returns:
        float32 `[..., T]`.

    References:
        Szegedy et al. (2016), arXiv:1512.00567.
    """
    if smoothing == 0.0:
        return log_lik
    mean_log_prob = tf.reduce_mean(logits, axis=-1) - tf.reduce_logsumexp(logits, axis=-1)
    return (1.0 - smoothing) * log_lik + smoothing * mask * mean_log_prob


def doubly_stochastic_penalty(alpha: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """`sum_i (1 - sum_t alpha[t,i])^2` for each caption (eq. 14, without its lambda).

    Args:
        alpha: float32 `[B, T, L]`.
        mask: float32 `[B, T]`; padded steps do not count.

    Returns:
        float32 `[B]`.

    References:
        Xu et al. (2015), Sec. 4.2.1, eq. 14, arXiv:1502.03044.
    """
    attended = tf.einsum("btl,bt->bl", alpha, mask)
    return tf.reduce_sum(tf.square(1.0 - attended), axis=-1)
