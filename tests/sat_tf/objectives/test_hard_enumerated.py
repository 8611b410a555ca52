"""Hard attention proved on the real decoder: every path of L = 3 locations over T = 2 words.

The layers compute in float32, so figures agree to some 1e-4 of the largest.
"""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from sat_tf.config import AttentionConfig
from sat_tf.layers.decoder import DecoderOutput
from sat_tf.objectives import make_objective
from sat_tf.objectives.estimators import BOUNDS, MovingAverageBaseline, make_baseline
from sat_tf.objectives.likelihood import word_log_likelihood, word_mask
from tests.sat_tf.objectives.decoder_outputs import Prescribed, small_decoder

PLACES, STEPS = 3, 2
WORDS, CAPTION = np.array([[1, 5]], np.int32), np.array([[5, 2]], np.int32)
PATHS = list(itertools.product(range(PLACES), repeat=STEPS))
UNBIASED = {"reward_weight": 1.0, "entropy_weight": 0.0, "expectation_probability": 0.0}


@pytest.fixture
def decoder():
    return small_decoder()


def every_path(monkeypatch, decoder):
    """One caption read along all its paths as if they were its samples, eagerly."""
    annotations = np.random.default_rng(4).normal(size=[1, PLACES, 2]).astype(np.float32)
    fake = Prescribed(PATHS)
    monkeypatch.setattr("sat_tf.layers.attention.multinoulli", fake)
    seed, samples = tf.constant([0, 0]), len(PATHS)
    taught = decoder(annotations, WORDS, selection="sample", seed=seed, samples=samples)
    assert not fake.left
    return taught


def log_probs(taught):
    """log p(s_t) and log p(y_t) of every path, `[9, T]`."""
    rows = np.repeat(CAPTION, len(PATHS), axis=0)
    return taught.log_prob, word_log_likelihood(taught.logits, rows, word_mask(rows))


def unordered(samples):
    """Every tuple of M paths once whatever its order, and its number of orders."""
    tuples = np.array(list(itertools.combinations_with_replacement(range(len(PATHS)), samples)))
    return tuples, np.array([len(set(itertools.permutations(t))) for t in tuples.tolist()])


def gradients(monkeypatch, decoder, objective, baseline):
    """Of the expected loss and of the exact bound, over every tuple of M paths."""
    tuples, orders = unordered(objective.samples)
    switch = tf.constant([False])
    with tf.GradientTape(persistent=True) as tape:
        taught = every_path(monkeypatch, decoder)
        log_prob, log_lik = log_probs(taught)
        of_path = tf.exp(tf.reduce_sum(log_prob, axis=-1))
        likely = orders * tf.reduce_prod(tf.gather(of_path, tuples), axis=-1)
        # Every tuple as a caption of its own: [M, tuples, T].
        made = tf.transpose(tf.gather(log_lik, tuples), [1, 0, 2])
        exact = tf.reduce_sum(likely * BOUNDS[objective.estimator(1.0).bound](made))
        losses = [
            objective.terms(
                DecoderOutput(*(tf.gather(x, paths) for x in taught)), CAPTION, switch, baseline
            )
            for paths in tuples
        ]
        expected = tf.reduce_sum(tf.stop_gradient(likely) * tf.stack([t.loss for t in losses]))
    np.testing.assert_allclose(tf.reduce_sum(likely), 1.0, rtol=1e-5)
    variables = decoder.trainable_variables
    return (
        [tf.convert_to_tensor(g).numpy() for g in tape.gradient(value, variables)]
        for value in (expected, exact)
    )


def warm_baseline(objective):
    """One that has seen something."""
    baseline = make_baseline(objective.attention)
    if isinstance(baseline, MovingAverageBaseline):
        baseline.update(-3.0)
        baseline.update(-1.0)
    return baseline


SEVERAL = {"samples": 2, **UNBIASED}
CASES = {
    "paper, unbiased": {**UNBIASED},
    "no baseline, to go": {"baseline": "none", "reward_to_go": True, **UNBIASED},
    "two samples, moving average": SEVERAL,
    "rloo": {"preset": "rloo", "samples": 2},
    "rloo, whole": {"preset": "rloo", "samples": 2, "reward_to_go": False},
    "vimco": {"preset": "vimco", "samples": 2},
    "vimco, whole": {"preset": "vimco", "samples": 2, "reward_to_go": False},
    "weighted, no baseline": {"bound": "importance_weighted", "baseline": "none", **SEVERAL},
    "weighted, moving average": {"bound": "importance_weighted", **SEVERAL},
}


@pytest.mark.parametrize("case", CASES)
def test_hard_attention_has_the_exact_gradient_of_its_bound(monkeypatch, decoder, case):
    """`E[grad loss] = -grad E[bound]` over every tuple of paths (eq. 10-12)."""
    objective = make_objective(AttentionConfig("hard", **CASES[case]))
    baseline = warm_baseline(objective)
    expected, exact = gradients(monkeypatch, decoder, objective, baseline)
    for variable, got, wanted in zip(decoder.trainable_variables, expected, exact, strict=True):
        np.testing.assert_allclose(-got, wanted, rtol=1e-3, atol=1e-4, err_msg=variable.path)
    # Attention's four weights have something to learn here.
    taught = {id(v) for v in decoder.attention.trainable_variables}
    pairs = zip(decoder.trainable_variables, exact, strict=True)
    sizes = [np.abs(g).max() for v, g in pairs if id(v) in taught]
    assert len(sizes) == 4
    assert max(sizes) > 1e-2
