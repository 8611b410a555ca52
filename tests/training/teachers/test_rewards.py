"""Rewards of captions as ids (CIDEr-D, BLEU's precisions, METEOR), and runs trained for them."""

import keras
import numpy as np
import pytest
from pycocoevalcap.bleu.bleu_scorer import cook_refs, cook_test
from pycocoevalcap.cider.cider_scorer import CiderScorer

from sat_tf.scores.meteor_words import TablesError
from sat_tf.text.vocabulary import END, PAD, SPECIAL_TOKENS, START, UNK, Vocabulary
from tests.training.run.stopped_runs import Killed, assert_same_runs, die_after
from tests.training.small_runs import train
from training.data.batches import pad_tokens
from training.data.captions import CaptionTable, Rows
from training.run.config import DataConfig, RewardConfig, RunConfig
from training.run.decide import check
from training.run.resume import CheckpointAndStop
from training.run.strategy import make_strategy
from training.teachers.rewards import (
    BleuReward,
    CiderReward,
    MeteorReward,
    references_of,
    reward_of,
)

REWARDED = ("--reward.metric", "cider", "--fit.batch_size", "5")
IMAGES, CAPTIONS, WORDS = 8, 5, 12
WORDS_OF_IDS = Vocabulary((*SPECIAL_TOKENS, *(f"w{id}" for id in range(4, 40))))


def caption(words):
    """Ids, with both ends."""
    return np.array([START, *words, END], np.int32)


def draw(seed=0):
    """Captions of 1 to 9 words, the frequent ones of all images and some of each image."""
    rng = np.random.default_rng(seed)

    def one(image):
        words = 4 + np.minimum(rng.geometric(0.3, rng.integers(1, 10)), WORDS)
        return caption(np.where(rng.uniform(size=len(words)) < 0.3, 20 + image, words))

    return [[one(image) for _ in range(CAPTIONS)] for image in range(IMAGES)]


def spelled(ids):
    """For a metric of texts: a name for each id but the start; the end is a word."""
    return " ".join(f"w{word}" for word in ids[1:])


def test_cider_is_pycocoevalcaps_score_where_that_sees_the_same_references():
    references, candidates = draw(), [captions[0] for captions in draw(1)]
    scorer = CiderScorer()
    for candidate, captions in zip(candidates, references, strict=True):
        scorer += (spelled(candidate), [spelled(c) for c in captions])
    _, expected = scorer.compute_score()
    assert len(np.unique(expected)) == IMAGES
    found = CiderReward(references)(np.arange(IMAGES), pad_tokens(candidates)[:, 1:])
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", [CiderReward, BleuReward])
def test_whole_captions_are_worth_most_and_what_follows_their_end_nothing(kind):
    reward = kind([[caption([5, 6, 7, 8])], [caption([9, 10])], [caption([11])]])
    rows = [[5, 6, 7, 8, END, PAD], [5, 6, 7, 8, END, 9], [5, 6, 7, 8, 9, 9]]
    rows += [[5, 6, 7, END, PAD, PAD], [END, PAD, PAD, PAD, PAD, PAD]]
    whole, same, on, short, empty = reward(np.zeros(5, int), np.array(rows))
    assert whole == same == pytest.approx(10.0)
    assert whole > on > 0 and whole > short > empty >= 0


def test_bleus_counts_and_lengths_are_pycocoevalcaps():
    references, candidates = draw(), [captions[0] for captions in draw(1)]
    expected = []
    for candidate, captions in zip(candidates, references, strict=True):
        lengths, most = cook_refs([spelled(c) for c in captions])
        counts = cook_test(spelled(candidate), (lengths, most), eff="closest")
        precision = np.divide(counts["correct"], np.maximum(counts["guess"], 1))
        penalty = np.exp(min(0.0, 1.0 - counts["reflen"] / counts["testlen"]))
        expected.append(10.0 * penalty * precision.mean())
    assert len(np.unique(expected)) == IMAGES
    found = BleuReward(references)(np.arange(IMAGES), pad_tokens(candidates)[:, 1:])
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-6)


class FakeMeteor:
    """Replaces METEOR, without tables: keeps its questions, scores from the lengths."""

    def __init__(self, language):
        self.asked = []
        assert language == "en"

    def scores(self, captions, references):
        self.asked += zip(captions, references, strict=True)
        return np.array([len(c) + len(" ".join(r)) % 7 for c, r in self.asked])


def test_bleu_and_meteor_are_added_to_cider_by_their_weights(monkeypatch):
    monkeypatch.setattr("training.teachers.rewards.meteor_of", FakeMeteor)
    places = np.repeat(np.arange(IMAGES), CAPTIONS).astype(np.int32)
    tokens = [tokens for captions in draw() for tokens in captions]
    table = CaptionTable(places, np.zeros(len(places), np.int32), Rows.of(tokens))
    asked = np.arange(IMAGES), pad_tokens([captions[0] for captions in draw(1)])[:, 1:]
    cider, bleu = (kind(references_of(table))(*asked) for kind in (CiderReward, BleuReward))
    meteor = MeteorReward(table, WORDS_OF_IDS)(*asked)
    assert meteor.dtype == np.float32 and len(np.unique(meteor)) > 3

    def reward(**weights):
        found = reward_of(RewardConfig(metric="cider", **weights), table, WORDS_OF_IDS)(*asked)
        assert found.dtype == np.float32
        return found

    np.testing.assert_array_equal(reward(), cider)
    np.testing.assert_allclose(reward(bleu_weight=0.5), cider + 0.5 * bleu, rtol=1e-6)
    together = cider + 0.5 * bleu + 2 * meteor
    np.testing.assert_allclose(reward(bleu_weight=0.5, meteor_weight=2.0), together, rtol=1e-6)


def test_meteor_reads_words_without_ends_and_unknown_ones(monkeypatch):
    fake = FakeMeteor("en")
    monkeypatch.setattr("training.teachers.rewards.meteor_of", lambda language: fake)
    tokens = [caption([5, UNK, 6]), caption([7]), caption([8])]
    table = CaptionTable(np.array([0, 2, 2], np.int32), np.zeros(3, np.int32), Rows.of(tokens))
    rows = np.array([[5, 9, END, 6], [UNK, 7, PAD, PAD]])
    rewards = MeteorReward(table, WORDS_OF_IDS)(np.array([2, 0]), rows)
    assert fake.asked == [("w5 w9", ["w7", "w8"]), ("w7", ["w5 w6"])]
    np.testing.assert_allclose(rewards, [(5 + 5) / 10, (2 + 5) / 10])


def test_meteor_without_tables_or_over_characters_is_an_error(monkeypatch):
    def missing():
        raise TablesError("there are none")

    monkeypatch.setattr("sat_tf.scores.meteor_scoring.check_tables", missing)
    plain, weighted = (RewardConfig(metric="cider", meteor_weight=weight) for weight in (0.0, 2.0))
    check(RunConfig(init_from="RUN", reward=plain), "default")
    with pytest.raises(ValueError, match="--reward.meteor_weight.*0 without METEOR.*got 2"):
        check(RunConfig(init_from="RUN", reward=weighted), "default")
    with pytest.raises(ValueError, match="meteor_weight.*0 for captions of characters"):
        RunConfig(
            init_from="RUN",
            data=DataConfig(tokens="characters"),
            reward=RewardConfig(metric="cider", meteor_weight=1.0),
        )


# Runs that are trained for a reward, from a run that was trained word by word.


def run(folder, start, tiny, *flags, strategy=None):
    """Trains; returns the messages and the logs of every epoch."""
    said, logs = [], []

    class Record(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, values=None):
            logs.append(dict(values))

    flags = (*tiny, *REWARDED, "--init-from", str(start), *flags)
    how = {"strategy": strategy, "say": said.append, "callbacks": (Record(),)}
    train(folder / "run", *flags, **how)
    return "\n".join(said), logs


@pytest.mark.slow
def test_a_rewarded_run_draws_for_every_image_and_resumes(
    soft_run, tmp_path, tiny, monkeypatch, unvalidated
):
    asked, widths = [], set()
    reward = CiderReward.__call__

    def ask(self, images, captions):
        asked.append(images)
        widths.add(captions.shape[1])
        return reward(self, images, captions)

    monkeypatch.setattr(CiderReward, "__call__", ask)
    flags = ("--fit.epochs", "2", "--fit.checkpoint_steps", "2", "--reward.max_length", "6")
    said, logs = run(tmp_path / "whole", soft_run, tiny, *flags)
    assert "samples: 5" in said and "drawn: words" in said
    # Twelve images, five captions of each, twice.
    np.testing.assert_array_equal(np.bincount(np.concatenate(asked)), [10] * 12)
    assert max(widths) == 6  # no end that was not drawn
    assert all(0.0 <= epoch["reward"] <= 10.0 and np.isfinite(epoch["loss"]) for epoch in logs)
    with monkeypatch.context() as patch:
        die_after(patch, CheckpointAndStop, "on_train_batch_end", 3)
        with pytest.raises(Killed):
            run(tmp_path / "broken", soft_run, tiny, *flags)
    said, _ = run(tmp_path / "broken", soft_run, tiny, *flags)
    assert "Resuming at epoch 1, step 2." in said
    assert_same_runs(tmp_path / "whole" / "run", tmp_path / "broken" / "run")


@pytest.mark.slow
def test_devices_share_the_images_of_a_batch_however_few(soft_run, tmp_path, tiny, unvalidated):
    # An image a batch: one of the two devices has none.
    flags, strategy = ("--fit.batch_size", "1"), make_strategy("mirrored")
    _, logs = run(tmp_path, soft_run, tiny, *flags, strategy=strategy)
    assert logs[0]["reward"] > 0 and np.isfinite(logs[0]["loss"])
    assert np.isfinite(logs[0]["gradient_norm"])
