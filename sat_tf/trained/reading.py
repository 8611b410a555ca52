"""Reads a sentence with the model, by the steps of its search."""

from __future__ import annotations

import tensorflow as tf

from sat_tf.captioner import Captioner
from sat_tf.layers.lstm import State, unroll
from sat_tf.vocabulary import START


def read_tokens(
    captioner: Captioner, annotations: tf.Tensor, tokens: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    """Reads a caption of one image by the steps of its search, and what each map was worth.

    Args:
        captioner: The captioner.
        annotations: `[1, L, D]`.
        tokens: int32 `[T]`, ids without <start>.

    Returns:
        Log-probability of each token, nats; the same with a uniform map at its step alone, from
        the state of the real maps; alpha; beta: `[T]`, `[T]`, `[T, L]`, `[T]`.
    """
    beam = captioner.config.search.beam
    step, state, parts = captioner.search_step(annotations, captioner.selection, beam=beam)
    uniform, *_ = captioner.search_step(annotations, "uniform", beam=beam)
    words = tf.concat([[START], tokens[:-1]], axis=0)

    def read(word, state):
        log_probs, after, attention = step(word[tf.newaxis], state, parts)
        return (log_probs, *attention, state[0]), after

    shapes = [captioner.vocabulary_size], [parts["annotations"].shape[1]], []
    hidden = tf.TensorSpec([None, captioner.config.decoder.hidden_dim], state[0].hidden.dtype)
    outputs = (*(tf.TensorSpec([None, *shape]) for shape in shapes), State(hidden, hidden))
    found, _ = unroll(read, state, words, outputs)
    log_probs, alpha, beta, before = tf.nest.map_structure(lambda part: part[:, 0], found)
    even, *_ = uniform(words, (before, ()), parts)
    own, even = (tf.gather(each, tokens, axis=1, batch_dims=1) for each in (log_probs, even))
    return own, even, alpha, beta
