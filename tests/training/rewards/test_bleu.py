"""The reward is made of BLEU's clipped counts and lengths, the end of a caption among its words."""

from __future__ import annotations

import numpy as np
import pytest
from pycocoevalcap.bleu.bleu_scorer import cook_refs, cook_test

from sat_tf.vocabulary import END, PAD
from tests.training.rewards.caption_ids import CAPTIONS, PICTURES, caption, draw, spelled
from training.data.bucketing import CaptionTable, pad_tokens
from training.rewards.factory import reward_of
from training.rewards.ngrams import BleuReward, CiderReward
from training.tasks.captioning.config import RewardConfig


def test_counts_and_lengths_are_pycocoevalcaps():
    references, candidates = draw(), [captions[0] for captions in draw(1)]
    expected = []
    for candidate, captions in zip(candidates, references, strict=True):
        lengths, most = cook_refs([spelled(c) for c in captions])
        counts = cook_test(spelled(candidate), (lengths, most), eff="closest")
        precision = np.divide(counts["correct"], np.maximum(counts["guess"], 1))
        penalty = np.exp(min(0.0, 1.0 - counts["reflen"] / counts["testlen"]))
        expected.append(10.0 * penalty * precision.mean())
    assert len(np.unique(expected)) == PICTURES
    found = BleuReward(references)(np.arange(PICTURES), pad_tokens(candidates)[:, 1:])
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_word_counts_as_often_as_the_reference_that_has_it_most_often():
    reward = BleuReward([[caption([5, 6, 5, 7]), caption([8, 5, 8])]])
    twice, thrice = reward(np.zeros(2, int), np.array([[5, 5, 9, END], [5, 5, 5, END]]))
    # Of either, two words and the end are known, three of four, and no pair of words.
    assert twice == thrice == pytest.approx(10.0 * (3 / 4) / 4)


def test_short_captions_and_those_that_break_off_are_worth_less():
    reward = BleuReward([[caption([5, 6, 7, 8])]])
    rows = [[5, 6, 7, 8, END], [5, 6, 7, 8, PAD], [5, 6, 7, END, PAD], [END, PAD, PAD, PAD, PAD]]
    rows = np.array([[*row, PAD] for row in rows])
    rows[0, 5] = 9  # after the end
    rows[1, 4:] = 9  # continues
    whole, on, short, empty = reward(np.zeros(4, int), rows)
    assert whole == pytest.approx(10.0)
    assert whole > on > 0 and whole > short > empty > 0


def test_the_table_says_whose_captions_the_references_are():
    places = np.array([2, 0, 2], np.int32)
    tokens = [caption([5, 6]), caption([7, 8]), caption([5, 9])]
    reward = BleuReward.of(CaptionTable(places, np.zeros(3, np.int32), tokens))
    expected = BleuReward([[tokens[1]], [tokens[0], tokens[2]]])
    rows = pad_tokens([caption([5, 6]), caption([7, 6])])[:, 1:]
    np.testing.assert_array_equal(reward(np.array([2, 0]), rows), expected(np.array([1, 0]), rows))


def test_it_is_added_to_cider_by_its_weight():
    places = np.repeat(np.arange(PICTURES), CAPTIONS).astype(np.int32)
    tokens = [tokens for captions in draw() for tokens in captions]
    table = CaptionTable(places, np.zeros(len(places), np.int32), tokens)
    asked = np.arange(PICTURES), pad_tokens([captions[0] for captions in draw(1)])[:, 1:]
    cider, bleu = CiderReward.of(table)(*asked), BleuReward.of(table)(*asked)
    both = reward_of(RewardConfig(metric="cider", bleu_weight=0.5), table)(*asked)
    assert both.dtype == np.float32
    np.testing.assert_allclose(both, cider + 0.5 * bleu, rtol=1e-6)
    np.testing.assert_array_equal(reward_of(RewardConfig(metric="cider"), table)(*asked), cider)
