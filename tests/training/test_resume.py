"""A run that is stopped, at whatever moment, ends like one that was not, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from training import fit as fit_module
from training.callbacks import Keep, Validate
from training.checkpoints import Checkpoints
from training.fit import Places, fit
from training.train import main, parse

HARD = ("--recipe", "scenes_hard", "--fit.epochs", "2", "--decoder.output_dropout", "0.3")


class Killed(BaseException):
    """Stands for SIGKILL."""


def quiet(_: str) -> None:
    """Says nothing."""


def assert_same(one: dict, other: dict) -> None:
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_equal(one[name], other[name], err_msg=name)


def die_after(patch, owner, name: str, call: int) -> None:
    """The process ends as soon as this function has been called so often."""
    original, calls = getattr(owner, name), iter(range(1, 1000))

    def die(*args, **kwargs):
        original(*args, **kwargs)
        if next(calls) == call:
            raise Killed

    patch.setattr(owner, name, die)


def test_a_run_killed_at_many_moments_ends_like_an_unbroken_one(
    hard_run, contents, tmp_path, tiny, monkeypatch
):
    run_dir, said = tmp_path / "run", []
    flags = (*tiny, *HARD, "--fit.checkpoint_steps", "2")
    moments = [
        (Keep, "on_train_batch_end", 3),
        (Validate, "on_epoch_end", 1),
        (fit_module.runs, "save_weights", 1),
        (Keep, "on_train_batch_end", 3),
        (Checkpoints, "save", 2),
    ]
    for moment in moments:
        with monkeypatch.context() as patch:
            die_after(patch, *moment)
            with pytest.raises(Killed):
                fit(parse([*flags]).config, Places(run_dir, tmp_path / "cache"), say=said.append)
    assert main([*flags, "--run-dir", str(run_dir), "--cache-dir", str(tmp_path / "cache")]) == 0
    print([line for line in said if "Going" in line])
    assert_same(contents(run_dir), contents(hard_run))
