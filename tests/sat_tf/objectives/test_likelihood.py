"""Log-likelihoods, soft labels, penalty, supervision and losses of given captions, by hand."""

import numpy as np
import pytest
import tensorflow as tf

from sat_tf.config import AttentionConfig
from sat_tf.objectives import likelihood as losses
from sat_tf.objectives import make_objective
from sat_tf.objectives.estimators import MovingAverageBaseline, make_baseline
from sat_tf.objectives.likelihood import SoftLabels, alpha_variation, soft_labels
from tests.sat_tf.objectives.decoder_outputs import (
    DRAWN,
    MASK,
    TARGETS,
    B,
    K,
    L,
    T,
    entropy,
    log_softmax,
    random_taught,
    small_decoder,
    terms_of,
    warm,
    word_log_prob,
)

V = 6
LENGTHS = np.array([4, 2, 1])


@pytest.fixture
def batch():
    rng = np.random.default_rng(0)
    return {
        "logits": rng.normal(size=[B, T, V]).astype(np.float32),
        "targets": rng.integers(0, V, [B, T]).astype(np.int32),
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
    words, shares = rng.integers(0, V, [B, T, 2]), rng.dirichlet(np.ones(3), [B, T])[..., :2]
    taught = np.full([B, T, V], (1 - shares.sum(-1, keepdims=True)) / V)
    for j in range(2):
        taught += shares[..., j, None] * np.eye(V)[words[..., j]]
    smooth = 0.9 * np.eye(V)[batch["targets"]] + 0.1 / V
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


def test_the_soft_loss_is_equation_14():
    taught = random_taught()
    terms = make_objective(AttentionConfig("soft", penalty_weight=0.7)).terms(taught, TARGETS)
    alpha = np.exp(log_softmax(taught.alignment_scores.numpy())) * MASK[..., None]
    expected = np.mean(-word_log_prob(taught).sum(-1) + 0.7 * ((1 - alpha.sum(1)) ** 2).sum(-1))
    np.testing.assert_allclose(terms.loss, expected, rtol=1e-5)
    nll = -word_log_prob(taught).sum() / MASK.sum()
    np.testing.assert_allclose(terms.means["nll"], (nll, MASK.sum()), rtol=1e-5)
    share = (entropy(taught) * MASK).sum() / MASK.sum() / np.log(L)
    np.testing.assert_allclose(terms.means["alpha_entropy"], (share, MASK.sum()), rtol=1e-5)


def test_each_sample_of_hard_attention_learns_the_same_predictions():
    taught, rng = random_taught(), np.random.default_rng(5)
    words = tf.constant(rng.integers(0, K, [B, TARGETS.shape[1], 2]), tf.int32)
    predicted = SoftLabels(words, tf.fill(words.shape, 0.25))
    attention = AttentionConfig("hard", preset="vimco", samples=3)
    objective = make_objective(attention, distillation_weight=0.6)
    thrice = type(taught)(*(part if part is None else tf.repeat(part, 3, 0) for part in taught))
    expectation = tf.constant([True] * B)
    loss = objective.terms(thrice, TARGETS, expectation, predicted=predicted).loss
    single = make_objective(AttentionConfig("none"), distillation_weight=0.6)
    expected = single.terms(taught, TARGETS, predicted=predicted).loss
    np.testing.assert_allclose(loss, expected, rtol=1e-5)


CASES = [("soft", {}), ("none", {}), ("hard", {}), ("hard", {"preset": "arctic"})]
CASES += [("hard", {"preset": "vimco", "samples": 2})]


@pytest.mark.parametrize(("kind", "options"), CASES)
def test_padding_adds_nothing_to_the_loss_nor_to_any_gradient(kind, options):
    decoder = small_decoder(attends=kind != "none")
    annotations = np.random.default_rng(4).normal(size=[B, L, 2]).astype(np.float32)
    objective = make_objective(AttentionConfig(kind, **options), label_smoothing=0.1)

    def run(words, targets):
        with tf.GradientTape() as tape:
            taught = decoder(
                annotations,
                words,
                selection="sample" if kind == "hard" else "expectation",
                seed=tf.constant([1, 2]),
                use_expectation=tf.constant(DRAWN) if kind == "hard" else None,
                samples=objective.attention.estimator.samples if kind == "hard" else 1,
            )
            terms = terms_of(objective, taught, targets, baseline)
        found = tape.gradient(terms.loss, decoder.trainable_variables)
        return terms.means, [tf.convert_to_tensor(g) for g in found]

    baseline = make_baseline(objective.attention)
    if isinstance(baseline, MovingAverageBaseline):
        baseline.update(-5.0)
    words = np.pad(TARGETS[:, :-1], [(0, 0), (1, 0)], constant_values=1)
    logs, found = run(words, TARGETS)
    more_logs, more = run(np.pad(words, [(0, 0), (0, 3)]), np.pad(TARGETS, [(0, 0), (0, 3)]))
    for name in logs:
        np.testing.assert_allclose(more_logs[name], logs[name], rtol=1e-4, atol=1e-6, err_msg=name)
    for variable, one, other in zip(decoder.trainable_variables, found, more, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-3, atol=1e-5, err_msg=variable.path)


@pytest.mark.parametrize("kind", ["soft", "hard"])
@pytest.mark.parametrize(
    ("shares", "says"),
    [
        ({"label_smoothing": 1.0}, r"`label_smoothing`: expected a number in \[0, 1\), got 1.0"),
        ({"label_smoothing": "0.1"}, "`label_smoothing`: expected float, got '0.1'"),
        ({"distillation_weight": 1.5}, r"`distillation_weight`: expected a number in \[0, 1\]"),
    ],
)
def test_a_share_out_of_its_range_is_an_error(kind, shares, says):
    with pytest.raises(ValueError, match=says):
        make_objective(AttentionConfig(kind), **shares)


def test_alpha_variation_is_nought_for_a_constant_map_and_sees_a_moving_one():
    still = np.tile(np.random.default_rng(0).dirichlet(np.ones(L), [B, 1]), [1, T, 1])
    still = tf.constant(still, tf.float32)
    np.testing.assert_allclose(alpha_variation(still, MASK), 0.0, atol=1e-6)
    moving = tf.tile(tf.eye(L)[tf.newaxis, :T], [B, 1, 1])
    # One location a word, none twice: 1 - 1 / words.
    np.testing.assert_allclose(
        alpha_variation(moving, MASK), np.mean(1 - 1 / MASK.sum(-1)), rtol=1e-5
    )
