"""Searches against brute force and a NumPy beam search, on random models of tiny vocabularies."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from sat_tf.search.beam_search import beam_search
from sat_tf.search.loop import FLOOR
from sat_tf.search.sampling import sample
from sat_tf.vocabulary import END, PAD, START
from tests.sat_tf.search.tree_models import (
    LEAVES,
    MAX_LENGTH,
    WORDS,
    TreeModel,
    assert_same,
    brute_force,
    captions,
    draws,
    numpy,
    reference_beam,
)


@pytest.mark.parametrize("power", [0.0, 0.6, 1.0])
def test_beam_as_wide_as_the_tree_is_brute_force(power):
    model = TreeModel(seed=1)
    hypotheses = model.search(LEAVES, length_power=power)
    for image in range(model.images):
        assert_same(hypotheses, image, brute_force(model, image, power))


def test_empty_captions_compete_where_they_are_allowed():
    model = TreeModel(seed=2)
    hypotheses = model.search(LEAVES + 1, never_empty=False, length_power=0.5)
    for image in range(model.images):
        expected = brute_force(model, image, 0.5, shortest=0)
        assert () in [words for _, words in expected]
        assert_same(hypotheses, image, expected)


@pytest.mark.parametrize("beam", [1, 2, 3, 7])
@pytest.mark.parametrize("power", [0.0, 0.8])
def test_beam_search_is_the_shrinking_beam_of_the_reference(beam, power):
    for seed in range(4):
        model = TreeModel(seed=10 + seed, images=8)
        hypotheses = model.search(beam, length_power=power)
        for image in range(model.images):
            assert_same(hypotheses, image, reference_beam(model, image, beam, power))


@pytest.mark.parametrize("beam", [1, 2, 5, LEAVES])
def test_auxiliary_follows_the_ancestry_and_is_zero_past_the_length(beam):
    model = TreeModel(seed=6, images=5)
    hypotheses = model.search(beam)
    assert hypotheses.auxiliary["pair"].shape == (5, beam, MAX_LENGTH + 1, 2)
    for image in range(model.images):
        for k, words in enumerate(captions(hypotheses, image)):
            nodes = [model.node(words[:n]) for n in range(len(words))]
            nodes += [0] * (MAX_LENGTH + 1 - len(words))
            assert hypotheses.auxiliary["node"][image, k].tolist() == nodes
            assert hypotheses.auxiliary["pair"][image, k, :, 1].tolist() == [-n for n in nodes]


def test_hypotheses_are_distinct_sorted_and_closed_by_end_and_padding():
    model = TreeModel(seed=7, images=5)
    hypotheses = model.search(6, length_power=1.0)
    assert hypotheses.token_ids.shape == (5, 6, MAX_LENGTH + 1)
    assert (np.diff(hypotheses.scores, axis=1) <= 0).all()
    for image in range(model.images):
        assert len(set(captions(hypotheses, image))) == 6
        for row, length in zip(hypotheses.token_ids[image], hypotheses.lengths[image], strict=True):
            assert row[length] == END
            assert (row[length + 1 :] == PAD).all()
            assert set(row[:length]) <= set(WORDS)


@pytest.mark.parametrize("beam", [1, 3])
def test_answers_do_not_depend_on_the_neighbours(beam):
    model = TreeModel(seed=8, images=12)
    together = model.search(beam)
    assert len(set(together.lengths[:, 0])) > 2  # Some finish early while others continue.
    for image in range(model.images):
        alone = model.search(beam, images=[image])
        among = tf.nest.map_structure(lambda x, image=image: x[image : image + 1], together)
        tf.nest.map_structure(np.testing.assert_array_equal, alone, among)


@pytest.mark.parametrize("beam", [1, 3, 5])
def test_never_empty_even_when_end_dominates(beam):
    model = TreeModel(seed=9)
    logits = model.log_probs.copy()
    logits[:, :, END] += 50.0
    model.set_logits(logits)
    hypotheses = model.search(beam)
    assert (hypotheses.lengths[:, 0] == 1).all()
    assert (hypotheses.lengths >= 1).all()
    assert model.search(1, never_empty=False).lengths.tolist() == [[0]] * 3


def test_a_model_that_never_ends_is_cut_at_the_maximum_length():
    model = TreeModel(seed=10)
    logits = model.log_probs.copy()
    logits[:, :, END] = -np.inf
    model.set_logits(logits)
    for beam in (1, 4):
        hypotheses = model.search(beam)
        assert (hypotheses.lengths == MAX_LENGTH).all()
        assert (hypotheses.token_ids[..., MAX_LENGTH] == END).all()
        expected = [model.log_prob(i, captions(hypotheses, i)[0]) for i in range(3)]
        np.testing.assert_allclose(hypotheses.log_probs[:, 0], expected, rtol=1e-5)


def test_forbidden_tokens_are_never_generated():
    model = TreeModel(seed=11)
    logits = model.log_probs.copy()
    logits[:, :, 3] += 20.0
    model.set_logits(logits)
    forbidden = (PAD, START, 3)
    hypotheses = model.search(LEAVES, forbidden=forbidden)
    for image in range(model.images):
        expected = brute_force(model, image, 0.0, words=(4, 5))
        assert_same(hypotheses, image, expected)
    drawn = sample(
        model.step,
        model.state(),
        batch_size=3,
        max_length=MAX_LENGTH,
        seed=[0, 1],
        forbidden=forbidden,
    )
    assert not np.isin(captions(numpy(drawn), 0), forbidden).any()
    assert 3 in captions(model.search(1), 0)[0]


def test_places_without_a_caption_are_finite_and_empty():
    model = TreeModel(seed=12)
    hypotheses = model.search(LEAVES + 5)
    for image in range(model.images):
        assert_same(hypotheses, image, brute_force(model, image, 0.0))
    assert (hypotheses.token_ids[:, LEAVES:] == PAD).all()
    assert (hypotheses.lengths[:, LEAVES:] == 0).all()
    assert (hypotheses.scores[:, LEAVES:] == FLOOR).all()
    assert (hypotheses.log_probs[:, LEAVES:] == FLOOR).all()
    assert (hypotheses.auxiliary["node"][:, LEAVES:] == 0).all()


def test_an_image_of_nan_log_probs_is_finite_and_leaves_the_others_alone():
    model = TreeModel(seed=13)
    clean = model.search(3)
    model.log_probs[1] = np.nan
    step = model.step

    def step_of_nan(tokens, state):
        log_probs, state, _ = step(tokens, state)
        return log_probs, state, log_probs

    model.step = step_of_nan
    hypotheses = model.search(3)
    assert all(np.isfinite(x).all() for x in hypotheses)
    assert (hypotheses.scores[1] == FLOOR).all()
    for image in (0, 2):
        assert captions(hypotheses, image) == captions(clean, image)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_token_without_a_finite_log_prob_is_never_taken(value):
    model = TreeModel(seed=24)
    model.log_probs[:, :, 3] = value
    hypotheses = model.search(LEAVES)
    drawn = draws(model, 20, [7, 8], forbidden=(PAD, START))
    assert np.isfinite(drawn.log_probs).all() and 3 not in drawn.token_ids
    for image in range(model.images):
        assert_same(hypotheses, image, brute_force(model, image, 0.0, words=(4, 5)))


def test_ties_go_to_the_lower_token():
    model = TreeModel(seed=14, spread=0.0)
    assert captions(model.search(2), 0) == captions(model.search(2), 2)
    logits = model.log_probs.copy()
    logits[:, :, END] = -np.inf
    model.set_logits(logits)
    first = WORDS[0]
    assert captions(model.search(3), 0) == [(first, first, first, word) for word in WORDS]


def test_one_step_is_enough_for_captions_of_one_word():
    hypotheses = TreeModel(seed=16).search(2, max_length=1)
    assert (hypotheses.lengths == 1).all()
    assert (hypotheses.token_ids[..., 1] == END).all()


def test_a_beam_over_a_large_vocabulary_is_that_of_a_whole_sort():
    beam, words, vocabulary = 4, 5, 700
    table = np.random.default_rng(0).dirichlet(np.full(vocabulary, 0.1), vocabulary)
    table = np.log(table + 1e-20).astype(np.float32)
    table[:, END] = -np.inf

    def step(tokens, state):
        return tf.gather(table, tokens), state, ()

    found = numpy(beam_search(step, (), batch_size=1, beam=beam, max_length=words))
    table[:, [PAD, START]] = -np.inf
    totals, prefixes = table[START], [[token] for token in range(vocabulary)]
    for _ in range(words):
        best = np.argsort(-totals, kind="stable")[:beam]
        kept, expected = [prefixes[i] for i in best], totals[best]
        totals = (expected[:, None] + table[[prefix[-1] for prefix in kept]]).reshape(-1)
        prefixes = [[*prefix, token] for prefix in kept for token in range(vocabulary)]
    assert captions(found, 0) == [tuple(prefix) for prefix in kept]
    np.testing.assert_array_equal(found.log_probs[0], expected)


@pytest.mark.parametrize("beam", [1, 5, LEAVES + 2])
def test_word_log_probs_are_the_models_and_sum_to_the_log_prob_of_the_caption(beam):
    model = TreeModel(seed=25, images=4)
    hypotheses = model.search(beam, length_power=0.7)
    exists = hypotheses.lengths > 0
    sums = hypotheses.word_log_probs.sum(axis=2)
    np.testing.assert_allclose(sums[exists], hypotheses.log_probs[exists], rtol=1e-5)
    assert not sums[~exists].any()
    for image in range(model.images):
        for k, words in enumerate(captions(hypotheses, image)):
            tokens = [*words, END][: MAX_LENGTH if words else 0]
            rows = [model.log_probs[image, model.node(words[:n])] for n in range(len(tokens))]
            expected = [row[token] for row, token in zip(rows, tokens, strict=True)]
            expected += [0.0] * (MAX_LENGTH + 1 - len(tokens))
            np.testing.assert_allclose(hypotheses.word_log_probs[image, k], expected, atol=1e-5)
