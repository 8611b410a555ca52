"""Files that teach beside the captions are read before annotations are computed."""

from __future__ import annotations

import pytest

from tests.training.small_runs import exit_of
from training.train import main

SCENES = ["--recipe", "scenes_soft", "--data.limit", "8", "--encoder.trainable", "False"]
SUPERVISED = ["--attention.supervision-weight", "1"]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ([*SUPERVISED, "--locator"], "is not a word locator"),
        ([*SUPERVISED, "--boxes"], "expected a phrase with its boxes"),
        (["--fit.distillation-weight", "1", "--predictions"], "does not hold predictions"),
    ],
)
def test_a_damaged_file_is_an_error_at_once(tmp_path, capsys, monkeypatch, flags, said):
    def too_late(*_):
        raise AssertionError("annotations are computed")

    monkeypatch.setattr("training.tasks.captioning.task.open_sources", too_late)
    damaged = tmp_path / f"damaged.{'jsonl' if '--boxes' in flags else 'npz'}"
    damaged.write_bytes(b"nothing")
    argv = [*SCENES, *flags, damaged, "--run-dir", tmp_path / "run"]
    status, found = exit_of(capsys, main, *argv)
    assert status == 2 and said in " ".join(found.split())
