"""Digit runs: trained, resumed, evaluated, refused."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

import sat_tf
from sat_tf.errors import RunError
from tests.training.digits.digit_fixtures import train
from tests.training.run_state.stopped_runs import Killed, assert_same_runs, die_after, logs_of
from tests.training.small_runs import exit_of, report_of
from training.digits import train as digits
from training.digits.config import changed_flags, read_digit_config
from training.digits.evaluate import training_command
from training.digits.recipes import RECIPES
from training.digits.train import parse
from training.evaluate import command as evaluate
from training.run_state.logs import Validate
from training.run_state.resume import CheckpointAndStop
from training.train import main

HARD = ("--recipe", "digits_queries_hard", "--model.baseline", "moving_average")


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_parses_to_itself(name):
    assert parse(["--recipe", name]).config == RECIPES[name]
    assert RECIPES[name].recipe == name


def test_any_key_of_a_digit_recipe_is_a_flag():
    flags = "--recipe digits_hard --model.samples 7 --data.portions 3 --optimizer.learning-rate 0.5"
    config = parse(flags.split()).config
    assert (config.model.samples, config.data.portions) == (7, 3)
    assert config.optimizer.learning_rate == 0.5 and config.model.attention == "hard"


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        (["--recipe", "digits_firm"], "digits_firm"),
        (["--recipe", "digits_soft", "--model.samplse", "3"], "--model.samplse"),
        (["--recipe", "digits_soft", "--encoder.name", "vgg19"], "--encoder.name"),
        (["--recipe", "digits_soft", "--model.digit", "11"], "`--model.digit`"),
        (["--recipe", "digits_soft", "--fit.epochs", "0"], "`--fit.epochs`"),
        (["--recipe", "ram_28", "--optimizer.weight_decay", "1"], "`--optimizer.weight_decay`"),
        (["--recipe", "ram_28", "--fit.precision", "bfloat16"], "--fit.precision"),
        (["--recipe", "stn_rts", "--fit.precision", "float16"], "--fit.precision"),
    ],
)
def test_a_wrong_flag_is_an_error_that_names_it(capsys, argv, named):
    status, said = exit_of(capsys, main, *argv)
    assert status == 2 and named in said


def test_bad_digits_are_an_error_without_a_traceback(capsys, tmp_path):
    places = ["--data-dir", str(tmp_path), "--run-dir", str(tmp_path / "r")]
    assert main(["--recipe", "digits_soft", *places]) == 2
    assert "has no mnist.npz" in capsys.readouterr().err
    assert not (tmp_path / "r").exists()


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
    assert len(logs["figures attention/1"]) == len(logs["validation epoch_error"]) == 2
    assert {"train epoch_loss", "train epoch_reward"} < set(logs)


def test_the_command_of_a_report_gives_the_run_again(hard_digits_run):
    config = read_digit_config(hard_digits_run)
    command = training_command(config).split()
    assert command[:3] == ["python", "-m", "training.train"]
    assert parse(command[3:]).config == config
    assert changed_flags(config, config) == []


def test_a_run_killed_within_its_epochs_ends_like_an_unbroken_one(
    hard_digits_run, tiny_digits, mnist, tmp_path
):
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


def test_convolutions_train_in_bfloat16_and_load_in_float32(
    mnist, tmp_path, monkeypatch, unvalidated
):
    flags = ("--data.dev_digits", "20", "--fit.epochs", "1", "--fit.figures", "0")
    flags += ("--data.size", "32", "--model.filters", "2", "--fit.batch_size", "16")
    flags += ("--recipe", "cnn_cluttered", "--fit.precision", "bfloat16")
    made, new_model = [], digits.new_model
    monkeypatch.setattr(digits, "new_model", lambda c: made.append(new_model(c)) or made[0])
    loaded = train(tmp_path / "run", *flags, data_dir=mnist)
    convolutions = [model.features.layers[0] for model in (*made, loaded)]
    assert [layer.compute_dtype for layer in convolutions] == ["bfloat16", "float32"]
    for before, after in zip(made[0].weights, loaded.weights, strict=True):
        np.testing.assert_array_equal(before, after)


def test_evaluation_finds_what_training_ended_with(hard_digits_run, mnist, tmp_path, capsys):
    flags = ["--run-dir", str(hard_digits_run), "--data-dir", str(mnist), "--out", str(tmp_path)]
    assert evaluate.main(flags) == 0
    (tmp_path / "figures" / "mine.png").touch()
    ended = report_of(hard_digits_run / "evaluation" / "dev")
    assert report_of(tmp_path)["scores"] == ended["scores"]
    assert "presence_accuracy" in capsys.readouterr().out
    assert evaluate.main([*flags, "--split", "test", "--figures", "1"]) == 0
    assert report_of(tmp_path)["examples"] == 30 and report_of(tmp_path)["split"] == "test"
    names = sorted(path.name for path in (tmp_path / "figures").iterdir())
    assert names == ["00.png", "mine.png"]


def test_a_model_is_evaluated_otherwise_where_its_weights_fit(
    hard_digits_run, mnist, tmp_path, capsys
):
    flags = ["--run-dir", str(hard_digits_run), "--data-dir", str(mnist), "--out", str(tmp_path)]
    assert evaluate.main([*flags, "--model.inference", "sample"]) == 0
    assert report_of(tmp_path)["evaluated_with"] == "--model.inference sample"
    assert evaluate.main([*flags, "--model.hidden_dim", "5"]) == 2
    assert "do not fit" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--split", "all"), "`split`"),
        (("--data-dir", "nowhere"), "has no mnist.npz"),
        (("--beam", "3"), "--beam"),
        (("--figures", "-1"), "`--figures`"),
    ],
)
def test_wrong_arguments_of_an_evaluation_are_errors(
    hard_digits_run, mnist, capsys, flags, message
):
    places = ["--run-dir", hard_digits_run, "--data-dir", mnist]
    status, said = exit_of(capsys, evaluate.main, *places, *flags)
    assert status == 2 and message in said


def test_another_run_s_folder_is_refused(hard_digits_run, tiny_digits, make_mnist, tmp_path):
    flags = (*HARD, *tiny_digits)
    with pytest.raises(RunError, match="`model.samples` is 5 there and 6 here"):
        train(hard_digits_run, *flags, "--model.samples", "6")
    other = make_mnist(tmp_path, x_train=np.zeros([68, 28, 28], np.uint8))
    with pytest.raises(ValueError, match="belongs to a run on other digits"):
        train(hard_digits_run, *flags, data_dir=other)


def test_captioners_and_digit_systems_leave_each_other_s_runs_alone(
    hard_digits_run, tiny_digits, tmp_path, capsys
):
    assert main(["--recipe", "scenes_soft", "--run-dir", str(hard_digits_run)]) == 2
    assert "digit system 'portions'" in capsys.readouterr().err
    (tmp_path / "config.json").write_text("{}")
    assert main(["--recipe", "digits_soft", *tiny_digits, "--run-dir", str(tmp_path)]) == 2
    assert "no run of a digit system" in capsys.readouterr().err


def test_a_digit_run_is_no_captioner(hard_digits_run):
    with pytest.raises(RunError, match="digit system 'portions', which writes no captions"):
        sat_tf.load(hard_digits_run)


def test_a_run_without_weights_says_so(hard_digits_run, mnist, tmp_path, capsys):
    (tmp_path / "config.json").write_text((hard_digits_run / "config.json").read_text())
    assert evaluate.main(["--run-dir", str(tmp_path), "--data-dir", str(mnist)]) == 2
    assert "has no best.weights.h5" in capsys.readouterr().err


def test_two_devices_train(tiny_digits, tmp_path):
    flags = ("--strategy", "mirrored", "--fit.epochs", "1", "--run-dir", str(tmp_path / "run"))
    assert main(["--recipe", "digits_hard", *tiny_digits, *flags]) == 0
    assert report_of(tmp_path / "run" / "evaluation" / "dev")["training"]["epochs"] == 1
