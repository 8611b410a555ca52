"""The reward of right words: METEOR's mean of precision and recall, by equal words."""

from __future__ import annotations

import numpy as np
import pytest

from sat_tf.vocabulary import END, PAD, START
from training.datasets.batches import CaptionTable
from training.metrics.cider_reward import CiderReward
from training.metrics.reward_captions import references_of
from training.metrics.unigram_reward import UnigramReward
from training.recipes import RewardConfig
from training.rewards import reward_of


def caption(*words):
    return np.array([START, *words, END], np.int32)


def rows(*captions):
    """Without <start>, padded to six."""
    return np.array([[*words, END, *[PAD] * 6][:6] for words in captions])


def expected(matches, length, other_length):
    precision, recall = matches / length, matches / other_length
    return 10.0 * precision * recall / (0.85 * precision + 0.15 * recall)


def test_it_is_meteors_mean_over_words_and_end():
    reward = UnigramReward([[caption(5, 6, 7, 8)]])
    found = reward(np.zeros(3, int), rows([5, 6, 9], [8, 7, 6, 5], [9]))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, [expected(3, 4, 5), 10.0, expected(1, 2, 5)], rtol=1e-6)


def test_what_is_left_out_costs_more_than_what_is_added():
    reward = UnigramReward([[caption(5, 6, 7)]])
    short, long = reward(np.zeros(2, int), rows([5, 6], [5, 6, 7, 8]))
    assert long > short


def test_a_word_counts_as_often_as_the_reference_has_it():
    reward = UnigramReward([[caption(5, 6, 5)]])
    found = reward(np.zeros(2, int), rows([5, 5, 5], [5, 5, 6]))
    np.testing.assert_allclose(found, [expected(3, 4, 4), 10.0], rtol=1e-6)


def test_the_best_reference_of_the_picture_counts():
    reward = UnigramReward([[caption(5), caption(6, 7)], [caption(8)]])
    found = reward(np.array([0, 1]), rows([6, 7], [6, 7]))
    np.testing.assert_allclose(found, [10.0, expected(1, 3, 2)], rtol=1e-6)


def test_a_caption_that_breaks_off_is_worth_less_and_what_follows_its_end_nothing():
    reward = UnigramReward([[caption(5, 6)]])
    broken, more = np.array([[5, 6, PAD]]), np.array([[5, 6, END, 7]])
    assert reward(np.zeros(1, int), broken)[0] < 10.0
    np.testing.assert_allclose(reward(np.zeros(1, int), more), 10.0)


@pytest.mark.parametrize("weight", [0.0, 0.5])
def test_it_is_added_to_cider_by_its_weight(weight):
    tokens = [caption(5, 6), caption(7, 8), caption(5, 9)]
    table = CaptionTable(np.array([0, 1, 1], np.int32), np.zeros(3, np.int32), tokens)
    reward = reward_of(RewardConfig("cider", weight), table)
    asked = np.array([0, 1]), rows([5, 9], [7, 9])
    parts = [kind(references_of(table))(*asked) for kind in (CiderReward, UnigramReward)]
    found = reward(*asked)
    assert found.dtype == np.float32 and parts[1].all()
    np.testing.assert_allclose(found, parts[0] + weight * parts[1], rtol=1e-6)
