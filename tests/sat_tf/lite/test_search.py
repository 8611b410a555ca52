"""The search of one image finds what `sat_tf.search.beam_search` finds."""

import numpy as np
import pytest

from sat_tf.config import SearchConfig
from sat_tf.lite.search import beam_search, rank_by_consensus
from sat_tf.vocabulary import END
from tests.sat_tf.search.tree_models import MAX_LENGTH, TreeModel


def search(model: TreeModel, image: int, beam: int, **rules):
    """Searches one image of a model; every row remembers its own prefix."""
    prefixes = [()] * beam

    def step(tokens, parents):
        nonlocal prefixes
        assert len(tokens) == len(parents) == beam
        prefixes = [(*prefixes[p], int(t)) for p, t in zip(parents, tokens, strict=True)]
        nodes = [min(model.node(p[1:]), model.log_probs.shape[1] - 1) for p in prefixes]
        return model.log_probs[image, nodes], (np.array(nodes),)

    rules = {"max_length": MAX_LENGTH, "suppress_unknown": False} | rules
    return beam_search(step, SearchConfig(beam, **rules))


@pytest.mark.parametrize("beam", [1, 3, 7])
@pytest.mark.parametrize("length_power", [0.0, 0.7])
@pytest.mark.parametrize(
    "rules", [{}, {"min_length": 3}, {"no_repeat_ngram": 1}, {"no_repeat_ngram": 2}], ids=str
)
def test_it_finds_the_hypotheses_of_the_search_in_the_graph(beam, length_power, rules):
    model = TreeModel(seed=beam)
    expected = model.search(beam, length_power=length_power, **rules)
    for image in range(model.images):
        found = search(model, image, beam, length_power=length_power, **rules)
        for k, hypothesis in enumerate(found):
            length = expected.lengths[image, k]
            ids = expected.token_ids[image, k]
            assert hypothesis.length == length
            assert list(hypothesis.tokens) == list(ids[: len(hypothesis.tokens)])
            nodes = [int(node) for (node,) in hypothesis.auxiliary[:length]]
            assert nodes == list(expected.auxiliary["node"][image, k, :length])
        scores = [hypothesis.score(length_power) for hypothesis in found]
        np.testing.assert_allclose(scores, expected.scores[image, : len(found)], rtol=1e-6)
        np.testing.assert_allclose(found[0].totals[-1], expected.log_probs[image, 0], rtol=1e-6)


def test_forbidden_tokens_are_not_written_and_the_first_is_no_end():
    model = TreeModel(seed=0)
    model.log_probs[..., END] += 5.0
    for hypothesis in search(model, 0, beam=5, suppress_unknown=True):
        assert hypothesis.length > 0 and 3 not in hypothesis.tokens


def test_what_is_not_finite_is_never_taken():
    model = TreeModel(seed=0)
    model.log_probs[:, 0, 4:] = np.nan
    assert all(hypothesis.tokens[0] == 3 for hypothesis in search(model, 0, beam=5))
    model.log_probs[:] = -np.inf
    assert search(model, 0, beam=5) == []


@pytest.mark.parametrize("length_power", [0.0, 1.0])
def test_consensus_ranks_hypotheses_as_the_graph_does(length_power):
    model = TreeModel(seed=3)
    expected = model.search(9, length_power=length_power, consensus=3.0)
    for image in range(model.images):
        found = search(model, image, 9, length_power=length_power)
        found = rank_by_consensus(found, length_power, 3.0)
        assert len(found) == 9
        for k, hypothesis in enumerate(found):
            ids = expected.token_ids[image, k]
            assert list(hypothesis.tokens) == list(ids[: len(hypothesis.tokens)])
