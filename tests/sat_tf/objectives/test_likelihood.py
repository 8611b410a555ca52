"""Log-likelihoods, soft labels, penalty and supervision against plain NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from sat_tf.config import AttentionConfig
from sat_tf.objectives import likelihood as losses
from sat_tf.objectives import make_objective
from sat_tf.objectives.likelihood import SoftLabels, soft_labels
from tests.sat_tf.objectives.decoder_outputs import (
    TARGETS,
    B,
    L,
    T,
    log_softmax,
    random_taught,
    terms_of,
    warm,
)

K = 6
LENGTHS = np.array([4, 2, 1])


@pytest.fixture
def batch():
    rng = np.random.default_rng(0)
    return {
        "logits": rng.normal(size=[B, T, K]).astype(np.float32),
        "targets": rng.integers(0, K, [B, T]).astype(np.int32),
        "mask": (np.arange(T) < LENGTHS[:, None]).astype(np.float32),
        "alpha": rng.dirichlet(np.ones(L), [B, T]).astype(np.float32),
    }


def nll(batch):
    return losses.word_log_likelihood(batch["logits"], batch["targets"], batch["mask"])


def test_word_log_likelihood_is_the_log_softmax_of_the_target(batch):
    expected = np.take_along_axis(log_softmax(batch["logits"]), batch["targets"][..., None], -1)
    expected = expected[..., 0] * batch["mask"]
    np.testing.assert_allclose(nll(batch), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(tf.function(nll)(batch), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("weight", [0.0, 0.4, 1.0])
def test_distilled_labels_are_the_cross_entropy_with_the_mixture(batch, weight):
    rng = np.random.default_rng(1)
    words, shares = rng.integers(0, K, [B, T, 2]), rng.dirichlet(np.ones(3), [B, T])[..., :2]
    taught = np.full([B, T, K], (1 - shares.sum(-1, keepdims=True)) / K)
    for j in range(2):
        taught += shares[..., j, None] * np.eye(K)[words[..., j]]
    smooth = 0.9 * np.eye(K)[batch["targets"]] + 0.1 / K
    mixture = (1 - weight) * smooth + weight * taught
    expected = (mixture * log_softmax(batch["logits"])).sum(-1) * batch["mask"]
    predicted = SoftLabels(tf.constant(words, tf.int32), tf.constant(shares, tf.float32))
    labels = soft_labels(batch["targets"], 0.1, predicted, weight)
    values = (batch[name] for name in ("logits", "targets", "mask"))
    found = losses.log_likelihoods(*values, labels)
    np.testing.assert_allclose(found.soft, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(found.exact, nll(batch))


def test_doubly_stochastic_penalty_is_equation_14(batch):
    expected = np.zeros(B)
    for b in range(B):
        for i in range(L):
            attended = sum(batch["alpha"][b, t, i] for t in range(LENGTHS[b]))
            expected[b] += (1.0 - attended) ** 2
    penalty = losses.doubly_stochastic_penalty(batch["alpha"], batch["mask"])
    np.testing.assert_allclose(penalty, expected, rtol=1e-5)


def random_maps():
    """Maps at two words of the first caption and one of the second, none elsewhere."""
    maps = np.zeros([B, TARGETS.shape[1], L], np.float16)
    maps[0, 0, :2], maps[0, 1, 1], maps[1, 1, 2] = 0.5, 1.0, 1.0
    return maps


@pytest.mark.parametrize("kind", ["soft", "hard"])
def test_the_loss_grows_by_the_weighted_cross_entropy_of_a_caption(kind):
    taught, maps = random_taught(), random_maps()
    objective = make_objective(AttentionConfig(kind, supervision_weight=0.3))
    plain = terms_of(make_objective(AttentionConfig(kind)), taught, baseline=warm(-1.0))
    terms = terms_of(objective, taught, baseline=warm(-1.0), maps=maps)
    entropy = -(maps * log_softmax(taught.alignment_scores.numpy())).sum()
    np.testing.assert_allclose(terms.loss - plain.loss, 0.3 * entropy / B, rtol=1e-4)
    np.testing.assert_allclose(terms.means["supervision"], (entropy / 3, 3), rtol=1e-4)
    assert set(terms.means) == set(objective.log_names)


def test_a_captioner_without_attention_cannot_be_supervised():
    with pytest.raises(ValueError, match="supervision_weight.*0 without attention"):
        AttentionConfig("none", supervision_weight=1.0)
