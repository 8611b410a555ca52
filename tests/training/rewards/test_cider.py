"""The reward is CIDEr-D with the training captions' document frequencies."""

from __future__ import annotations

import numpy as np
import pytest
from pycocoevalcap.cider.cider_scorer import CiderScorer

from sat_tf.vocabulary import END, PAD
from tests.training.rewards.caption_ids import PICTURES, caption, draw, spelled
from training.data.bucketing import CaptionTable, pad_tokens
from training.rewards.ngrams import CiderReward


def test_it_is_pycocoevalcaps_score_where_that_sees_the_same_references():
    references, candidates = draw(), [captions[0] for captions in draw(1)]
    scorer = CiderScorer()
    for candidate, captions in zip(candidates, references, strict=True):
        scorer += (spelled(candidate), [spelled(c) for c in captions])
    _, expected = scorer.compute_score()
    assert len(np.unique(expected)) == PICTURES
    found = CiderReward(references)(np.arange(PICTURES), pad_tokens(candidates)[:, 1:])
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_a_reward_does_not_depend_on_the_other_captions_asked_about():
    reward, candidates = CiderReward(draw()), pad_tokens([c[0] for c in draw(1)])[:, 1:]
    together = reward(np.arange(PICTURES), candidates)
    alone = [reward(np.array([p]), candidates[p : p + 1])[0] for p in range(PICTURES)]
    np.testing.assert_array_equal(together, alone)


def test_a_caption_that_breaks_off_is_worth_less_and_what_follows_its_end_nothing():
    reward = CiderReward([[caption([5, 6, 7, 8])], [caption([9, 10])], [caption([11])]])
    rows = [[5, 6, 7, 8, END], [5, 6, 7, 8, PAD], [5, 6, 7, 8, END]]
    rows = np.array([[*row, PAD, PAD] for row in rows])
    rows[1, 4:], rows[2, 5:] = 9, 10  # continues; continues after its end
    whole, broken, same = reward(np.zeros(3, int), rows)
    # The end is in every caption: alone it tells nothing of a picture.
    assert whole == pytest.approx(10.0)
    assert same == whole > broken


def test_words_that_no_reference_has_cost_and_an_empty_caption_is_worth_nothing():
    reward = CiderReward([[caption([5, 6, 7])], [caption([8, 9])]])
    known, unknown, empty = reward(
        np.zeros(3, int), np.array([[5, 6, 7, END], [5, 6, 99, END], [END, PAD, PAD, PAD]])
    )
    assert known > unknown > empty == 0.0


def test_the_table_says_whose_captions_the_references_are():
    # Pictures without a caption leave a gap, and count for no document frequency.
    places = np.array([2, 0, 2], np.int32)
    tokens = [caption([5, 6]), caption([7, 8]), caption([5, 9])]
    reward = CiderReward.of(CaptionTable(places, np.zeros(3, np.int32), tokens))
    expected = CiderReward([[tokens[1]], [tokens[0], tokens[2]]])
    rows = pad_tokens([caption([5, 6]), caption([7, 6])])[:, 1:]
    np.testing.assert_array_equal(reward(np.array([2, 0]), rows), expected(np.array([1, 0]), rows))
