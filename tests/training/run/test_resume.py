"""A run that is stopped, at whatever moment, ends like one that was not; early stopping."""

import gc
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from sat_tf.inference import weights
from sat_tf.layers.encoder import Encoder
from sat_tf.util.errors import RunError
from tests.training.run.stopped_runs import (
    Killed,
    assert_same,
    assert_same_runs,
    die_after,
    evaluation_of,
)
from tests.training.small_runs import train
from training.data.batches import prefetched
from training.run.checkpoints import Checkpoints, Progress
from training.run.config import FitConfig
from training.run.logs import Validate
from training.run.resume import CheckpointAndStop, best_epoch, train_epochs
from training.run.signals import Interrupts
from training.run.strategy import make_strategy

EVERY_OTHER = ("--fit.epochs", "2", "--fit.checkpoint_steps", "2")
HARD = ("--recipe", "scenes_hard", "--decoder.output_dropout", "0.3")
ROOT = Path(__file__).resolve().parents[3]


def train_through(folder: Path, flags: tuple[str, ...], *moments: tuple) -> list[str]:
    """A run that dies at each of the moments and is started again; its output."""
    said: list[str] = []
    for moment in moments:
        with pytest.MonkeyPatch.context() as patch:
            die_after(patch, *moment)
            with pytest.raises(Killed):
                train(folder / "run", *flags, say=said.append)
    train(folder / "run", *flags, say=said.append)
    return [line for line in said if "Resuming" in line]


@pytest.mark.slow
def test_a_run_killed_at_every_turn_ends_like_an_unbroken_one(hard_run, tmp_path, tiny, fine_tuned):
    moments = [
        (CheckpointAndStop, "on_train_batch_end", 3),
        (Validate, "on_epoch_end", 1),
        (weights, "save_weights", 1),
        (tf.train.Checkpoint, "write", 1),
        (Checkpoints, "save", 1),
    ]
    flags = (*tiny, *HARD, *fine_tuned, *EVERY_OTHER, "--fit.figures", "2")
    said = train_through(tmp_path, flags, *moments)
    places = ["1, step 2", *["1, step 5"] * 3, "2, step 0"]
    assert said == [f"Resuming at epoch {place}." for place in places]
    assert_same_runs(tmp_path / "run", hard_run)


def write_encoder(path: Path, seed: int) -> None:
    keras.utils.set_random_seed(seed)
    Encoder("scenes_cnn", 64).network.save_weights(path)


def test_a_frozen_encoder_is_the_checkpoint_s_whatever_its_file_holds(tmp_path, tiny, unvalidated):
    weights = tmp_path / "encoder.weights.h5"
    write_encoder(weights, 1)
    flags = (*tiny, "--encoder.trainable", "False", "--encoder.weights", str(weights))
    flags += ("--fit.checkpoint_steps", "2")
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        die_after(patch, CheckpointAndStop, "on_train_batch_end", 3)
        train(tmp_path / "run", *flags)
    stores = sorted((tmp_path / "cache" / "features").iterdir())
    write_encoder(weights, 2)
    assert train_through(tmp_path, flags) == ["Resuming at epoch 1, step 2."]
    assert sorted((tmp_path / "cache" / "features").iterdir()) == stores


# Early stopping, the best epoch and the steps that are left.


class Model:
    """As much of a captioner as `CheckpointAndStop` needs."""

    stop_training = False
    epoch = 0


class Kept:
    """Checkpoints that remember saved states."""

    def __init__(self):
        self.states = []

    def save(self, progress: Progress) -> None:
        self.states.append(Progress(**vars(progress)))


def keep(monkeypatch, scores, monitor="bleu_4", patience=2, progress=None):
    """Returns the epochs that were the best, the states kept and the model.

    Scores are of the monitor, or by name.
    """
    best, model, kept = [], Model(), Kept()
    monkeypatch.setattr(weights, "save_weights", lambda model, path: best.append(model.epoch))
    progress = progress or Progress()
    config = FitConfig(monitor=monitor, patience=patience)
    callback = CheckpointAndStop(kept, progress, config, 1, Path("best"), Interrupts())
    callback.set_model(model)
    for epoch, score in enumerate(scores, start=progress.epoch):
        score = score if isinstance(score, dict) else {monitor: score}
        model.epoch = epoch + 1
        callback.on_epoch_begin(epoch)
        callback.on_epoch_end(epoch, {f"val_{name}": value for name, value in score.items()})
        if model.stop_training:
            break
    return best, kept.states, model


@pytest.mark.parametrize(
    ("monitor", "scores", "best", "waited"),
    [
        ("bleu_4", [1.0, 3.0, 2.0, 3.0, 9.0], [1, 2], 2),
        ("bleu_4", [1.0, 0.0, 2.0, 0.0, 3.0], [1, 3, 5], 0),
        ("nll", [3.0, 2.0, 2.5, 2.0], [1, 2], 2),
    ],
    ids=["stops after patience", "better starts it anew", "lower nll is better"],
)
def test_training_stops_after_patience_epochs_without_a_better_score(
    monkeypatch, monitor, scores, best, waited
):
    found, states, model = keep(monkeypatch, scores, monitor)
    last = states[-1]
    assert found == best and model.stop_training == last.stopped == (waited == 2)
    assert (last.epoch, last.best_epoch, last.waited) == (best[-1] + waited, best[-1], waited)
    assert abs(last.best_score) == scores[best[-1] - 1]


def test_the_last_epoch_is_kept_whatever_the_scores_are(monkeypatch):
    scores = [{"cider": 9.0, "nll": 1.0}, {"cider": 0.0, "nll": 2.0}, {"nll": np.nan}]
    best, states, model = keep(monkeypatch, scores, monitor="last", patience=1)
    assert best == [1, 2, 3] and not model.stop_training
    assert best_epoch(states[-1], "last").startswith("Kept epoch 3, the last;")


@pytest.mark.parametrize(
    ("epochs", "best", "rank"),
    [
        # No epoch has a BLEU-4: CIDEr decides, and while that is 0 the nll.
        ([(np.nan, 0, 5.1), (0.0, 0, 4.9), (np.nan, 0, 5.0)], 2, 2),
        ([(np.nan, 0, 4.1), (np.nan, 3, 4.9), (np.nan, 9, 5.0), (np.nan, 8, 3.0)], 3, 1),
        # Once one has, no epoch without counts as better.
        ([(np.nan, 20, 4.1), (2.0, 3, 4.9), (np.nan, 30, 4.0)], 2, 0),
        ([(2.0, 3, 4.9), (3.0, 1, 4.9), (0.0, 30, 4.0)], 2, 0),
    ],
)
def test_an_undefined_bleu_decides_nothing(monkeypatch, epochs, best, rank):
    scores = [dict(zip(("bleu_4", "cider", "nll"), one, strict=True)) for one in epochs]
    progress = keep(monkeypatch, scores, patience=9)[1][-1]
    assert (progress.best_epoch, progress.best_rank) == (best, rank)
    assert progress.waited == len(epochs) - best


def test_a_loss_that_is_not_finite_ends_training_before_its_weights_are_best(monkeypatch):
    best = []
    monkeypatch.setattr(weights, "save_weights", lambda model, path: best.append(path))
    callback = CheckpointAndStop(Kept(), Progress(), FitConfig(), 1, Path("best"), Interrupts())
    callback.set_model(Model())
    callback.on_epoch_begin(0)
    with pytest.raises(ValueError, match=r"loss of epoch 1 is nan: .*optimizer\.learning-rate"):
        callback.on_epoch_end(0, {"loss": np.nan, "val_bleu_4": 0.0})
    assert not best


def test_an_epoch_with_fewer_steps_than_were_done_of_it_is_an_error():
    progress = Progress(epoch=1, step=7)
    with pytest.raises(RunError, match=r"stopped at epoch 2, step 7, but an epoch now has 6 steps"):
        train_epochs(None, None, 3, 6, progress, [])


@pytest.mark.parametrize("devices", ["none", "mirrored"])
def test_nothing_reads_ahead_any_more_when_training_has_ended(devices):
    progress, strategy = Progress(), make_strategy(devices) or tf.distribute.get_strategy()
    with strategy.scope():
        model = keras.Sequential([keras.Input([1]), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    end = keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: progress.end_epoch(0.0))
    batches = prefetched(lambda number: (tf.ones([2, 1]), tf.ones([2, 1])), 0)
    gc.collect()
    train_epochs(model, lambda *_: batches, 1, 9, progress, [end])
    assert not [one for one in gc.get_objects() if isinstance(one, tf.data.Iterator)]


def test_another_score_that_decided_or_that_none_did_is_told_with_the_reason():
    progress = Progress(epoch=4, best_epoch=3, best_score=13.9, best_rank=1, seconds=90.0)
    assert best_epoch(progress, "bleu_4") == (
        "Best epoch 3 of 4: cider 13.90; 1.5 minutes of training. "
        "`bleu_4` was 0 or undefined in every epoch."
    )
    with pytest.raises(RunError, match=r"`nll` was never a number, in 4 epochs.*diverged"):
        best_epoch(Progress(epoch=4), "nll")


# Real processes. SAT_TF_KILLS=20 kills them more often.

KILLS = int(os.environ.get("SAT_TF_KILLS", "2"))
FROZEN = ("--encoder.trainable", "False", "--fit.checkpoint_steps", "3", "--deterministic")
FROZEN += ("--fit.batch_by", "image")
# Moment of `killed_command.py` -> the longest wait after it, seconds.
MOMENTS = {"store": 0.1, "notes": 0.01, "step": 0.05, "checkpoint": 0.02, "validate": 0.5}
MOMENTS |= {"best": 0.01, "log": 0.01, "evaluate": 0.5, "report": 0.02}
ORDER = ("store", "checkpoint", "step", "evaluate", "best", "notes", "validate", "report", "log")


def command(folder: Path, *flags: str) -> list[str]:
    return [*flags, "--run-dir", str(folder / "run"), "--cache-dir", str(folder / "cache")]


def start(moment: str, call: int, wait: float, *flags: str) -> subprocess.Popen:
    """The training command, in a process that ends itself at that moment."""
    driver = [sys.executable, str(Path(__file__).with_name("killed_command.py"))]
    environment = {**os.environ, "PATH": "", "JAVA_HOME": "", "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [*driver, moment, str(call), str(wait), *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    )


def plan(kills: int, seed: int) -> list[tuple[str, int, float]]:
    """Moments, in the order of a run; which call of each, and how long after it."""
    draw = random.Random(seed)
    early, late = ("store", "notes"), ("evaluate", "report")
    moments = [ORDER[k % len(ORDER)] for k in range(kills)]
    moments.sort(key=lambda m: 0 if m in early else 2 if m in late else 1)
    often = ("step", "checkpoint")
    return [
        (m, draw.randint(1, 3) if m in often else 1, draw.uniform(0, MOMENTS[m])) for m in moments
    ]


@pytest.mark.slow
@pytest.mark.timeout(600 + 120 * KILLS)
def test_stopped_and_killed_processes_end_like_an_unbroken_one(tmp_path, tiny):
    seed = int(os.environ.get("SAT_TF_KILLS_SEED", "0"))
    flags = (*tiny, *HARD, *FROZEN, "--fit.epochs", str(2 + KILLS // 3))
    process = start("signal", 2, int(signal.SIGTERM), *command(tmp_path / "killed", *flags))
    said = process.communicate()[0]
    assert process.returncode == 128 + signal.SIGTERM and "Traceback" not in said, said
    where = "The state at epoch 1, step 2 is saved."
    assert f"Stopped by SIGTERM. {where} Start the same command again to resume." in said
    shutil.rmtree(tmp_path / "killed" / "cache")  # the next one writes its stores anew
    died = 0
    for moment in plan(KILLS, seed):
        process = start(*moment, *command(tmp_path / "killed", *flags))
        said = process.communicate()[0]
        assert process.returncode in (0, -signal.SIGKILL), (moment, said)
        died += process.returncode != 0
        print(f"{moment}: {process.returncode}, {said.strip().splitlines()[-1:]}")
    assert died == KILLS
    for folder in ("killed", "whole"):
        process = start("never", 1, 0.0, *command(tmp_path / folder, *flags))
        said = process.communicate()[0]
        assert process.returncode == 0, said
    one, other = tmp_path / "killed" / "run", tmp_path / "whole" / "run"
    assert_same_runs(one, other)
    assert_same(evaluation_of(one), evaluation_of(other))
    assert not list(one.rglob(".*.tmp"))
