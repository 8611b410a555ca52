"""Random decoders and outputs of theirs for a batch of captions, and the losses in NumPy."""

import numpy as np
import tensorflow as tf

from sat_tf.layers.decoder import DecoderOutput, RNNDecoder
from sat_tf.objectives.estimators import MovingAverageBaseline
from sat_tf.objectives.hard import HardObjective

B, T, L, K = 3, 4, 5, 7
TARGETS = np.array([[4, 5, 6, 2], [6, 2, 0, 0], [5, 4, 2, 0]], np.int32)
MASK = (TARGETS != 0).astype(np.float32)
DRAWN = np.array([False, True, False])  # Which captions take the expectation.


def log_softmax(x):
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def small_decoder(words=K, attends=True):
    """A decoder of random weights over annotations of two features, with a state of five."""
    decoder = RNNDecoder(words, embedding_dim=3, attention_dim=4, hidden_dim=5, attends=attends)
    decoder.build((None, None, 2))
    rng = np.random.default_rng(3)
    decoder.set_weights([rng.normal(size=w.shape) for w in decoder.weights])
    return decoder


def random_taught(seed=0):
    rng = np.random.default_rng(seed)
    shapes = ([B, T, K], [B, T, L], [B, T], [B, T])
    logits, scores, beta, log_prob = (rng.normal(size=s).astype(np.float32) for s in shapes)
    log_prob = np.where(DRAWN[:, None], 0.0, log_prob).astype(np.float32)
    return DecoderOutput(*map(tf.constant, (logits, scores, beta, log_prob)))


def word_log_prob(taught, targets=TARGETS):
    log_prob = log_softmax(taught.logits.numpy())
    picked = np.take_along_axis(log_prob, targets[..., None], -1)[..., 0]
    return picked * (targets != 0)


def entropy(taught):
    log_alpha = log_softmax(taught.alignment_scores.numpy())
    return -(np.exp(log_alpha) * log_alpha).sum(-1)


def warm(*returns):
    baseline = MovingAverageBaseline()
    for value in returns:
        baseline.update(value)
    return baseline


def terms_of(objective, taught, targets=TARGETS, baseline=None, **given):
    """The terms of either objective; in hard attention some captions take the expectation."""
    if isinstance(objective, HardObjective):
        return objective.terms(taught, targets, tf.constant(DRAWN), baseline, **given)
    return objective.terms(taught, targets, **given)


class Prescribed:
    """Replaces the multinoulli and draws given places, one a row at each step."""

    def __init__(self, paths):
        self.left = list(np.transpose(paths))

    def __call__(self, scores):
        self.log_alpha = tf.nn.log_softmax(scores)
        return self

    def sample(self, seed=None):
        return tf.one_hot(self.left.pop(0), self.log_alpha.shape[-1])

    def log_prob(self, drawn):
        return tf.reduce_sum(drawn * self.log_alpha, axis=-1)
