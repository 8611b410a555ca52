"""Losses of given captions: the soft loss by hand, names of the logs, padding."""

import numpy as np
import pytest
import tensorflow as tf

from sat_tf.config import AttentionConfig
from sat_tf.objectives import make_objective
from sat_tf.objectives.estimators import MovingAverageBaseline, make_baseline
from sat_tf.objectives.likelihood import (
    PREDICTED_SHARES,
    PREDICTED_WORDS,
    SoftLabels,
    alpha_variation,
    predictions,
)
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
    word_log_prob,
)


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


def test_smoothing_and_predictions_of_teachers_are_mixed_into_the_targets():
    taught, rng = random_taught(), np.random.default_rng(5)
    words = rng.integers(0, K, [B, TARGETS.shape[1], 2])
    shares = np.full(words.shape, 0.25, np.float16)
    batch = {PREDICTED_WORDS: tf.constant(words), PREDICTED_SHARES: tf.constant(shares)}
    objective = make_objective(AttentionConfig("none"), 0.2, distillation_weight=0.6)
    terms = objective.terms(taught, TARGETS, predicted=predictions(batch))
    log_prob = log_softmax(taught.logits.numpy())
    at_words = 0.25 * np.take_along_axis(log_prob, words, -1).sum(-1)
    uniform = log_prob.mean(-1) * MASK
    own = 0.8 * word_log_prob(taught) + 0.2 * uniform
    expected = -(0.4 * own + 0.6 * (at_words * MASK + 0.5 * uniform)).sum(-1).mean()
    np.testing.assert_allclose(terms.loss, expected, rtol=1e-5)
    nll = -word_log_prob(taught).sum() / MASK.sum()
    np.testing.assert_allclose(terms.means["nll"][0], nll, rtol=1e-5)


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
CASES += [("hard", {"baseline": "learned", "reward_to_go": True})]


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

    baseline = make_baseline(objective.attention, 5)
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
