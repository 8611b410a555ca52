"""The search of one image finds what `sat_tf.search` finds."""

import numpy as np
import pytest

from sat_tf.config import SearchConfig
from sat_tf.inference.litert_search import beam_search, rank_by_consensus
from sat_tf.text.vocabulary import END
from tests.sat_tf.search.tree_models import MAX_LENGTH, TreeModel


def search(model: TreeModel, image: int, beam: int, **rules):
    """Searches one image of a model; every row remembers its own prefix."""
    prefixes = [()] * beam

    def step(tokens, parents):
        nonlocal prefixes
        assert 0 < len(tokens) == len(parents) <= beam  # the live ones alone
        prefixes = [(*prefixes[p], int(t)) for p, t in zip(parents, tokens, strict=True)]
        nodes = [min(model.node(p[1:]), model.log_probs.shape[1] - 1) for p in prefixes]
        return model.log_probs[image, nodes], (np.array(nodes),)

    rules = {"max_length": MAX_LENGTH, "suppress_unknown": False} | rules
    return beam_search(step, SearchConfig(beam, **rules))


@pytest.mark.parametrize("beam", [1, 3, 7])
@pytest.mark.parametrize("length_power", [0.0, 0.7])
@pytest.mark.parametrize("rules", [{}, {"no_repeat_ngram": 1}, {"no_repeat_ngram": 2}], ids=str)
def test_it_finds_the_hypotheses_of_the_search_in_the_graph(beam, length_power, rules):
    model = TreeModel(seed=beam)
    expected = model.search(beam, length_power=length_power, **rules)
    for image in range(model.images):
        found = search(model, image, beam, length_power=length_power, **rules)
        count = len(found.tokens)
        assert list(found.lengths) == list(expected.lengths[image, :count])
        np.testing.assert_array_equal(found.tokens, expected.token_ids[image, :count, :MAX_LENGTH])
        for k, length in enumerate(found.lengths):
            nodes = expected.auxiliary["node"][image, k, :length]
            assert list(found.auxiliary[0][k, :length]) == list(nodes)
        np.testing.assert_allclose(found.scores, expected.scores[image, :count], rtol=1e-6)
        np.testing.assert_allclose(found.log_probs, expected.log_probs[image, :count], rtol=1e-6)


def test_of_equal_continuations_the_lower_row_then_the_lower_token_is_taken():
    model = TreeModel(seed=0)
    model.log_probs[:] = -1.0
    found = search(model, 0, beam=3, length_power=0.0)
    assert found.tokens.tolist() == [[3, END, 0, 0], [3, 3, END, 0], [3, 3, 3, END]]


def test_forbidden_tokens_are_not_written_and_the_first_is_no_end():
    model = TreeModel(seed=0)
    model.log_probs[..., END] += 5.0
    found = search(model, 0, beam=5, suppress_unknown=True)
    assert len(found.tokens) == 5 and (found.lengths > 0).all() and not (found.tokens == 3).any()


def test_what_is_not_finite_is_never_taken():
    model = TreeModel(seed=0)
    model.log_probs[:, 0, 4:] = np.nan
    assert (search(model, 0, beam=5).tokens[:, 0] == 3).all()
    model.log_probs[:] = -np.inf
    assert len(search(model, 0, beam=5).tokens) == 0


@pytest.mark.parametrize("length_power", [0.0, 1.0])
def test_consensus_ranks_hypotheses_as_the_graph_does(length_power):
    model = TreeModel(seed=3)
    expected = model.search(9, length_power=length_power, consensus=3.0)
    for image in range(model.images):
        found = search(model, image, 9, length_power=length_power)
        found = rank_by_consensus(found, 3.0)
        np.testing.assert_array_equal(found.tokens, expected.token_ids[image, :, :MAX_LENGTH])
        np.testing.assert_allclose(found.scores, expected.scores[image], rtol=1e-6)
