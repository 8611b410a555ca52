"""Runs that are trained for a reward, from a run that was trained word by word."""

from __future__ import annotations

import keras
import numpy as np
import pytest

from tests.training.run_state.stopped_runs import Killed, assert_same_runs, die_after
from tests.training.small_runs import train
from training.distributed.strategies import make_strategy
from training.loop.callbacks import CheckpointAndStop
from training.rewards.ngrams import CiderReward

REWARDED = ("--reward.metric", "cider", "--fit.batch_size", "5")


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
def test_a_rewarded_run_draws_captions_of_every_picture_and_goes_on_where_it_was(
    soft_run, tmp_path, tiny, monkeypatch
):
    asked, widths = [], set()
    reward = CiderReward.__call__

    def ask(self, pictures, captions):
        asked.append(pictures)
        widths.add(captions.shape[1])
        return reward(self, pictures, captions)

    monkeypatch.setattr(CiderReward, "__call__", ask)
    flags = ("--fit.epochs", "2", "--fit.checkpoint_steps", "2", "--reward.max_length", "6")
    said, logs = run(tmp_path / "whole", soft_run, tiny, *flags)
    assert "captions drawn per image: 5" in said and "images per batch: 5" in said
    # Twelve pictures, five captions of each, twice.
    np.testing.assert_array_equal(np.bincount(np.concatenate(asked)), [10] * 12)
    assert max(widths) == 6 + 1  # and the end
    assert all(0.0 <= epoch["reward"] <= 10.0 and np.isfinite(epoch["loss"]) for epoch in logs)
    with monkeypatch.context() as patch:
        die_after(patch, CheckpointAndStop, "on_train_batch_end", 3)
        with pytest.raises(Killed):
            run(tmp_path / "broken", soft_run, tiny, *flags)
    said, _ = run(tmp_path / "broken", soft_run, tiny, *flags)
    assert "Resuming at epoch 1, step 2." in said
    assert_same_runs(tmp_path / "whole" / "run", tmp_path / "broken" / "run")


@pytest.mark.slow
def test_devices_share_the_pictures_of_a_batch_however_few(soft_run, tmp_path, tiny):
    # A picture a batch: one of the two devices has none.
    flags, strategy = ("--fit.batch_size", "1"), make_strategy("mirrored")
    _, logs = run(tmp_path, soft_run, tiny, *flags, strategy=strategy)
    assert logs[0]["reward"] > 0 and np.isfinite(logs[0]["loss"])
    assert np.isfinite(logs[0]["gradient_norm"])
