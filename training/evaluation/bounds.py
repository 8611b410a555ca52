"""Cost of the approximations of attention: bounds on log p(y|a), and the NWGM gap (Sec. 4.2).

Shapes: B captions, T words, L locations, K vocabulary, M samples per caption.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from sat_tf.inference.captioning import TrainedCaptioner
from sat_tf.layers.decoder import RNNDecoder
from sat_tf.layers.lstm import State, unroll
from sat_tf.objectives.estimators import by_sample, importance_weighted_bound
from sat_tf.objectives.likelihood import word_log_likelihood, word_mask
from training.data.batches import pad_tokens
from training.data.examples import Split
from training.data.image_loader import InputSource
from training.evaluation.reading import Reading

BOUND_IMAGES = 100
"""Images for bounds by default, one caption each."""
SAMPLES = 50
"""Sequences of locations drawn per caption."""
GROUPS = (1, 5, SAMPLES)
_QUICK_IMAGES, _QUICK_SAMPLES = 16, 5
_CAPTIONS = 4  # per batch of bounds: each has logits over the vocabulary per location and sample


class Bounds:
    """Bounds and NWGM gap on a fixed sample of captions: the first caption of each image.

    Args:
        reading: Captioner with attention, and captions of a split.
        images: Maximum number of images.
        samples: M; a multiple of each smaller M reported.
    """

    def __init__(self, reading: Reading, images: int, samples: int = SAMPLES) -> None:
        self._reading, self._samples, table = reading, samples, reading.cut_table
        _, first = np.unique(table.image_index[reading.rows], return_index=True)
        rows = reading.rows[first[:images]]
        self._images = table.image_index[rows]
        self._tokens = [table.tokens[row] for row in rows]
        self._compiled = tf.function(self._measure, autograph=False, reduce_retracing=True)

    def __len__(self) -> int:
        """Number of images, one caption each."""
        return len(self._tokens)

    def measure(self) -> dict[str, float]:
        """Averages over the captions; the draws are the same every time.

        Returns:
            `elbo` and `importance_weighted_bound_M` for M = 5 and, given as many samples, 50, in
            nats per caption, all from the same samples in groups of M; `nwgm_gap` and
            `forward_gap`, nats per word (`nwgm_gaps`).
        """
        sums = 0.0
        for number, start in enumerate(range(0, len(self), _CAPTIONS)):
            part = slice(start, start + _CAPTIONS)
            annotations = self._reading.annotations(self._images[part])
            tokens = tf.constant(pad_tokens(self._tokens[part]))
            found = self._compiled(annotations, tokens, tf.constant([0, number]))
            sums = sums + found.numpy().astype(np.float64)
        words = sum(len(tokens) - 1 for tokens in self._tokens)
        bounds = (f"importance_weighted_bound_{m}" for m in GROUPS if 1 < m <= self._samples)
        names = ("elbo", *bounds, "nwgm_gap", "forward_gap")
        return {
            name: float(total) / (words if name.endswith("_gap") else len(self))
            for name, total in zip(names, sums, strict=True)
        }

    def _measure(self, annotations: tf.Tensor, tokens: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Sums the bounds and gaps over a batch."""
        decoder = self._reading.captioner.model.decoder
        log_lik = sampled_log_likelihood(decoder, annotations, tokens, self._samples, seed)
        steps = tf.shape(log_lik)[2]
        bounds = []
        for size in (m for m in GROUPS if m <= self._samples):
            # Groups of M samples lie along the batch axis, like captions.
            groups = tf.reshape(log_lik, [size, -1, steps])
            share = self._samples // size
            bounds.append(tf.reduce_sum(importance_weighted_bound(groups)) / share)
        gaps = nwgm_gaps(decoder, annotations, tokens[:, :-1])
        mask = word_mask(tokens[:, 1:])
        return tf.stack([*bounds, *(tf.reduce_sum(gap * mask) for gap in gaps)])


def quick_bounds(
    captioner: TrainedCaptioner, split: Split, source: InputSource
) -> Callable[[], dict[str, float]]:
    """Returns a function that measures the bounds on few images, in seconds."""
    return Bounds(Reading(captioner, split, source), _QUICK_IMAGES, _QUICK_SAMPLES).measure


def sampled_log_likelihood(
    decoder: RNNDecoder, annotations: tf.Tensor, tokens: tf.Tensor, samples: int, seed: tf.Tensor
) -> tf.Tensor:
    """`log p(y_t | y_<t, s_m, a)` for M sequences of locations drawn from p(s|a).

    Args:
        decoder: One with attention.
        annotations: `[B, L, D]`.
        tokens: int32 `[B, T + 1]`, <start> ... <end>, padded with 0.
        samples: M.
        seed: int32 `[2]`.

    Returns:
        float32 `[M, B, T]`, nats, zero on padding.
    """
    words, targets = tokens[:, :-1], tf.repeat(tokens[:, 1:], samples, axis=0)
    outputs = decoder(annotations, words, selection="sample", seed=seed, samples=samples)
    log_lik = word_log_likelihood(outputs.logits, targets, word_mask(targets))
    return by_sample(log_lik, samples)


class NWGMGaps(NamedTuple):
    """Divergences from the expectation over locations, nats per word, float32 `[B, T]`."""

    nwgm: tf.Tensor
    """`KL(sum_i alpha_i softmax(n_i) || softmax(sum_i alpha_i n_i))`."""
    forward: tf.Tensor
    """`KL(sum_i alpha_i softmax(n_i) || p)`, p of the forward pass with `E[z]`."""


def nwgm_gaps(decoder: RNNDecoder, annotations: tf.Tensor, words: tf.Tensor) -> NWGMGaps:
    """Divergence of soft attention from the expectation that it approximates, at every word.

    `n_i` are the logits with location i as the context, both in the gates of the LSTM and in the
    deep output. The state before each word is that of the forward pass with `E[z]`.

    Args:
        decoder: One with attention.
        annotations: `[B, L, D]`.
        words: int32 `[B, T]`, from <start>, the word before each prediction.

    Returns:
        `NWGMGaps`; zero if all locations predict the same word.

    References:
        Xu et al. (2015), Sec. 4.2, arXiv:1502.03044; Baldi & Sadowski (2014).
    """
    attended, first = decoder.begin(annotations)
    locations, annotation_dim = attended.annotations.shape[1:]

    def read(words: tf.Tensor, contexts: tf.Tensor, state: State) -> tuple[tf.Tensor, State]:
        """Reads previous words with given contexts; returns logits and the next state."""
        embeddings = decoder.embedding(words)
        gates = decoder.cell.project_words(embeddings), decoder.cell.project_context(contexts)
        after = decoder.cell.step(*gates, state)
        return decoder.deep_output(after.hidden, contexts, embeddings), after

    def step(words_t: tf.Tensor, state: State) -> tuple[NWGMGaps, State]:
        attention = decoder.attend(attended, state, "expectation")
        logits, after = read(words_t, attention.context, state)
        # Each location as the context, in a batch of B L rows.
        beta = tf.cast(attention.beta[:, tf.newaxis, tf.newaxis], attended.annotations.dtype)
        contexts = tf.reshape(beta * attended.annotations, [-1, annotation_dim])
        repeated, *states = (tf.repeat(rows, locations, axis=0) for rows in (words_t, *state))
        by_location, _ = read(repeated, contexts, State(*states))
        by_location = tf.reshape(by_location, [-1, locations, decoder.vocabulary_size])
        log_alpha = tf.nn.log_softmax(attention.alignment_scores)[..., tf.newaxis]
        expected = tf.reduce_logsumexp(log_alpha + tf.nn.log_softmax(by_location), axis=1)
        geometric = tf.reduce_sum(tf.exp(log_alpha) * by_location, axis=1)
        gaps = NWGMGaps(_divergence(expected, geometric), _divergence(expected, logits))
        return gaps, after

    outputs = NWGMGaps(tf.TensorSpec([None], tf.float32), tf.TensorSpec([None], tf.float32))
    gaps, _ = unroll(step, first, tf.transpose(words), outputs)
    return NWGMGaps(*map(tf.transpose, gaps))


def _divergence(log_p: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """`KL(p || softmax(logits))`, p normalised: `[B, K] -> [B]`; clipped at 0 against rounding."""
    divergence = tf.reduce_sum(tf.exp(log_p) * (log_p - tf.nn.log_softmax(logits)), axis=-1)
    return tf.maximum(divergence, 0.0)
