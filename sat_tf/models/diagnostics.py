"""What attention's approximations cost: bounds on log p(y|a), and the NWGM gap of Sec. 4.2.

Shapes: B captions, T words, L locations, K vocabulary, M samples a caption.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from sat_tf.layers.decoder import State
from sat_tf.layers.rnn_decoder import Look, Picture, RNNDecoder
from sat_tf.layers.unroll import unroll
from sat_tf.losses import word_log_likelihood
from sat_tf.models.objective import word_mask


def sampled_log_likelihood(
    decoder: RNNDecoder, annotations: tf.Tensor, tokens: tf.Tensor, samples: int, seed: tf.Tensor
) -> tf.Tensor:
    """`log p(y_t | y_<t, s_m, a)` for M sequences of locations drawn from p(s|a).

    Args:
        decoder: It attends.
        annotations: `[B, L, D]`.
        tokens: int32 `[B, T + 1]`, <start> ... <end>, padded with 0.
        samples: M.
        seed: int32 `[2]`.

    Returns:
        float32 `[M, B, T]`, nats, zero on padding.
    """
    words, targets = tokens[:, :-1], tf.repeat(tokens[:, 1:], samples, axis=0)
    taught = decoder(annotations, words, selection="sample", seed=seed, samples=samples)
    log_lik = word_log_likelihood(taught.logits, targets, word_mask(targets))
    return tf.transpose(tf.reshape(log_lik, [-1, samples, tf.shape(words)[1]]), [1, 0, 2])


class NWGMGaps(NamedTuple):
    """Divergences from the expectation over locations, nats a word, float32 `[B, T]`."""

    nwgm: tf.Tensor
    """`KL(sum_i alpha_i softmax(n_i) || softmax(sum_i alpha_i n_i))`."""
    forward: tf.Tensor
    """`KL(sum_i alpha_i softmax(n_i) || p)`, p of the forward pass with `E[z]`."""


def nwgm_gaps(decoder: RNNDecoder, annotations: tf.Tensor, words: tf.Tensor) -> NWGMGaps:
    """How far soft attention is from the expectation it stands for, at every word.

    `n_i` are the logits with the context set to location i: through the gates of the LSTM and the
    deep output alike. The state before each word is that of the forward pass with `E[z]`.

    Args:
        decoder: It attends.
        annotations: `[B, L, D]`.
        words: int32 `[B, T]`, <start> and the words before each prediction.

    Returns:
        `NWGMGaps`; zero where all locations lead to the same word.

    References:
        Xu et al. (2015), Sec. 4.2, arXiv:1502.03044; Baldi & Sadowski (2014).
    """
    picture, first = decoder.look_once(annotations)

    def step(words_t: tf.Tensor, state: State) -> tuple[NWGMGaps, State]:
        look = decoder.attend(picture, state, "expectation")
        logits, after = _read(decoder, words_t, look.context, state)
        by_location = _logits_by_location(decoder, picture, words_t, state, look)
        log_alpha = tf.nn.log_softmax(look.alignment_scores)[..., tf.newaxis]
        expected = tf.reduce_logsumexp(log_alpha + tf.nn.log_softmax(by_location), axis=1)
        geometric = tf.reduce_sum(tf.exp(log_alpha) * by_location, axis=1)
        gaps = NWGMGaps(_divergence(expected, geometric), _divergence(expected, logits))
        return gaps, after

    outputs = NWGMGaps(tf.TensorSpec([None], tf.float32), tf.TensorSpec([None], tf.float32))
    gaps, _ = unroll(step, first, tf.transpose(words), outputs)
    return NWGMGaps(*map(tf.transpose, gaps))


def _logits_by_location(
    decoder: RNNDecoder, picture: Picture, words: tf.Tensor, state: State, look: Look
) -> tf.Tensor:
    """`[B, L, K]`, each with its location in place of the context."""
    annotations = picture.annotations
    locations = annotations.shape[1]
    beta = tf.cast(look.beta[:, tf.newaxis, tf.newaxis], annotations.dtype)
    contexts = tf.reshape(beta * annotations, [-1, annotations.shape[-1]])
    words, hidden, memory = (tf.repeat(rows, locations, axis=0) for rows in (words, *state))
    logits, _ = _read(decoder, words, contexts, State(hidden, memory))
    return tf.reshape(logits, [-1, locations, decoder.vocabulary_size])


def _read(
    decoder: RNNDecoder, words: tf.Tensor, contexts: tf.Tensor, state: State
) -> tuple[tf.Tensor, State]:
    """Logits after previous words with given contexts, a row each, and the next state."""
    embeddings = decoder.embedding(words)
    gates = decoder.cell.project_words(embeddings), decoder.cell.project_context(contexts)
    after = decoder.cell(*gates, state)
    return decoder.deep_output(after.hidden, contexts, embeddings), after


def _divergence(log_p: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """`KL(p || softmax(logits))`, p normalised: `[B, K] -> [B]`; never below zero by rounding."""
    divergence = tf.reduce_sum(tf.exp(log_p) * (log_p - tf.nn.log_softmax(logits)), axis=-1)
    return tf.maximum(divergence, 0.0)
