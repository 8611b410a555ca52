"""Weights of another digit run: taken where they fit, refused where none does."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from sat_tf import runs
from sat_tf.run_folder import RunFolder
from training.digits.config import read_digit_config, to_text
from training.digits.recipes import RECIPES
from training.digits.runs import new_model, start_from
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
    runs.save_weights(model, RunFolder(run_dir).best_weights)
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
