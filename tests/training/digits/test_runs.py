"""Weights of another digit run: taken where they fit, refused where none does."""

from __future__ import annotations

import dataclasses
import json
import shutil

import numpy as np
import pytest

from sat_tf.config import SearchFlags
from sat_tf.run_folder import RunFolder
from sat_tf.weights import save_weights, weight_arrays
from tests.training.digits.digit_fixtures import train
from training.average import main as average
from training.digits.config import read_digit_config, to_text
from training.digits.recipes import RECIPES
from training.digits.runs import averaged, load, new_model, start_from
from training.evaluate import command as evaluate
from training.train import main

SMALL = {"glimpses": 2, "glimpse_dim": 4, "hidden_dim": 4, "glimpse_filters": 1}


def small(recipe: str):
    base = RECIPES[recipe]
    return dataclasses.replace(base, model=dataclasses.replace(base.model, **SMALL))


@pytest.fixture(scope="module")
def single(tmp_path_factory):
    """A finished run on single digits, as far as anybody reads it."""
    run_dir, config = tmp_path_factory.mktemp("single"), small("dram_digit")
    (run_dir / "config.json").write_text(to_text(config))
    model = new_model(config)
    save_weights(model, RunFolder(run_dir).best_weights)
    return run_dir, model


def test_all_that_fits_is_taken_and_the_classes_are_not(single):
    run_dir, theirs = single
    config = small("dram_pairs")
    ours = new_model(config)
    before = ours.classifier.get_weights()
    taken = start_from(run_dir, ours)
    assert set(taken) == set(ours.saved_layers()) - {"sensor", "classifier"}
    for name in taken:
        found, expected = (getattr(model, name).get_weights() for model in (ours, theirs))
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)
    for one, other in zip(ours.classifier.get_weights(), before, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_run_of_which_nothing_fits_is_refused(single):
    config = dataclasses.replace(RECIPES["digits_soft"])
    with pytest.raises(ValueError, match="`--init-from`.*none of its layers fits"):
        start_from(single[0], new_model(config))


def test_an_unfinished_run_is_refused(tmp_path):
    config = small("dram_pairs")
    (tmp_path / "config.json").write_text(to_text(config))
    model = new_model(config)
    with pytest.raises(ValueError, match="`--init-from`.*has not finished an epoch"):
        start_from(tmp_path, model)
    with pytest.raises(ValueError, match="`--init-from`.*no run of a digit system"):
        start_from(tmp_path / "nowhere", model)


def test_the_command_starts_from_another_run(
    hard_digits_run, tiny_digits, tmp_path, capsys, unvalidated
):
    flags = ("--recipe", "digits_soft", *tiny_digits, "--fit.epochs", "1", "--fit.figures", "0")
    own = ("--run-dir", str(tmp_path / "run"), "--init-from", str(hard_digits_run))
    assert main([*flags, *own]) == 0
    said = capsys.readouterr().out
    assert f"Initialized with weights of {hard_digits_run}: encoder, annotation, " in said
    assert read_digit_config(tmp_path / "run").init_from == str(hard_digits_run)


def weights_of(run_dir):
    return weight_arrays(load(read_digit_config(run_dir), run_dir))


def test_digit_runs_are_averaged_and_evaluated(
    hard_digits_run, tiny_digits, mnist, tmp_path, unvalidated
):
    tuned, out = tmp_path / "tuned", tmp_path / "out"
    flags = ["--recipe", "digits_queries_hard", "--model.baseline", "moving_average"]
    flags += [*tiny_digits, "--fit.epochs", "1", "--init-from", str(hard_digits_run), "--seed", "1"]
    train(tuned, *flags, data_dir=mnist)
    assert average([str(hard_digits_run), str(tuned), "--run-dir", str(out)]) == 0
    first, second, mean = map(weights_of, (hard_digits_run, tuned, out))
    for name, value in mean.items():
        np.testing.assert_allclose(value, 0.5 * (first[name] + second[name]), atol=1e-6)
    assert evaluate.main(["--run-dir", str(out), "--data-dir", str(mnist)]) == 0


def test_a_digit_run_that_learned_from_other_digits_is_not_averaged(
    hard_digits_run, tmp_path, capsys
):
    other = shutil.copytree(hard_digits_run, tmp_path / "other")
    config = json.loads((other / "config.json").read_text("utf-8"))
    config["init_from"] = str(hard_digits_run)
    (other / "config.json").write_text(json.dumps(config), "utf-8")
    (other / "digits.sha256").write_text("0" * 64)
    assert average([str(hard_digits_run), str(other), "--run-dir", str(tmp_path / "out")]) == 2
    assert "learned from different digits" in capsys.readouterr().err


def test_a_digit_model_does_not_search(hard_digits_run):
    with pytest.raises(ValueError, match=r"`beam`.*does not search, got 3"):
        averaged(hard_digits_run, SearchFlags(beam=3))
