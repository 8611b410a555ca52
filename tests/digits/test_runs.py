"""Weights of other runs, and the digits that a run has learned from and is not scored on."""

import dataclasses

import numpy as np
import pytest

from digits import runs
from digits.config import DigitData, read_digit_config, to_text
from digits.data import load_digits
from digits.recipes import RECIPES
from digits.runs import new_model, start_from
from sat_tf.inference.run_folder import RunFolder
from sat_tf.inference.weights import save_weights
from tests.digits.conftest import made_up
from training.data.examples import DataError
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


def test_it_starts_from_another_run(hard_digits_run, tiny_digits, tmp_path, capsys, unvalidated):
    flags = ("--recipe", "digits_soft", *tiny_digits, "--fit.epochs", "1", "--fit.figures", "0")
    own = ("--run-dir", str(tmp_path / "run"), "--init-from", str(hard_digits_run))
    assert main([*flags, *own]) == 0
    said = capsys.readouterr().out
    assert f"Initialized with weights of {hard_digits_run}: encoder, annotation, " in said
    assert read_digit_config(tmp_path / "run").init_from == str(hard_digits_run)
    own = ("--run-dir", str(tmp_path / "other"), "--init-from", str(hard_digits_run))
    assert main([*flags, *own, "--data.dev_digits", "21"]) == 2
    assert "`--data.dev_digits`: expected at most 20" in capsys.readouterr().err


DATA = DigitData(dev_digits=20)


@pytest.fixture
def reordered(make_mnist, tmp_path):
    """The same digits in another order, as TensorFlow Datasets has them."""
    images, labels = made_up(68, 1)
    order = np.random.default_rng(3).permutation(68)
    return make_mnist(tmp_path / "other", x_train=images[order], y_train=labels[order])


@pytest.fixture
def learned(mnist, tmp_path):
    """A folder that says what its run learned from."""
    folder = tmp_path / "learned"
    folder.mkdir()
    runs.write_fingerprint(folder, load_digits("train", DATA, mnist))
    return folder


def test_dev_and_training_digits_in_another_order_are_not_scored(learned, mnist, reordered):
    for split in ("train", "dev"):
        runs.load_scored(learned, split, DATA, mnist)
        with pytest.raises(DataError, match=r"other digits .*`--data-dir`.*`--split test`"):
            runs.load_scored(learned, split, DATA, reordered)
    runs.load_scored(learned, "test", DATA, reordered)
