"""Progress of the epochs: short enough for a terminal, readable in a log."""

from __future__ import annotations

import os
import sys

import pytest

from training.loop.epoch_progress import EpochProgress

METRICS = ("gradient_norm", "loss", "nll", "beta", "alpha_entropy", "alpha_variation", "accuracy")
LOGS = dict.fromkeys(METRICS, 44.87441)


def run_epoch(done: int = 0) -> None:
    progress = EpochProgress(epochs=10, steps=500)
    progress.set_params({"steps": 500 - done})
    progress.on_epoch_begin(2)
    for step in range(500 - done):
        progress.on_train_batch_end(step, LOGS)
    scores = {"val_bleu_4": float("nan"), "learning_rate": 7.2352e-04, "val_cider": 28.699}
    progress.on_epoch_end(2, LOGS | scores)


def test_the_bar_fits_a_terminal_of_100_columns(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys.stderr, "fileno", lambda: 2, raising=False)
    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((100, 24)))
    run_epoch()
    drawn = capsys.readouterr().err.split("\r")
    assert max(map(len, drawn)) <= 100
    assert "loss=44.87, nll=44.87, beta=44.87" in drawn[-1] and "accuracy" not in drawn[-1]


@pytest.mark.parametrize("done", [0, 490])
def test_a_log_gets_few_lines_and_the_scores_of_the_epoch(capsys, done):
    run_epoch(done)
    shown = capsys.readouterr()
    assert len(shown.err.splitlines()) <= 2
    assert "Epoch 3/10: 500/500 steps" in shown.err.splitlines()[-1]
    (line,) = shown.out.splitlines()
    assert line.startswith("Epoch 3/10: 0 s, gradient_norm 44.87, loss 44.87")
    assert line.endswith("val_bleu_4 undefined, learning_rate 0.000724, val_cider 28.70")
