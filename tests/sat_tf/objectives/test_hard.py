"""Hard attention's loss by hand, its presets and its switch."""

import numpy as np
import pytest
import tensorflow as tf

from sat_tf.config import AttentionConfig
from sat_tf.objectives import make_objective
from sat_tf.objectives.estimators import make_baseline
from tests.sat_tf.objectives.decoder_outputs import (
    DRAWN,
    MASK,
    TARGETS,
    B,
    entropy,
    log_softmax,
    random_taught,
    warm,
    word_log_prob,
)


def hard(preset="paper", **options):
    return make_objective(AttentionConfig("hard", preset=preset, **options))


def gradients(objective, taught, baseline=-5.0, targets=TARGETS, switch=DRAWN):
    watched = [taught.log_prob, taught.alignment_scores, taught.logits]
    with tf.GradientTape() as tape:
        tape.watch(watched)
        switch = None if switch is None else tf.constant(switch)
        loss = objective.terms(taught, targets, switch, warm(baseline)).loss
    found = tape.gradient(loss, watched, unconnected_gradients="zero")
    return [g.numpy() for g in found]


def entropy_gradient(taught):
    """Of the entropy of alpha in the scores: `-alpha (log alpha + H)`."""
    log_alpha = log_softmax(taught.alignment_scores.numpy())
    return -np.exp(log_alpha) * (log_alpha + entropy(taught)[..., None])


@pytest.mark.parametrize("preset", ["paper", "arctic"])
def test_the_gradients_of_the_paper_and_of_its_code(preset):
    """The paper rewards a caption with a tenth of its log p, the code with the mean over words.

    The code divides neither reward nor entropy by batch: its gradient in alpha is
    `(NLL mean over t - b) / 10 s / alpha + 0.002 (log alpha + 1)`.
    """
    taught = random_taught()
    through_score, through_alpha, _ = gradients(hard(preset), taught)
    size, words = (B, 1) if preset == "paper" else (1, MASK.sum(-1, keepdims=True))
    advantage = word_log_prob(taught).sum(-1, keepdims=True) / words + 5.0
    drawn = MASK * ~DRAWN[:, None]
    np.testing.assert_allclose(through_score, -0.1 / size * advantage * drawn, rtol=1e-4)
    expected = -0.002 / size * MASK[..., None] * entropy_gradient(taught)
    np.testing.assert_allclose(through_alpha, expected, rtol=1e-3, atol=1e-8)


def test_the_baseline_used_is_the_one_before_the_batch():
    taught, baseline = random_taught(), warm(-5.0)
    terms = hard().terms(taught, TARGETS, tf.constant(DRAWN), baseline)
    assert baseline.value == -5.0
    assert terms.means["baseline"][0] == -5.0
    np.testing.assert_allclose(terms.mean_return, word_log_prob(taught).sum(-1).mean(), rtol=1e-5)


def test_the_paper_preset_is_the_paper_s():
    weights = hard().estimator(64.0)
    assert (weights.reward_weight, weights.entropy_weight) == (0.1, 0.002)
    described = hard().describe(64)
    assert not described["switch_per_minibatch"] and not described["reward_per_word"]
    assert (described["baseline"], described["samples"]) == ("moving_average", 1)


@pytest.mark.parametrize(("preset", "bound"), [("rloo", "elbo"), ("vimco", "importance_weighted")])
def test_the_presets_of_several_samples_are_unbiased(preset, bound):
    objective = hard(preset)
    weights = objective.estimator(64.0)
    assert (weights.reward_weight, weights.entropy_weight) == (1.0, 0.0)
    assert (weights.bound, weights.baseline, weights.to_go) == (bound, "leave_one_out", True)
    assert objective.samples >= 2
    assert not switches(objective, 5, 20).any()
    assert make_baseline(objective.attention) is None


def switches(objective, draws, size):
    draw = tf.function(lambda seed: objective.draw_expectation(seed, size))
    return np.stack([draw(tf.constant([7, i])).numpy() for i in range(draws)])


@pytest.mark.parametrize("probability", [0.5, 0.2])
def test_the_paper_draws_the_switch_for_every_image(probability):
    drawn = switches(hard(expectation_probability=probability), 20, 200)
    assert drawn.shape == (20, 200)
    assert abs(drawn.mean() - probability) < 0.04
    assert np.all((drawn.mean(-1) > 0.0) & (drawn.mean(-1) < 1.0))


def test_arctic_draws_the_switch_for_every_minibatch():
    drawn = switches(hard("arctic"), 200, 6)
    assert np.all(drawn == drawn[:, :1])
    assert abs(drawn[:, 0].mean() - 0.5) < 0.15
