"""Examples made of digits: each digit as often as any other, and a place decides what it holds."""

from __future__ import annotations

import numpy as np
import pytest

from training.digits.config import StripsData
from training.digits.data import epoch_steps, load_digits, plan, scoring_batches, training_batches

STRIPS = StripsData()


def training(digits, epoch, step=0, seed=0):
    return training_batches(digits, STRIPS, 20, seed, epoch, step)


def arrays(batches, count):
    return [{name: part.numpy() for name, part in batch.items()} for batch in batches.take(count)]


def assert_equal(one, other):
    for batch, same in zip(one, other, strict=True):
        for name in batch:
            np.testing.assert_array_equal(batch[name], same[name])


@pytest.fixture(scope="module")
def digits(mnist):
    return load_digits("train", mnist, 20)


def test_each_digit_comes_once_in_each_place_before_any_comes_again():
    rows = plan(7, 17, 3, np.random.default_rng(0))
    assert rows.shape == (17, 3)
    for column in rows.T:
        assert sorted(column[:7]) == sorted(column[7:14]) == list(range(7))
    assert not np.array_equal(rows[:, 0], rows[:, 1])


def test_a_strip_is_its_digits_from_left_to_right(digits):
    batch = arrays(training(digits, 0), 1)[0]
    assert batch["images"].shape == (20, 28, 140, 1) and batch["labels"].shape == (20, 5)
    assert batch["images"].dtype == np.float32 and batch["labels"].dtype == np.int32
    for place in range(5):
        portion = batch["images"][3, :, 28 * place : 28 * (place + 1), 0] * 255.0
        distance = np.abs(digits.images - portion).sum(axis=(1, 2))
        assert distance.min() < 1e-1
        assert digits.labels[distance.argmin()] == batch["labels"][3, place]


def test_a_resumed_run_sees_the_batches_of_an_unbroken_one(digits):
    steps = epoch_steps(digits, STRIPS, 20)
    assert steps == 2
    unbroken = arrays(training(digits, 0), 5)
    assert_equal(arrays(training(digits, 1, 1), 2), unbroken[3:])
    assert not np.array_equal(unbroken[0]["labels"], unbroken[2]["labels"])
    other = arrays(training(digits, 0, seed=1), 1)
    assert not np.array_equal(other[0]["labels"], unbroken[0]["labels"])


def test_an_epoch_can_have_another_number_of_examples(digits):
    assert epoch_steps(digits, StripsData(examples=200), 20) == 10
    with pytest.raises(ValueError, match="batch_size`: expected at most the 19"):
        epoch_steps(digits, StripsData(examples=19), 20)


def test_scored_examples_are_the_same_each_time(digits):
    one = [dict(b) for b in scoring_batches(digits, STRIPS, "dev")]
    assert_equal(one, scoring_batches(digits, STRIPS, "dev"))
    labels = np.concatenate([batch["labels"] for batch in one])
    assert len(labels) == len(digits) == 48
    for column in labels.T:
        assert sorted(column) == sorted(digits.labels)
    test = np.concatenate([b["labels"] for b in scoring_batches(digits, STRIPS, "test")])
    assert not np.array_equal(labels, test)
