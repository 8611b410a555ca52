"""Terms of a captioner's loss, each a sum over the words of a caption.

A mean over words beside an unscaled penalty would make its lambda about T times larger.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from sat_tf.objectives.soft_labels import SoftLabels
from sat_tf.ops.likelihood_gradient import fast_log_likelihoods
from sat_tf.vocabulary import PAD


class LogLikelihoods(NamedTuple):
    """Log-likelihoods of the words of captions, nats."""

    exact: tf.Tensor
    """`log p(y_t | y_<t, a)`."""
    soft: tf.Tensor
    """The mean of `log p(k | y_<t, a)` over words k, by the soft labels."""


def word_mask(targets: tf.Tensor) -> tf.Tensor:
    """float32, 1.0 at words to predict, 0.0 on padding; the shape of `targets`."""
    return tf.cast(targets != PAD, tf.float32)


def word_mean(values: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Scalar: mean of `values` `[B, T]` where `mask` is 1."""
    return tf.reduce_sum(values * mask) / tf.reduce_sum(mask)


def word_log_likelihood(logits: tf.Tensor, targets: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """`log p(y_t | y_<t, a)`, nats, zero where the mask is.

    Args:
        logits: float32 `[..., T, K]`.
        targets: int32 `[..., T]`.
        mask: float32 `[..., T]`, 1.0 at words.

    Returns:
        float32 `[..., T]`.
    """
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
        float32 `[..., T]` each, zero where the mask is; differentiable once.
    """
    targets = tf.convert_to_tensor(targets)
    rows = tf.reshape(logits, [-1, tf.shape(logits)[-1]])
    if labels is not None:
        labels = tuple(tf.reshape(part, [-1, tf.shape(part)[-1]]) for part in labels)
    exact, soft = fast_log_likelihoods(rows, tf.reshape(targets, [-1]), labels)
    shape = tf.shape(targets)
    exact = mask * tf.reshape(exact, shape)
    return LogLikelihoods(exact, exact if labels is None else mask * tf.reshape(soft, shape))


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
