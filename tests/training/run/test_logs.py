"""Logs of a run: TensorBoard finds every epoch once, a terminal short lines."""

import io
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer
from tensorboard.util import tensor_util

from sat_tf.objectives.estimators import ROLLOUT_LOGS
from sat_tf.train_step import RunningMeans
from tests.training.run.stopped_runs import logs_of
from training.run.logs import EpochProgress, TensorBoardSteps, remove_from

EVERY_RUN = {
    "train": ("loss", "nll", "learning_rate", "beta", "gradient_norm"),
    "validation": ("bleu_4", "cider", "nll", "distinct"),
}
ATTENTION = ("alpha_entropy", "alpha_variation", "penalty")
HARD = ("baseline", "reward", *ROLLOUT_LOGS)
BOUNDS = ("elbo", "importance_weighted_bound_5", "nwgm_gap", "forward_gap")


def opened(run: Path) -> EventMultiplexer:
    """The run as TensorBoard reads it."""
    return EventMultiplexer().AddRunsFromDirectory(str(run / "logs")).Reload()


def scalars(events: EventMultiplexer, part: str, name: str) -> dict[int, float]:
    (tag,) = [t for t in events.Runs()[part]["tensors"] if t.endswith(f"/{name}")]
    found = events.Tensors(part, tag)
    return {event.step: float(tensor_util.make_ndarray(event.tensor_proto)) for event in found}


def figures(events: EventMultiplexer) -> dict[str, dict[int, np.ndarray]]:
    """Tag -> step -> decoded figure."""
    tags = [tag for tag in events.Runs()["figures"]["tensors"] if tag.startswith("attention/")]
    found = {}
    for tag in tags:
        of_tag = found.setdefault(tag, {})
        for event in events.Tensors("figures", tag):
            # Width, height, then one encoded figure each.
            for content in event.tensor_proto.string_val[2:]:
                of_tag[event.step] = np.asarray(Image.open(io.BytesIO(content)))
    return found


@pytest.mark.parametrize(("kind", "epochs"), [("soft", 2), ("hard", 2), ("none", 1)])
def test_tensorboard_finds_the_scalars_of_every_epoch(request, kind, epochs):
    events = opened(request.getfixturevalue(f"{kind}_run"))
    wanted = {part: list(names) for part, names in EVERY_RUN.items()}
    wanted["train"] += ATTENTION if kind != "none" else ()
    wanted["train"] += HARD if kind == "hard" else ()
    wanted["validation"] += BOUNDS if kind == "hard" else ()
    for part, names in wanted.items():
        for name in names:
            values = scalars(events, part, name)
            assert list(values) == list(range(epochs)), (part, name)
            defined = np.isfinite(list(values.values()))
            assert defined.all() or name == "bleu_4", (part, name)  # hardly trained
    assert all(0 < value < 1 for value in scalars(events, "train", "beta").values())


def test_tensorboard_finds_the_loss_of_every_twentieth_batch_alone(tmp_path):
    means = RunningMeans(["loss", "nll"])
    model = SimpleNamespace(metrics=[means], distribute_strategy=tf.distribute.get_strategy())
    curve = TensorBoardSteps(tmp_path / "logs", lambda: step)
    curve.set_model(model)
    curve.on_train_begin()
    for step in range(15, 45):  # resumed at step 15, each batch of other size
        curve.on_train_batch_begin(step)
        means.update_state({"loss": (float(step), step), "nll": (-1.0, 1.0)})
        curve.on_train_batch_end(step)
    events = opened(tmp_path)
    np.testing.assert_allclose(list(scalars(events, "steps", "loss").items()), [(20, 20), (40, 40)])
    assert list(scalars(events, "steps", "nll").values()) == [-1.0, -1.0]


@pytest.mark.parametrize(("kind", "epochs"), [("hard", 2), ("none", 1)])
def test_tensorboard_finds_the_attention_figures_of_every_epoch(request, kind, epochs):
    found = figures(opened(request.getfixturevalue(f"{kind}_run")))
    assert len(found) == 2
    for of_tag in found.values():
        assert list(of_tag) == list(range(epochs))
        assert all(f.ndim == 3 and min(f.shape[:2]) >= 64 and f.std() > 0 for f in of_tag.values())


def log(folder, *epochs: int) -> None:
    """Points of these epochs, in a file of their own."""
    writer = tf.summary.create_file_writer(str(folder))
    with writer.as_default():
        for epoch in epochs:
            tf.summary.scalar("epoch_loss", 0.5 * epoch, step=epoch)
    writer.close()


def steps_of(run) -> dict[str, list[int]]:
    return {name: [step for step, _ in points] for name, points in logs_of(run).items()}


def test_epochs_that_come_again_are_forgotten_wherever_they_are(tmp_path):
    log(tmp_path / "logs" / "train", 0, 1)
    log(tmp_path / "logs" / "train", 2, 3)
    log(tmp_path / "logs" / "validation", 0, 1, 2)
    remove_from(tmp_path / "logs", 2)
    log(tmp_path / "logs" / "train", 2)
    assert steps_of(tmp_path) == {
        "train epoch_loss": [0, 1, 2],
        "validation epoch_loss": [0, 1],
    }
    assert not list(tmp_path.rglob(".*"))


def test_a_half_written_record_is_removed_and_those_before_it_stay(tmp_path):
    log(tmp_path / "logs" / "train", 0, 1)
    (path,) = (tmp_path / "logs" / "train").iterdir()
    path.write_bytes(path.read_bytes()[:-5])
    remove_from(tmp_path / "logs", 5)
    log(tmp_path / "logs" / "train", 1)
    assert steps_of(tmp_path) == {"train epoch_loss": [0, 1]}


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
