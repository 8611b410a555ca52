"""The epochs that a run has left."""

from __future__ import annotations

import pytest

from sat_tf.runs import RunError
from training.distributed.collectives import SingleProcess
from training.loop.epochs import best_epoch, train_epochs
from training.run_state.checkpoints import Progress


def test_an_epoch_with_fewer_steps_than_were_done_of_it_is_an_error():
    progress = Progress(epoch=1, step=7)
    with pytest.raises(RunError, match=r"stopped at epoch 2, step 7, but an epoch now has 6 steps"):
        train_epochs(None, None, 3, 6, progress, [], SingleProcess())


def test_the_best_epoch_is_told_with_its_score():
    progress = Progress(epoch=3, best_epoch=2, best_score=-1.5, seconds=90.0)
    said = "Best epoch 2 of 3: nll 1.50; 1.5 minutes of training."
    assert best_epoch(progress, "nll") == said


def test_another_score_that_decided_is_told_with_the_reason():
    progress = Progress(epoch=4, best_epoch=3, best_score=13.9, best_rank=1, seconds=90.0)
    assert best_epoch(progress, "bleu_4") == (
        "Best epoch 3 of 4: cider 13.90; 1.5 minutes of training. "
        "`bleu_4` was 0 or undefined in every epoch."
    )


def test_a_run_without_a_best_epoch_says_why():
    with pytest.raises(RunError, match=r"`nll` was never a number, in 4 epochs.*diverged"):
        best_epoch(Progress(epoch=4), "nll")
