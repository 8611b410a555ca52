"""What training minimises: soft and hard losses by hand, presets, padding."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from sat_tf import estimators
from sat_tf.baselines import MovingAverageBaseline
from sat_tf.config import AttentionConfig, DecoderConfig
from sat_tf.layers.rnn_decoder import RNNDecoder, Taught
from sat_tf.models.objective import CaptionObjective, alpha_variation

B, T, L, K = 3, 4, 5, 7
TARGETS = np.array([[4, 5, 6, 2], [6, 2, 0, 0], [5, 4, 2, 0]], np.int32)
MASK = (TARGETS != 0).astype(np.float32)
DRAWN = np.array([False, True, False])  # Which captions take the expectation.


def log_softmax(x):
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def random_taught(seed=0):
    rng = np.random.default_rng(seed)
    shapes = ([B, T, K], [B, T, L], [B, T], [B, T])
    logits, scores, beta, log_prob = (rng.normal(size=s).astype(np.float32) for s in shapes)
    log_prob = np.where(DRAWN[:, None], 0.0, log_prob).astype(np.float32)
    return Taught(*map(tf.constant, (logits, scores, beta, log_prob)))


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


def hard(preset="paper", **options):
    return CaptionObjective(AttentionConfig("hard", preset=preset, **options))


# --- losses by hand ---


def test_the_soft_loss_is_equation_14():
    taught = random_taught()
    terms = CaptionObjective(AttentionConfig("soft", penalty_weight=0.7))(taught, TARGETS)
    alpha = np.exp(log_softmax(taught.alignment_scores.numpy())) * MASK[..., None]
    expected = np.mean(-word_log_prob(taught).sum(-1) + 0.7 * ((1 - alpha.sum(1)) ** 2).sum(-1))
    np.testing.assert_allclose(terms.loss, expected, rtol=1e-5)
    np.testing.assert_allclose(terms.words, MASK.sum())
    nll = -word_log_prob(taught).sum() / MASK.sum()
    np.testing.assert_allclose(terms.word_means["nll"], nll, rtol=1e-5)
    share = (entropy(taught) * MASK).sum() / MASK.sum() / np.log(L)
    np.testing.assert_allclose(terms.word_means["alpha_entropy"], share, rtol=1e-5)


def test_label_smoothing_changes_the_loss_and_not_the_nll():
    taught = random_taught()
    attention = AttentionConfig("soft", penalty_weight=0.0)
    plain = CaptionObjective(attention)(taught, TARGETS)
    smooth = CaptionObjective(attention, 0.2)(taught, TARGETS)
    uniform = (log_softmax(taught.logits.numpy()).mean(-1) * MASK).sum(-1)
    expected = np.mean(-0.8 * word_log_prob(taught).sum(-1) - 0.2 * uniform)
    np.testing.assert_allclose(smooth.loss, expected, rtol=1e-5)
    np.testing.assert_allclose(smooth.word_means["nll"], plain.word_means["nll"])


def test_without_attention_the_loss_is_the_likelihood():
    terms = CaptionObjective(AttentionConfig("none"))(random_taught(), TARGETS)
    expected = -word_log_prob(random_taught()).sum(-1).mean()
    np.testing.assert_allclose(terms.loss, expected, rtol=1e-5)


@pytest.mark.parametrize("kind", ["soft", "hard", "none"])
def test_the_names_logged_are_known_before_the_first_batch(kind):
    objective = CaptionObjective(AttentionConfig(kind))
    terms = objective(random_taught(), TARGETS, tf.constant(DRAWN), warm(-1.0))
    assert set(terms.logs(tf.constant(3.0))) == set(objective.log_names)


@pytest.mark.parametrize("preset", ["paper", "arctic", "rloo", "vimco"])
def test_every_preset_s_loss_is_the_one_of_the_estimators(monkeypatch, preset):
    seen = []

    def spy(*arguments):
        seen.append(estimators.stochastic_loss(*arguments))
        return seen[0]

    monkeypatch.setattr("sat_tf.models.objective.stochastic_loss", spy)
    samples = 1 if preset in ("paper", "arctic") else 2
    objective = hard(preset, samples=samples)
    taught = random_taught()
    taught = Taught(*(tf.repeat(part, samples, axis=0) for part in taught[:4]))
    terms = objective(taught, TARGETS, tf.constant(DRAWN), warm(-5.0))
    assert len(seen) == 1
    np.testing.assert_array_equal(terms.loss, seen[0])


def gradients(objective, taught, baseline=-5.0, targets=TARGETS):
    watched = [taught.log_prob, taught.alignment_scores, taught.logits]
    with tf.GradientTape() as tape:
        tape.watch(watched)
        loss = objective(taught, targets, tf.constant(DRAWN), warm(baseline)).loss
    found = tape.gradient(loss, watched, unconnected_gradients="zero")
    return [g.numpy() for g in found]


def entropy_gradient(taught):
    """Of the entropy of alpha in the scores: `-alpha (log alpha + H)`."""
    log_alpha = log_softmax(taught.alignment_scores.numpy())
    return -np.exp(log_alpha) * (log_alpha + entropy(taught)[..., None])


def test_the_paper_rewards_a_caption_with_its_log_p_times_a_tenth():
    taught = random_taught()
    through_score, through_alpha, _ = gradients(hard(), taught)
    advantage = word_log_prob(taught).sum(-1, keepdims=True) + 5.0
    drawn = MASK * ~DRAWN[:, None]
    np.testing.assert_allclose(through_score, -0.1 / B * advantage * drawn, rtol=1e-4)
    expected = -0.002 / B * MASK[..., None] * entropy_gradient(taught)
    np.testing.assert_allclose(through_alpha, expected, rtol=1e-3, atol=1e-8)


def test_arctic_rewards_the_mean_log_p_and_does_not_divide_by_the_batch():
    """Its gradient in alpha: `(NLL mean over t - b) / 10 s / alpha + 0.002 (log alpha + 1)`."""
    taught = random_taught()
    through_score, through_alpha, _ = gradients(hard("arctic"), taught)
    lengths = MASK.sum(-1, keepdims=True)
    advantage = word_log_prob(taught).sum(-1, keepdims=True) / lengths + 5.0
    drawn = MASK * ~DRAWN[:, None]
    np.testing.assert_allclose(through_score, -0.1 * advantage * drawn, rtol=1e-4)
    expected = -0.002 * MASK[..., None] * entropy_gradient(taught)
    np.testing.assert_allclose(through_alpha, expected, rtol=1e-3, atol=1e-8)


def test_the_entropy_term_raises_the_entropy_of_alpha():
    taught = random_taught()
    _, through_alpha, _ = gradients(hard(entropy_weight=1.0), taught)
    moved = taught._replace(alignment_scores=taught.alignment_scores - 0.1 * through_alpha)
    assert (entropy(moved) * MASK).sum() > (entropy(taught) * MASK).sum()


def test_the_baseline_used_is_the_one_before_the_batch():
    taught, baseline = random_taught(), warm(-5.0)
    terms = hard()(taught, TARGETS, tf.constant(DRAWN), baseline)
    assert baseline.value == -5.0
    assert terms.caption_means["baseline"] == -5.0
    np.testing.assert_allclose(terms.returns, word_log_prob(taught).sum(-1), rtol=1e-5)


# --- presets and the switch ---


def test_the_paper_preset():
    weights = hard().weights(64.0)
    assert (weights.reward_weight, weights.entropy_weight) == (0.1, 0.002)
    described = hard().describe(64)
    assert described["switch drawn for each"] == "image"
    assert described["return"] == "log p of the caption"
    assert described["doubly stochastic lambda a caption"] == 0.0
    assert described["baseline"] == "moving average, decay 0.9"
    assert described["samples a caption"] == 1


def test_the_arctic_preset_grows_with_the_batch():
    weights = hard("arctic").weights(64.0)
    np.testing.assert_allclose(weights.reward_weight, 6.4)
    np.testing.assert_allclose(weights.entropy_weight, 0.128)
    described = hard("arctic").describe(64)
    np.testing.assert_allclose(described["lambda_r a caption"], 6.4)
    assert described["switch drawn for each"] == "minibatch"
    assert described["return"] == "mean log p a word"


@pytest.mark.parametrize(("preset", "bound"), [("rloo", "elbo"), ("vimco", "importance_weighted")])
def test_the_presets_of_several_samples_are_unbiased(preset, bound):
    objective = hard(preset)
    weights = objective.weights(64.0)
    assert (weights.reward_weight, weights.entropy_weight) == (1.0, 0.0)
    assert (weights.bound, weights.baseline, weights.to_go) == (bound, "leave_one_out", True)
    assert objective.samples >= 2
    assert not switches(objective, 5, 20).any()
    assert objective.make_baseline(5) is None


def test_weights_given_replace_the_preset():
    weights = hard(reward_weight=1.0, entropy_weight=0.0).weights(64.0)
    assert (weights.reward_weight, weights.entropy_weight) == (1.0, 0.0)


def test_the_soft_description_names_the_penalty():
    described = CaptionObjective(AttentionConfig("soft", penalty_weight=0.3)).describe(8)
    assert described == {"doubly stochastic lambda a caption": 0.3}


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


def test_soft_attention_draws_no_switch():
    objective = CaptionObjective(AttentionConfig("soft"))
    assert objective.draw_expectation(tf.constant([0, 0]), 3) is None
    assert objective.selection == "expectation"
    assert hard().selection == "sample"


# --- how much attention moves ---


def test_alpha_variation_is_nought_for_a_constant_map_and_sees_a_moving_one():
    still = np.tile(np.random.default_rng(0).dirichlet(np.ones(L), [B, 1]), [1, T, 1])
    still = tf.constant(still, tf.float32)
    np.testing.assert_allclose(alpha_variation(still, MASK), 0.0, atol=1e-6)
    moving = tf.tile(tf.eye(L)[tf.newaxis, :T], [B, 1, 1])
    # One location a word, none twice: 1 - 1 / words.
    np.testing.assert_allclose(
        alpha_variation(moving, MASK), np.mean(1 - 1 / MASK.sum(-1)), rtol=1e-5
    )


# --- padding ---


def small_decoder(attends=True, locations=L):
    sizes = DecoderConfig(embedding_dim=3, attention_dim=4, hidden_dim=5)
    decoder = RNNDecoder(K, 2, attends, sizes)
    rng = np.random.default_rng(3)
    decoder.set_weights([rng.normal(size=w.shape) for w in decoder.weights])
    annotations = rng.normal(size=[B, locations, 2]).astype(np.float32)
    return decoder, annotations


CASES = [("soft", {}), ("none", {}), ("hard", {}), ("hard", {"preset": "arctic"})]
CASES += [("hard", {"preset": "vimco", "samples": 2})]
CASES += [("hard", {"baseline": "learned", "reward_to_go": True})]


@pytest.mark.parametrize(("kind", "options"), CASES)
def test_padding_adds_nothing_to_the_loss_nor_to_any_gradient(kind, options):
    decoder, annotations = small_decoder(kind != "none")
    objective = CaptionObjective(AttentionConfig(kind, **options), label_smoothing=0.1)

    @tf.function
    def run(words, targets):
        with tf.GradientTape() as tape:
            taught = decoder(
                annotations,
                words,
                selection=objective.selection,
                seed=tf.constant([1, 2]),
                use_expectation=tf.constant(DRAWN) if kind == "hard" else None,
                samples=objective.samples,
            )
            terms = objective(taught, targets, tf.constant(DRAWN), baseline)
        found = tape.gradient(terms.loss, decoder.trainable_variables)
        return terms.logs(tf.constant(3.0)), [tf.convert_to_tensor(g) for g in found]

    baseline = objective.make_baseline(5)
    if isinstance(baseline, MovingAverageBaseline):
        baseline.update(-5.0)
    words = np.pad(TARGETS[:, :-1], [(0, 0), (1, 0)], constant_values=1)
    logs, found = run(words, TARGETS)
    more_logs, more = run(np.pad(words, [(0, 0), (0, 3)]), np.pad(TARGETS, [(0, 0), (0, 3)]))
    for name in logs:
        np.testing.assert_allclose(more_logs[name], logs[name], rtol=1e-4, atol=1e-6, err_msg=name)
    for variable, one, other in zip(decoder.trainable_variables, found, more, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-3, atol=1e-5, err_msg=variable.path)
