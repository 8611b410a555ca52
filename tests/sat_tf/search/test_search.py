"""Beam search against brute force, its loop, consensus, and searches inside a graph; sampling."""

import math
from collections import Counter

import numpy as np
import pytest
import tensorflow as tf

from sat_tf.search import FLOOR, beam_search, expected_similarity
from sat_tf.text.vocabulary import END, PAD, START
from tests.sat_tf.search.tree_models import (
    LEAVES,
    MAX_LENGTH,
    VOCABULARY,
    WORDS,
    TreeModel,
    assert_same,
    brute_force,
    captions,
    captions_of_draws,
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


def repeats(words, n: int) -> bool:
    grams = [tuple(words[k : k + n]) for k in range(len(words) - n + 1)]
    return len(set(grams)) < len(grams)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_repeated_n_grams_are_left_out_of_the_tree(n):
    model = TreeModel(seed=26)
    hypotheses = model.search(LEAVES, no_repeat_ngram=n, length_power=0.5)
    for image in range(model.images):
        expected = brute_force(model, image, 0.5)
        expected = [(score, words) for score, words in expected if not repeats(words, n)]
        assert 0 < len(expected) < LEAVES
        assert_same(hypotheses, image, expected)
        assert not hypotheses.lengths[image][len(expected) :].any()


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


def ending_after(lengths) -> TreeModel:
    """A model of one image per length, with captions of that length only."""
    model = TreeModel(seed=17, images=len(lengths))
    logits = model.log_probs.copy()
    for image, length in enumerate(lengths):
        shorter = sum(VOCABULARY**n for n in range(length))  # prefixes without an end
        logits[image, :shorter, END] = -50.0
        logits[image, shorter:, END] = 50.0
    model.set_logits(logits)
    return model


def assert_close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("compiled", [False, True])
def test_images_that_have_ended_are_left_out_and_nothing_else_changes(beam, compiled):
    model = ending_after([1, 4, 1, 2, 1, 3, 1, 1, 2])
    expected, called = model.search(beam, length_power=0.5), []

    def counted(tokens, state, constants):
        called.append(len(tokens))
        return model.step_with_constants(tokens, state, constants)

    def search(images):
        state = {"node": tf.zeros_like(images), "first": tf.ones_like(images, tf.bool)}
        return beam_search(
            model.step_with_constants if compiled else counted,
            state,
            batch_size=tf.size(images),
            beam=beam,
            max_length=MAX_LENGTH,
            length_power=0.5,
            constants={"image": images},
        )

    if compiled:
        spec = [tf.TensorSpec([None], tf.int32)]
        search = tf.function(search, autograph=False, input_signature=spec)
    found = numpy(search(tf.range(model.images)))
    tf.nest.map_structure(assert_close, found, expected)
    if not compiled:
        # Of nine images, four are live after the first word, two after the second.
        assert called == [9, 9 * beam, 4 * beam, 2 * beam]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("beam", 0),
        ("max_length", 0),
        ("beam", 2.5),
        ("length_power", -1.0),
        ("no_repeat_ngram", -1),
        ("consensus", -1.0),
    ],
)
def test_arguments_out_of_range_are_named(name, value):
    options = {"beam": 2, name: value}
    with pytest.raises(ValueError, match=f"invalid value for argument `{name}`"):
        TreeModel(seed=22).search(**options)


def test_a_step_whose_vocabulary_is_unknown_is_an_error():
    @tf.function(input_signature=[tf.TensorSpec([2, None])], autograph=False)
    def search(log_probs):
        step = lambda tokens, state: (log_probs, state, ())  # noqa: E731
        return beam_search(step, (), beam=1, batch_size=2, max_length=3).token_ids

    with pytest.raises(ValueError, match="known number of tokens"):
        search(tf.zeros([2, 5]))


def test_a_graph_serves_every_batch_size_from_one_trace():
    model, calls = TreeModel(seed=20, images=4), []
    options = {"length_power": 0.5, "no_repeat_ngram": 1}

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([None], tf.int32)])
    def search(images):
        calls.append(images)
        state = {"node": tf.zeros_like(images), "image": images}
        state["first"] = tf.ones_like(images, tf.bool)
        size = tf.shape(images)[0]
        rest = {"batch_size": size, "beam": 3, "max_length": MAX_LENGTH, **options}
        return beam_search(model.step, state, **rest)

    for images in ([0], [0, 1, 2, 3], [2, 1]):
        found = search(tf.constant(images))
        expected = model.search(3, images, **options)
        np.testing.assert_array_equal(found.token_ids, expected.token_ids)
        np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-6)
    assert len(calls) == 1
    shapes = search.get_concrete_function().structured_outputs
    assert shapes.token_ids.shape.as_list() == [None, 3, MAX_LENGTH + 1]
    assert shapes.auxiliary["pair"].shape.as_list() == [None, 3, MAX_LENGTH + 1, 2]


def similarity(ours, theirs) -> float:
    """CIDEr-D of two captions without tf-idf, 0 to 1."""
    total = 0.0
    for n in range(1, 5):
        a, b = (Counter(tuple(w[i : i + n]) for i in range(len(w) - n + 1)) for w in (ours, theirs))
        norms = math.sqrt(sum(c * c for c in a.values()) * sum(c * c for c in b.values()))
        if norms:
            total += sum(min(a[gram], b[gram]) * b[gram] for gram in a) / norms
    return total / 4 * math.exp(-((len(ours) - len(theirs)) ** 2) / 72)


def expected(words, scores, sharpness: float) -> np.ndarray:
    weights = np.exp(sharpness * (np.array(scores) - max(scores)))
    weights /= weights.sum()
    return np.array([[similarity(a, b) for b in words] for a in words]) @ weights


def computed(words, scores, sharpness: float) -> np.ndarray:
    """Calls `expected_similarity` for one image, ids past a caption's end being anything."""
    ids = np.random.default_rng(0).integers(0, 9, (1, len(words), 9)).astype(np.int32)
    for k, caption in enumerate(words):
        ids[0, k, : len(caption)] = caption
    lengths = np.array([[len(caption) for caption in words]], np.int32)
    return expected_similarity(
        tf.constant(ids), lengths, tf.constant([scores], tf.float32), sharpness
    )[0]


@pytest.mark.parametrize("sharpness", [0.0, 0.5, 5.0])
def test_consensus_is_the_expected_similarity(sharpness):
    rng = np.random.default_rng(1)
    words = [rng.integers(4, 8, rng.integers(1, 8)).tolist() for _ in range(7)]
    scores = (-3 * rng.random(7)).tolist()
    found = computed(words, scores, sharpness)
    np.testing.assert_allclose(found, expected(words, scores, sharpness), rtol=1e-5)


@pytest.mark.parametrize("power", [0.0, 1.0])
def test_a_search_ranks_what_it_found_by_consensus(power):
    model = TreeModel(seed=3, images=4)
    by_score = model.search(9, length_power=power)
    by_consensus = model.search(9, length_power=power, consensus=3.0)
    for image in range(model.images):
        words = captions(by_score, image)
        agreed = expected(words, by_score.scores[image].tolist(), 3.0)
        order = np.argsort(-agreed, kind="stable")
        assert captions(by_consensus, image) == [words[k] for k in order]
        for name in ("scores", "log_probs", "word_log_probs", "token_ids"):
            before, after = getattr(by_score, name)[image], getattr(by_consensus, name)[image]
            np.testing.assert_array_equal(after, before[order])
        nodes = by_score.auxiliary["node"][image][order]
        np.testing.assert_array_equal(by_consensus.auxiliary["node"][image], nodes)
    assert (by_score.token_ids != by_consensus.token_ids).any()


def test_captions_that_do_not_exist_stay_last_and_have_no_say():
    model = TreeModel(seed=4)
    found = model.search(LEAVES + 5, consensus=2.0)
    assert (found.scores[:, -5:] == FLOOR).all() and (found.scores[:, :-5] > FLOOR).all()
    assert [c for c in captions(found, 0) if c] == captions(model.search(LEAVES, consensus=2.0), 0)


def test_it_works_in_a_graph_for_any_number_of_images_none_included():
    compiled = tf.function(lambda *parts: expected_similarity(*parts, 2.0), reduce_retracing=True)
    found = TreeModel(seed=5).search(4)
    for count in (3, 1, 0):
        parts = [tf.constant(x[:count]) for x in (found.token_ids, found.lengths, found.scores)]
        np.testing.assert_allclose(compiled(*parts), expected_similarity(*parts, 2.0), rtol=1e-6)
        assert compiled(*parts).shape == (count, 4)


def test_sample_frequencies_are_the_probabilities():
    model = TreeModel(seed=18, spread=1.0)
    count = 20000
    drawn = captions_of_draws(draws(model, count, [3, 4], max_length=2))
    probabilities = np.exp(model.log_probs[0])
    words = [token for token in range(VOCABULARY) if token != END]
    for word in words:
        first = probabilities[0, word] / (1 - probabilities[0, END])  # no caption is empty
        second = probabilities[model.node((word,))]
        expected = {(word,): first * second[END]}
        expected |= {(word, other): first * second[other] for other in words}
        for caption, probability in expected.items():
            deviation = math.sqrt(probability * (1 - probability) / count)
            assert drawn.count(caption) / count == pytest.approx(probability, abs=5 * deviation)


def test_sampled_log_probs_are_the_models():
    model = TreeModel(seed=19)
    drawn = draws(model, 30, [5, 6], forbidden=(PAD, START))
    assert (drawn.lengths >= 1).all()
    for k, words in enumerate(captions_of_draws(drawn)):
        assert drawn.log_probs[k, 0] == pytest.approx(model.log_prob(0, words), rel=1e-5)
        assert drawn.word_log_probs[k, 0].sum() == pytest.approx(drawn.log_probs[k, 0], rel=1e-5)
        assert drawn.auxiliary["node"][k, 0, len(words) - 1] == model.node(words[:-1])
