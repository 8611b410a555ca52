"""No digit is scored that the run learned from, nor learned from by way of another run."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from tests.training.digits.digit_fixtures import made_up
from training.data.examples import DataError
from training.digits import runs as training_digits
from training.digits.config import DigitData
from training.digits.data import load_digits
from training.digits.evaluate import training_so_far
from training.evaluate import command as evaluate
from training.train import main

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
    training_digits.write_fingerprint(folder, load_digits("train", mnist, DATA.dev_digits))
    return folder


def test_dev_and_training_digits_in_another_order_are_not_scored(learned, mnist, reordered):
    for split in ("train", "dev"):
        training_digits.load_scored(learned, split, DATA, mnist)
        with pytest.raises(DataError, match=r"learned from other digits .*`--data-dir` it was"):
            training_digits.load_scored(learned, split, DATA, reordered)
    training_digits.load_scored(learned, "test", DATA, reordered)


def test_a_run_that_does_not_say_what_it_learned_from_is_scored(learned, reordered):
    with pytest.raises(DataError):
        training_digits.load_scored(learned, "dev", DATA, reordered)
    for path in learned.iterdir():
        path.unlink()
    training_digits.load_scored(learned, "dev", DATA, reordered)
    training_digits.check_init_from(learned, DATA, DATA, reordered)


def test_the_evaluation_refuses_them(hard_digits_run, reordered, tmp_path, capsys):
    run = ["--run-dir", str(hard_digits_run), "--out", str(tmp_path / "out")]
    assert evaluate.main([*run, "--data-dir", str(reordered)]) == 2
    assert "Error: " in (said := capsys.readouterr().err) and "learned from other digits" in said
    assert not list((tmp_path / "out").iterdir())


def test_weights_that_learned_what_is_dev_now_are_not_started_from(learned, mnist, reordered):
    training_digits.check_init_from(learned, DATA, DATA, mnist)
    with pytest.raises(ValueError, match=r"`--init-from`.*learned from others than those of"):
        training_digits.check_init_from(learned, DATA, DATA, reordered)
    with pytest.raises(ValueError, match=r"`--init-from`.*were 20, those of this run are 21"):
        training_digits.check_init_from(learned, DATA, DigitData(dev_digits=21), mnist)
    training_digits.check_init_from(learned, DATA, DigitData(dev_digits=19), mnist)


def test_fewer_digits_of_the_same_are_started_from(mnist, tmp_path):
    few = DigitData(dev_digits=20, limit=9)
    training_digits.write_fingerprint(tmp_path, load_digits("train", mnist, 20, 9))
    training_digits.check_init_from(tmp_path, few, DigitData(dev_digits=30), mnist)
    with pytest.raises(ValueError, match="were 20, those of this run are 60"):
        training_digits.check_init_from(tmp_path, few, DigitData(dev_digits=60), mnist)


def test_the_training_refuses_to_start_from_them(
    hard_digits_run, tiny_digits, reordered, tmp_path, capsys
):
    flags = [*tiny_digits, "--data-dir", str(reordered), "--init-from", str(hard_digits_run)]
    assert main(["--recipe", "digits_soft", *flags, "--run-dir", str(tmp_path / "run")]) == 2
    assert "`--init-from`: expected a run that learned from none" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_damaged_last_state_costs_no_figures(hard_digits_run, mnist, tmp_path, capsys):
    run = shutil.copytree(hard_digits_run, tmp_path / "run")
    assert training_so_far(run)["training"]["epochs"] == 2
    (state,) = run.glob("checkpoints/*/state.json")
    state.write_text("{")
    assert evaluate.main(["--run-dir", str(run), "--data-dir", str(mnist)]) == 0
    assert "is damaged" in capsys.readouterr().err
    assert training_so_far(run) == {} == training_so_far(tmp_path)
