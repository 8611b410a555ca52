"""Captions are drawn as the model would write them, and their reward is climbed without bias."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from sat_tf.config import AttentionConfig, SearchConfig
from sat_tf.objectives.likelihood import word_log_likelihood, word_mask
from sat_tf.objectives.reward import RewardObjective
from sat_tf.ops import replica_seed
from sat_tf.text.vocabulary import END, PAD, START, UNK
from tests.sat_tf.models.captioner_models import (
    KINDS,
    VOCABULARY,
    compile_model,
    fit,
    make_batch,
    make_model,
    randomise,
)
from tests.sat_tf.objectives.decoder_outputs import Prescribed, small_decoder

A, B = UNK + 1, UNK + 2
PLACES, ROOM = 3, 2


def nothing(images, captions):
    return np.zeros(len(images), np.float32)


def count_of_a(images, captions):
    return (captions == A).sum(axis=1).astype(np.float32)


def objective_of(model, reward=nothing, samples=4):
    return RewardObjective(reward, samples, model.config.attention, model.config.search)


def make_images(count=6, seed=0):
    batch = make_batch(count, seed=seed)
    return batch | {"image_index": np.arange(count, dtype=np.int32)}


def everything(drawn):
    """All captions of at most two words out of two, along all paths of locations if drawn.

    What follows a caption's end, and the location before an <end> for want of room, is not drawn.
    """
    steps = itertools.product([A, B], [END, A, B])
    captions = [(first, second, PAD if second == END else END) for first, second in steps]
    paths = [(0, 0)]
    if drawn:
        paths = list(itertools.product(range(PLACES), repeat=ROOM))
    return list(itertools.product(captions, paths))


def read(monkeypatch, decoder, selection, outcomes):
    """Reads captions with the decoder, attending to the locations given."""
    captions, paths = (np.array(part) for part in zip(*outcomes, strict=True))
    fake = Prescribed(np.pad(paths, [(0, 0), (0, 1)]))
    monkeypatch.setattr("sat_tf.layers.attention.multinoulli", fake)
    annotations = np.random.default_rng(4).normal(size=[1, PLACES, 2]).astype(np.float32)
    words = np.concatenate([np.full([len(captions), 1], START), captions[:, :-1]], axis=1)
    taught = decoder(
        tf.repeat(annotations, len(captions), axis=0),
        tf.constant(words, tf.int32),
        selection=selection,
        seed=tf.constant([0, 0]),
    )
    return taught, tf.constant(captions, tf.int32)


@pytest.mark.parametrize(
    ("kind", "inference"), [("soft", "sample"), ("hard", "sample"), ("hard", "expectation")]
)
def test_the_gradient_is_that_of_the_expected_reward(monkeypatch, kind, inference):
    # Every pair of captions as if it had been drawn, weighed by how probable that was.
    attention = AttentionConfig(kind, penalty_weight=0.0, inference=inference)
    draws = (kind, inference) == ("hard", "sample")
    decoder, outcomes = small_decoder(B + 1), everything(draws)
    rule = RewardObjective(nothing, 2, attention, SearchConfig(max_length=ROOM))
    worth = np.random.default_rng(7).uniform(0, 3, len(outcomes)).astype(np.float32)

    with tf.GradientTape() as tape:
        taught, targets = read(monkeypatch, decoder, rule.selection, outcomes)
        log_prob = log_probabilities(taught, targets)
        exact = tf.reduce_sum(tf.exp(log_prob) * worth)
    np.testing.assert_allclose(tf.reduce_sum(tf.exp(log_prob)), 1.0, rtol=1e-5)
    weights = decoder.trainable_variables
    expected = tape.gradient(exact, weights, unconnected_gradients="zero")

    pairs = np.array(list(itertools.product(range(len(outcomes)), repeat=2)))
    probability = np.exp(log_prob.numpy())[pairs].prod(axis=1)
    rewards = worth[pairs] * probability[:, np.newaxis] * len(pairs)  # the loss is linear in them
    with tf.GradientTape() as tape:
        taught, targets = read(
            monkeypatch, decoder, rule.selection, [outcomes[i] for i in pairs.flat]
        )
        loss = rule.terms(taught, targets, tf.constant(rewards.ravel(), tf.float32)).loss
    found = tape.gradient(loss, weights, unconnected_gradients="zero")
    largest = max(np.abs(gradient).max() for gradient in map(tf.convert_to_tensor, expected))
    assert largest > 1e-2
    for ours, exact in zip(found, expected, strict=True):
        ours, exact = tf.convert_to_tensor(ours), tf.convert_to_tensor(exact)
        np.testing.assert_allclose(-ours, exact, atol=1e-4 * largest)


def log_probabilities(taught, targets):
    """By hand: of words among those allowed, of locations, of nothing that is not drawn."""
    log_prob = tf.zeros([targets.shape[0]])
    for time in range(ROOM):
        allowed = [A, B] if time == 0 else [END, A, B]
        logits = tf.gather(taught.logits[:, time], allowed, axis=1)
        place = tf.argmax(targets[:, time, tf.newaxis] == tf.constant(allowed), axis=1)
        word = tf.gather(tf.nn.log_softmax(logits), place, batch_dims=1)
        log_prob += word + taught.log_prob[:, time]
    return log_prob


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("inference", ["expectation", "sample", "argmax"])
def test_captions_are_drawn_from_what_teacher_forcing_then_scores(kind, inference):
    # Hard attention looks at the very locations again, or the two would differ.
    model = randomise(make_model(kind, inference=inference), 1.0)
    batch, seed = make_images(), tf.constant([3, 4])
    rule = objective_of(model)
    tokens = rule.draw(model, batch["annotations"], seed)
    taught = rule.read(model, batch["annotations"], tokens, seed)
    drawn = rule.sample(model, batch["annotations"], seed).log_probs[:, 0]
    mask = word_mask(tokens[:, 1:])
    scored = word_log_likelihood(taught.logits, tokens[:, 1:], mask)
    full = np.arange(tokens.shape[1] - 1) >= model.config.search.max_length
    scored = tf.reduce_sum(tf.where(full, 0.0, scored), axis=1)
    np.testing.assert_allclose(scored, drawn, rtol=1e-3)
    assert len(np.unique(np.round(drawn, 3))) > len(drawn) / 2


@pytest.mark.parametrize("unknown", [True, False])
def test_words_that_a_search_may_not_write_are_not_drawn(unknown):
    model = randomise(make_model(), 0.1)
    search = SearchConfig(max_length=5, suppress_unknown=unknown)
    rule = RewardObjective(nothing, 20, model.config.attention, search)
    tokens = rule.draw(model, make_images()["annotations"], tf.constant([1, 2])).numpy()
    assert (tokens[:, 0] == START).all() and not (tokens[:, 1:] == START).any()
    assert (tokens[:, 1] != END).all()
    assert set(np.unique(tokens[:, 1:])) >= set(range(UNK + 1, VOCABULARY)) | {END}
    assert bool((tokens == UNK).any()) is not unknown
    # Every caption ends once, and nothing follows.
    assert ((tokens == END).sum(axis=1) == 1).all()
    ends = (tokens == END).argmax(axis=1)
    assert all((row[end + 1 :] == PAD).all() for row, end in zip(tokens, ends, strict=True))


def test_the_reward_is_told_which_image_a_caption_is_about():
    seen = []

    def reward(images, captions):
        seen.append((images, captions))
        return np.zeros(len(images), np.float32)

    model = randomise(make_model())
    batch = make_images(3) | {"image_index": np.array([7, 0, 5], np.int32)}
    rule = objective_of(model, reward, samples=2)
    seed = tf.constant([1, 2])
    rule(model, batch, seed)
    np.testing.assert_array_equal(seen[0][0], [7, 7, 0, 0, 5, 5])
    tokens = rule.draw(model, batch["annotations"], replica_seed(seed))
    np.testing.assert_array_equal(seen[0][1], tokens[:, 1 : model.config.search.max_length + 1])
    # Of a model that never ends a caption, no <end> is rewarded.
    bias = model.decoder.deep_output.word_projection.bias
    bias.assign(tf.tensor_scatter_nd_update(bias, [[END]], [-1e9]))
    rule(model, batch, seed)
    assert (seen[1][1] > UNK).all()
    assert seen[1][1].shape == (6, model.config.search.max_length)


def test_training_raises_the_reward():
    keras.utils.set_random_seed(0)
    model = make_model()
    compile_model(model, 3e-2, objective=objective_of(model, count_of_a))
    logs = fit(model, make_images(), epochs=30)
    first, last = (np.mean([log["reward"] for log in part]) for part in (logs[:3], logs[-3:]))
    assert last > first + 1.5  # of five words at most
    assert logs[-1]["words"] <= model.config.search.max_length
    assert set(logs[-1]) >= set(model.objective.log_names)


def test_equal_rewards_teach_nothing_but_the_penalty():
    model = randomise(make_model("soft", penalty_weight=0.0))
    compile_model(model, objective=objective_of(model), run_eagerly=True)
    before = [w.numpy() for w in model.decoder.trainable_variables]
    assert fit(model, make_images())[-1]["gradient_norm"] == 0.0
    for old, new in zip(before, model.decoder.trainable_variables, strict=True):
        np.testing.assert_array_equal(old, new)
    model = randomise(make_model("soft", penalty_weight=1.0))
    compile_model(model, objective=objective_of(model), run_eagerly=True)
    assert fit(model, make_images())[-1]["gradient_norm"] > 0.0
