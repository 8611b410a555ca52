"""Consensus of captions: minimum Bayes risk by the similarity of their n-grams."""

from __future__ import annotations

import tensorflow as tf

ORDERS = 4
SIGMA = 6.0
"""Width of the Gaussian over differences of length, words: CIDEr-D's."""


def expected_similarity(
    token_ids: tf.Tensor, lengths: tf.Tensor, scores: tf.Tensor, sharpness: float
) -> tf.Tensor:
    """Computes how similar each caption of a beam is expected to be to a caption of its image.

        consensus_i = sum_j w_j similarity(y_i, y_j),  w = softmax(sharpness * scores)

    The similarity is that of CIDEr-D without tf-idf: the mean over n-grams of n = 1..4 words of
    `<min(c_i, c_j), c_j> / |c_i| |c_j|`, c being counts, times a Gaussian over the difference of
    lengths with a width of 6 words. `<end>` is not a word.

    Args:
        token_ids: int32 `[B, K, T]`, words, then anything.
        lengths: int32 `[B, K]`, words.
        scores: float32 `[B, K]`; very low for a caption that does not exist.
        sharpness: 0 gives every caption the same weight.

    Returns:
        float32 `[B, K]`, 0 to 1.

    References:
        Kumar & Byrne (2004), "Minimum Bayes-Risk Decoding for Statistical Machine Translation";
        Vedantam et al. (2015), arXiv:1411.5726, for the similarity.
    """
    # Equality of all words of an image with all others takes [K, T, K, T]: one image at a time.
    return tf.map_fn(
        lambda image: tf.linalg.matvec(_similarity(*image[:2]), image[2]),
        (token_ids, lengths, tf.nn.softmax(sharpness * scores)),
        fn_output_signature=tf.TensorSpec(scores.shape[1:], tf.float32),
    )


def _similarity(tokens: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """Compares every caption of an image, rows of `[K, T]`, with every other: `[K, K]`."""
    is_word = tf.sequence_mask(lengths, tokens.shape[1])
    word = tf.where(is_word, tokens, -1)
    equal = (word[:, :, None, None] == word) & is_word[:, :, None, None]
    same, total = equal, 0.0
    for n in range(ORDERS):
        if n:  # an n-gram is equal if its first n - 1 words are, and the n-th
            same = same[:, :-1, :, :-1] & equal[:, n:, :, n:]
        total += _overlap(tf.reduce_sum(tf.cast(same, tf.float32), axis=3))
    apart = tf.cast(lengths[:, None] - lengths, tf.float32)
    return total / ORDERS * tf.exp(-(apart**2) / (2 * SIGMA**2))


def _overlap(counts: tf.Tensor) -> tf.Tensor:
    """Computes `<min(c_i, c_j), c_j> / |c_i| |c_j|`, `[K, K]`.

    Args:
        counts: `[K, T, K]`, how often the n-gram that starts at word t of caption i is in j.
    """
    own = tf.linalg.diag_part(tf.transpose(counts, [1, 0, 2]))  # [T, K]: in its own caption
    own = tf.transpose(own)
    norms = tf.sqrt(tf.reduce_sum(own, axis=1))  # an n-gram found c times adds c at each of them
    terms = tf.minimum(own[:, :, None], counts) * counts
    shared = tf.reduce_sum(tf.math.divide_no_nan(terms, own[:, :, None]), axis=1)
    return tf.math.divide_no_nan(shared, norms[:, None] * norms)
