"""TensorBoard's files of a resumed run: no point twice, none missing."""

from __future__ import annotations

import tensorflow as tf

from tests.training.run_state.stopped_runs import logs_of
from training.run_state.logs import TensorBoardScalars, remove_from


def log(folder, *epochs: int) -> None:
    """TensorBoardScalars of these epochs, in a file of their own."""
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


def test_a_file_with_nothing_to_forget_is_left_alone(tmp_path):
    log(tmp_path / "logs", 0, 1)
    (path,) = (tmp_path / "logs").iterdir()
    before = path.stat()
    remove_from(tmp_path / "logs", 2)
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    remove_from(tmp_path / "nowhere", 0)


def test_a_half_written_record_is_removed_and_those_before_it_stay(tmp_path):
    log(tmp_path / "logs" / "train", 0, 1)
    (path,) = (tmp_path / "logs" / "train").iterdir()
    path.write_bytes(path.read_bytes()[:-5])
    remove_from(tmp_path / "logs", 5)
    log(tmp_path / "logs" / "train", 1)
    assert steps_of(tmp_path) == {"train epoch_loss": [0, 1]}


def test_an_epoch_is_in_the_file_as_soon_as_it_has_ended(tmp_path):
    callback = TensorBoardScalars(str(tmp_path / "logs"), write_graph=False)
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    callback.set_model(model)
    callback.on_epoch_end(0, {"loss": 1.0, "val_nll": 2.0})
    found = steps_of(tmp_path)
    assert found["train epoch_loss"] == found["validation epoch_nll"] == [0]
    callback.on_train_end()
