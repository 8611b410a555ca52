"""Inputs and outputs of the decoder's steps.

Shapes: B batch, T words, L locations, D annotation width, N LSTM width, m embedding width,
A attention width, K vocabulary.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf


class AttentionMemory(NamedTuple):
    """Tensors of an image that every step of attention reads."""

    annotations: tf.Tensor
    """`[B, L, D]`."""
    keys: tf.Tensor | None
    """`[B, L, A]`; None without attention."""
    projected: tf.Tensor | None = None
    """`[B, 4 N]`, without attention: the one annotation's share of the gates, before beta."""
    pre_projected: bool = False
    """True if `annotations` are `[B, L, 4 N + m]`, from `RNNDecoder.project`."""


class AttentionOutput(NamedTuple):
    """Result of attention at one step, or of all steps (time second)."""

    context: tf.Tensor
    """`[B, D]`, beta phi(a, alpha); `[B, 4 N + m]` if the annotations are pre-projected."""
    alignment_scores: tf.Tensor
    """float32 `[B, L]`."""
    beta: tf.Tensor
    """float32 `[B]`; ones without a gate."""
    log_prob: tf.Tensor
    """float32 `[B]`, of the location drawn, nats; zero if none was drawn."""


class DecoderOutput(NamedTuple):
    """Teacher-forced output for all words of a caption.

    With M samples per caption there are B M rows, those of a caption side by side.
    """

    logits: tf.Tensor
    """float32 `[B, T, K]`."""
    alignment_scores: tf.Tensor
    """float32 `[B, T, L]`."""
    beta: tf.Tensor
    """float32 `[B, T]`."""
    log_prob: tf.Tensor
    """float32 `[B, T]`, of the locations drawn, nats; zero if none was drawn."""
    hidden: tf.Tensor | None = None
    """float32 `[B, T, N]`, h[t-1], from which each location was chosen."""
