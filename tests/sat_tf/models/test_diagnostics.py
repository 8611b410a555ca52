"""The NWGM gap against the decoder made to look at one location, and sampled likelihoods."""

import numpy as np
import pytest
import tensorflow as tf

from tests.sat_tf.layers.decoder_numpy import SEED, B, K, L, T, make_batch, make_decoder, softmax
from training.evaluation.bounds import nwgm_gaps, sampled_log_likelihood


class LookAt:
    """Stands for the multinoulli: its mean before a time, and a location of ours at it."""

    def __init__(self, place, time):
        self.place, self.left = place, time

    def __call__(self, scores):
        self.alpha = tf.nn.softmax(scores)
        return self

    def sample(self, seed=None):
        self.left -= 1
        return self.alpha if self.left >= 0 else tf.one_hot([self.place] * B, L)

    def log_prob(self, drawn):
        return tf.zeros([B])


def divergence(p, q):
    return (p * (np.log(p) - np.log(q))).sum(-1)


@pytest.mark.parametrize("switches", [{}, {"gate": False}])
def test_the_gaps_are_those_of_the_decoder_looking_at_each_location(monkeypatch, switches):
    decoder = make_decoder(**switches)
    annotations, words = make_batch()
    gaps = tf.function(nwgm_gaps, autograph=False)(decoder, annotations, words)
    soft = decoder(annotations, words)
    every_alpha = softmax(soft.alignment_scores.numpy())
    for time in range(T):
        by_location = []
        for place in range(L):
            fake = LookAt(place, time)
            monkeypatch.setattr("sat_tf.layers.attention.multinoulli", fake)
            known = words[:, : time + 1]
            taught = decoder(annotations, known, selection="sample", seed=SEED)
            by_location.append(taught.logits[:, time].numpy())
        alpha = every_alpha[:, time]
        expected = np.einsum("bl,lbk->bk", alpha, softmax(np.stack(by_location)))
        forward = softmax(soft.logits[:, time].numpy())
        nwgm = softmax(np.einsum("bl,lbk->bk", alpha, by_location))
        for gap, other in zip(gaps, (nwgm, forward), strict=True):
            wanted = divergence(expected, other)
            assert wanted.min() > 3e-5
            np.testing.assert_allclose(gap[:, time], wanted, rtol=2e-2, atol=1e-5)


def test_sampled_likelihoods_are_those_of_the_words_under_each_sample():
    decoder = make_decoder()
    annotations, words = make_batch()
    tokens = np.concatenate([words, np.zeros([B, 1], np.int32)], axis=1)
    tokens[:, 1:] = np.where(tokens[:, 1:] == 0, 3, tokens[:, 1:])
    tokens[1, 3:] = 0
    found = sampled_log_likelihood(decoder, annotations, tokens, 4, SEED).numpy()
    taught = decoder(annotations, tokens[:, :-1], selection="sample", seed=SEED, samples=4)
    log_prob = np.log(softmax(taught.logits.numpy())).reshape(B, 4, T, K)
    for b, m, t in np.ndindex(B, 4, T):
        target = tokens[b, t + 1]
        wanted = log_prob[b, m, t, target] if target else 0.0
        np.testing.assert_allclose(found[m, b, t], wanted, rtol=1e-4)
    assert len(np.unique(found[:, 0].sum(-1))) > 1
