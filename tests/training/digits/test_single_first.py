"""Single digits before pairs, by one command."""

from __future__ import annotations

import dataclasses
import shutil

import pytest

from sat_tf.run_folder import RunFolder
from training.digits import train
from training.digits.config import read_digit_config
from training.digits.recipes import RECIPES, single_dir, single_run
from training.run_state.checkpoints import last_progress
from training.train import main

NARROW = (
    *("--model.glimpses", "2", "--model.glimpse-size", "4", "--model.hidden-dim", "4"),
    *("--model.glimpse-dim", "4", "--model.glimpse-hidden-dim", "4", "--data.size", "48"),
    *("--data.dev_digits", "20", "--fit.batch_size", "16", "--fit.figures", "0"),
)


@pytest.mark.parametrize("recipe", ["dram_pairs", "dram_pairs_no_context", "ram_pairs"])
def test_single_digits_have_the_pairs_own_model_canvas_and_seed(recipe):
    pairs = dataclasses.replace(RECIPES[recipe], seed=3)
    pairs = dataclasses.replace(pairs, data=dataclasses.replace(pairs.data, size=50, limit=70))
    single = single_run(pairs)
    assert single.system in ("ram", "dram") and single.seed == 3
    assert (single.data.size, single.data.limit) == (50, 70)
    assert single.fit.epochs == pairs.single_epochs
    shape = {"random_steps": 0}
    assert dataclasses.replace(single.model, **shape) == dataclasses.replace(pairs.model, **shape)


def test_the_recipe_of_single_digits_is_what_comes_first():
    for recipe, first in (("dram_pairs", "dram_digit"), ("ram_pairs", "ram_digit")):
        assert single_run(RECIPES[recipe]) == RECIPES[first]


def test_nothing_comes_first_where_a_run_to_start_from_is_given_or_no_epochs_for_it():
    pairs = RECIPES["dram_pairs"]
    assert single_run(dataclasses.replace(pairs, init_from="RUN")) is None
    assert single_run(dataclasses.replace(pairs, single_epochs=0)) is None
    assert single_run(RECIPES["convnet_addition"]) is None
    assert single_run(RECIPES["ram_28"]) is None


def test_one_command_trains_both_and_resumes_both(
    mnist, tmp_path, capsys, monkeypatch, unvalidated
):
    monkeypatch.setattr(train, "evaluate_run", lambda *_: {})
    run_dir = tmp_path / "run"
    command = ["--recipe", "ram_pairs", *NARROW, "--single-epochs", "1", "--fit.epochs", "2"]
    command += ["--data-dir", str(mnist), "--run-dir", str(run_dir)]
    assert main(command) == 0
    first = single_dir(run_dir)
    said = capsys.readouterr().out
    assert f"Recipe ram_digit, seed 0, in {first}." in said
    assert f"Initialized with weights of {first}: " in said
    assert last_progress(first / "checkpoints").epoch == 1
    assert last_progress(run_dir / "checkpoints").epoch == 2
    assert read_digit_config(run_dir).init_from == str(first)

    before = [RunFolder(folder).best_weights.read_bytes() for folder in (first, run_dir)]
    assert main(command) == 0
    # Without its checkpoint, the first is not trained again; the second resumes as the error says.
    shutil.rmtree(first / "checkpoints")
    assert main(command) == 2
    assert f"`--init-from {first}` starts from its best weights" in capsys.readouterr().err
    assert main([*command, "--init-from", str(first)]) == 0
    assert "nothing left to train" in capsys.readouterr().out
    assert [RunFolder(folder).best_weights.read_bytes() for folder in (first, run_dir)] == before
