"""Logs of a run: TensorBoard finds every epoch once, a terminal short lines."""

import io
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer
from tensorboard.util import tensor_util

from sat_tf.objectives.estimators import ROLLOUT_LOGS
from tests.training.run.stopped_runs import logs_of
from training.run.logs import EpochProgress, remove_from

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


@pytest.mark.parametrize(("kind", "epochs"), [("hard", 2), ("none", 1)])
def test_tensorboard_finds_the_attention_figures_of_every_epoch(request, kind, epochs):
    found = figures(opened(request.getfixturevalue(f"{kind}_run")))
    assert len(found) == 2
    for of_tag in found.values():
        assert list(of_tag) == list(range(epochs))
        assert all(f.ndim == 3 and min(f.shape[:2]) >= 64 and f.std() > 0 for f in of_tag.values())


def log(folder, *epochs: int) -> None:
    """Points of these epochs, in another file."""
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


def test_an_epoch_ends_with_a_line_that_names_the_images_and_no_constant_of_0(capsys):
    progress = EpochProgress(epochs=10, steps=500, images=1000)
    progress.set_params({"steps": 500})
    progress.on_epoch_begin(2)
    logs = dict.fromkeys(("gradient_norm", "loss", "nll", "beta", "accuracy"), 44.87441)
    for step in range(500):
        progress.on_train_batch_end(step, logs)
    scores = {"val_bleu_4": float("nan"), "learning_rate": 7.2352e-04, "val_cider": 28.699}
    progress.on_epoch_end(2, logs | {"penalty": 0.0} | scores)
    shown = capsys.readouterr()
    assert "500/500" in shown.err and "nll=44.87" in shown.err and "accuracy" not in shown.err
    (line,) = shown.out.splitlines()
    assert line.startswith("Epoch 3/10: 0 s, gradient_norm 44.87, loss 44.87")
    assert line.endswith("val_bleu_4 undefined, learning_rate 0.000724, CIDEr (of 1,000) 28.70")
    assert "penalty" not in line
