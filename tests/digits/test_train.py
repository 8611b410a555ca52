"""Digit runs: trained, resumed, refused; single digits before pairs."""

import dataclasses
import shutil

import numpy as np
import pytest
from PIL import Image

from digits import evaluate
from digits.config import RECIPES, read_digit_config, to_text
from digits.evaluate import new_model
from digits.train import main, parse, start_from
from sat_tf.inference.run_folder import RunFolder
from sat_tf.inference.weights import save_weights
from sat_tf.util.errors import RunError
from tests.digits.conftest import train
from tests.training.run.stopped_runs import Killed, assert_same_runs, die_after, logs_of
from tests.training.small_runs import exit_of, report_of
from training.run.checkpoints import last_progress
from training.run.logs import Validate
from training.run.resume import CheckpointAndStop
from training.train import main as train_captioner

HARD = ("--recipe", "digits_queries_hard")


def test_every_recipe_parses_to_itself():
    for name, recipe in RECIPES.items():
        assert parse(["--recipe", name]).config == recipe


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        (["--recipe", "digits_firm"], "digits_firm"),
        (["--recipe", "ram_28_paper"], "`--recipe ram_28_paper` was removed"),
        (["--recipe", "dram_addition"], "take `dram_pairs`"),
        (["--recipe", "digits_soft", "--encoder.name", "vgg19"], "--encoder.name"),
        (["--recipe", "digits_soft", "--model.samples", "1"], "`--model.samples`"),
        (["--recipe", "ram_28", "--optimizer.weight_decay", "1"], "`--optimizer.weight_decay`"),
        (["--recipe", "ram_28", "--fit.precision", "bfloat16"], "--fit.precision"),
    ],
)
def test_a_wrong_flag_is_an_error_that_names_it(capsys, argv, named):
    status, said = exit_of(capsys, main, *argv)
    assert status == 2 and named in said


def test_a_run_leaves_weights_a_report_and_figures(hard_digits_run):
    report = report_of(hard_digits_run / "evaluation" / "dev")
    scores = report["scores"]
    assert report["error"] == scores["error"] == pytest.approx(100 - scores["presence_accuracy"])
    assert {"location_accuracy", "null_accuracy"} < set(scores)
    assert report["examples"] == 20 and report["training"]["epochs"] == 2
    assert report["training"]["minutes"] > 0 and report["system"] == "portions"
    assert "--recipe digits_queries_hard --data.dev_digits 20" in report["command"]
    figures = sorted((hard_digits_run / "evaluation" / "dev" / "figures").iterdir())
    assert len(figures) == 12 and np.asarray(Image.open(figures[0])).ndim == 3
    logs = logs_of(hard_digits_run)
    assert len(logs["figures attention/1"]) == len(logs["validation scores/error"]) == 2
    assert {"train objective/loss", "train objective/reward"} < set(logs)


def test_a_run_killed_ends_like_an_unbroken_one(hard_digits_run, tiny_digits, mnist, tmp_path):
    flags, said = (*HARD, *tiny_digits, "--fit.checkpoint_steps", "2"), []
    for moment in ((CheckpointAndStop, "on_train_batch_end", 2), (Validate, "on_epoch_end", 1)):
        with pytest.MonkeyPatch.context() as patch:
            die_after(patch, *moment)
            with pytest.raises(Killed):
                train(tmp_path / "run", *flags, data_dir=mnist, say=said.append)
    train(tmp_path / "run", *flags, data_dir=mnist, say=said.append)
    assert [line for line in said if "Resuming" in line] == [
        "Resuming at epoch 1, step 2.",
        "Resuming at epoch 1, step 3.",
    ]
    assert_same_runs(tmp_path / "run", hard_digits_run)


def test_another_run_s_folder_is_refused(hard_digits_run, tiny_digits, tmp_path, capsys):
    flags = (*HARD, *tiny_digits)
    with pytest.raises(RunError, match="`model.samples` is 5 there and 6 here"):
        train(hard_digits_run, *flags, "--model.samples", "6")
    assert train_captioner(["--recipe", "scenes_soft", "--run-dir", str(hard_digits_run)]) == 2
    assert "of the system 'portions'" in capsys.readouterr().err
    (tmp_path / "config.json").write_text("{}")
    assert main(["--recipe", "digits_soft", *tiny_digits, "--run-dir", str(tmp_path)]) == 2
    assert "not a run of a digit system" in capsys.readouterr().err


NARROW = (
    *("--model.glimpses", "2", "--model.glimpse-size", "4", "--model.hidden-dim", "4"),
    *("--model.glimpse-dim", "4", "--model.glimpse-filters", "1", "--data.size", "48"),
    *("--data.dev_digits", "20", "--fit.batch_size", "16", "--fit.figures", "0"),
)


@pytest.mark.slow
def test_one_command_trains_and_resumes_both(mnist, tmp_path, capsys, monkeypatch, unvalidated):
    monkeypatch.setattr(evaluate, "evaluate_run", lambda *_: {})
    run_dir = tmp_path / "run"
    command = ["--recipe", "dram_pairs", *NARROW, "--single-epochs", "1", "--fit.epochs", "2"]
    command += ["--data-dir", str(mnist), "--run-dir", str(run_dir)]
    assert main(command) == 0
    first = tmp_path / "run_single"
    said = capsys.readouterr().out
    assert f"Recipe dram_digit, seed 0, in {first}." in said
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


SMALL = {"glimpses": 2, "glimpse_dim": 4, "hidden_dim": 4, "glimpse_filters": 1}


def small(recipe: str):
    base = RECIPES[recipe]
    return dataclasses.replace(base, model=dataclasses.replace(base.model, **SMALL))


def test_a_run_starts_from_all_that_fits_of_another(tmp_path):
    theirs, config = new_model(small("dram_digit")), small("dram_pairs")
    (tmp_path / "config.json").write_text(to_text(small("dram_digit")))
    save_weights(theirs, RunFolder(tmp_path).best_weights)
    ours = new_model(config)
    before = ours.classifier.get_weights()
    taken = start_from(tmp_path, config, ours)
    assert set(taken) == set(ours.saved_layers()) - {"sensor", "classifier"}
    for name in taken:
        found, expected = (getattr(model, name).get_weights() for model in (ours, theirs))
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)
    for one, other in zip(ours.classifier.get_weights(), before, strict=True):
        np.testing.assert_array_equal(one, other)
    data = dataclasses.replace(config.data, dev_digits=6000)
    with pytest.raises(ValueError, match=r"`--data.dev_digits`: expected at most 5000"):
        start_from(tmp_path, dataclasses.replace(config, data=data), ours)
    with pytest.raises(ValueError, match="`--init-from`: expected a finished digit run"):
        start_from(tmp_path / "none", config, ours)
