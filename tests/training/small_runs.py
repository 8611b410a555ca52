"""Runs of seconds, trained without the command."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import pytest
import tensorflow as tf

from training.distributed.collectives import SingleProcess
from training.loop import fit
from training.metrics import captions
from training.tasks.base import Places, Task
from training.tasks.registry import task_type
from training.train import parse


def quiet(_: str) -> None:
    """Says nothing."""


def make_task(run_dir: Path, *flags: str, data_dir: Path | None = None) -> Task:
    """The task of a command line; feature stores go beside the run's folder."""
    config = parse([*flags]).config
    return task_type(config)(config, Places(run_dir, run_dir.parent / "cache", data_dir))


def train(
    run_dir: Path,
    *flags: str,
    data_dir: Path | None = None,
    strategy: tf.distribute.Strategy | None = None,
    say: Callable[[str], Any] = quiet,
    callbacks: tuple[keras.callbacks.Callback, ...] = (),
) -> Any:
    """Trains such a run; the callbacks run last."""
    make_callbacks = fit.make_callbacks
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fit, "make_callbacks", lambda *a: [*make_callbacks(*a), *callbacks])
        task = make_task(run_dir, *flags, data_dir=data_dir)
        return fit.fit(task, SingleProcess(strategy), say)


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
def java_hidden():
    """No Java inside: starting it costs more than a tiny run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(captions, "find_java", lambda: None)
        yield


def skip_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes each epoch the best so far, without a score."""

    def improve(self, epoch, logs=None):
        logs |= dict.fromkeys(("val_bleu_4", "val_cider"), float(epoch + 1))
        logs["val_error"] = -float(epoch)

    monkeypatch.setattr(fit.Validate, "on_epoch_end", improve)


def record_models(monkeypatch, task_kind: type[Task]) -> list[keras.Model]:
    """Models as they are compiled, in their order."""
    models, compile_model = [], task_kind.compile

    def compiled(self, model, *arguments):
        models.append(model)
        compile_model(self, model, *arguments)

    monkeypatch.setattr(task_kind, "compile", compiled)
    return models
