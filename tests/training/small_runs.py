"""Runs of seconds, trained without the command."""

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import pytest
import tensorflow as tf

from sat_tf.inference.captioning import TrainedCaptioner
from sat_tf.layers.encoder import Encoder
from sat_tf.scores.meteor_words import TablesError
from training import train as command
from training.evaluation import scores as captions
from training.run import build, ownership
from training.run.config import RunConfig, read_run_config
from training.run.logs import Validate
from training.train import parse


def quiet(_: str) -> None:
    """Says nothing."""


def check_run_dir(run_dir: Path, *flags: str) -> None:
    """Checks the folder of a run of these flags; see `ownership`."""
    config = parse(["--run-dir", str(run_dir), *flags]).config
    ownership.check_run_dir(run_dir, config, read_run_config)


def read(
    run_dir: Path, *flags: str, data_dir: Path | None = None, say: Callable[[str], Any] = quiet
) -> tuple[RunConfig, command.Read]:
    """Reads the data of such a run; returns its configuration, too."""
    places = [
        "--run-dir",
        str(run_dir),
        *([] if data_dir is None else ["--data-dir", str(data_dir)]),
    ]
    config = parse([*places, *flags]).config
    words = build.kept_words_of(config, run_dir)
    places = run_dir, run_dir.parent / "cache", data_dir
    return config, command.read_data(config, *places, words, say)


def train(
    run_dir: Path,
    *flags: str,
    data_dir: Path | None = None,
    strategy: tf.distribute.Strategy | None = None,
    say: Callable[[str], Any] = quiet,
    callbacks: tuple[keras.callbacks.Callback, ...] = (),
) -> TrainedCaptioner:
    """Trains such a run; the callbacks run last, feature stores are next to the run's folder."""
    config, found = read(run_dir, *flags, data_dir=data_dir, say=say)
    model = build.first_model(config, found.data, found.folder, strategy, say)
    return command.train(config, found, model, say=say, callbacks=callbacks)


def scenes_encoder(folder: Path) -> list[str]:
    """Flags of the scenes' encoder with weights that it writes into the folder."""
    path = folder / "encoder.weights.h5"
    Encoder("scenes_cnn", 64).network.save_weights(path)
    size = ["--encoder.name", "scenes_cnn", "--encoder.image_size", "64"]
    return [*size, "--encoder.weights", str(path)]


def exit_of(capsys: pytest.CaptureFixture, main: Callable, *argv: object) -> tuple[int, str]:
    """Exit status and standard error of a command line that ends early."""
    try:
        status = main([str(word) for word in argv])
    except SystemExit as stop:
        status = stop.code
    return status, capsys.readouterr().err


def report_of(folder: Path) -> dict[str, Any]:
    """The report in the folder of an evaluation."""
    return json.loads((folder / "report.json").read_text("utf-8"))


@contextlib.contextmanager
def meteor_hidden():
    """No METEOR inside: indexing its tables costs more than a tiny run."""
    with pytest.MonkeyPatch.context() as patch:
        hide_meteor(patch)
        yield


def hide_meteor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes METEOR's tables away."""

    def missing(*_):
        raise TablesError("there are no tables")

    monkeypatch.setattr(captions, "meteor_of", missing)


def skip_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes each epoch the best so far, without a score."""

    def improve(self, epoch, logs=None):
        logs |= dict.fromkeys(("val_bleu_4", "val_cider"), epoch + 1.0)
        logs["val_error"] = -float(epoch)

    monkeypatch.setattr(Validate, "on_epoch_end", improve)


def record_models(monkeypatch: pytest.MonkeyPatch) -> list[keras.Model]:
    """Models as they are compiled, in their order."""
    models, compile_model = [], build.compile_model

    def compiled(one, *arguments):
        models.append(one)
        compile_model(one, *arguments)

    monkeypatch.setattr(build, "compile_model", compiled)
    return models
