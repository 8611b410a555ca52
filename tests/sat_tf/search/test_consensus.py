"""Ranking by consensus, against plain Python and by properties."""

import math
from collections import Counter

import numpy as np
import pytest
import tensorflow as tf

from sat_tf.search import FLOOR, expected_similarity
from tests.sat_tf.search.tree_models import LEAVES, TreeModel, captions


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


@pytest.mark.parametrize("value", [-1.0, math.inf, math.nan])
def test_a_sharpness_out_of_range_is_refused(value):
    with pytest.raises(ValueError, match="consensus.*finite number of at least 0"):
        TreeModel(seed=0).search(3, consensus=value)
