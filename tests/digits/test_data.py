"""MNIST, images drawn from it, and batches that depend on their position alone."""

import numpy as np
import pytest

from digits.config import CanvasData, DigitData, PairData, StripsData
from digits.data import (
    Digits,
    draw_canvases,
    draw_pairs,
    draw_strips,
    epoch_steps,
    load_digits,
    pair_number,
    scoring_batches,
    training_batches,
)
from tests.digits.conftest import made_up, write_mnist
from training.data.examples import DataError

DATA = DigitData(dev_digits=20)


def test_the_last_training_digits_are_dev_and_x_test_is_test(mnist):
    train, dev, test = (load_digits(split, DATA, mnist) for split in ("train", "dev", "test"))
    images, labels = made_up(68, 1)
    np.testing.assert_array_equal(np.concatenate([train.images, dev.images]), images)
    np.testing.assert_array_equal(np.concatenate([train.labels, dev.labels]), labels)
    np.testing.assert_array_equal(test.images, made_up(30, 2)[0])
    assert (len(train), len(dev), len(test)) == (48, 20, 30)
    assert len(load_digits("dev", DigitData(20, limit=7), mnist)) == 7


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"y_train": None}, "y_train"),
        ({"x_train": np.zeros([68, 14, 14], np.uint8)}, r"uint8 \[n, 28, 28\].*\[68, 14, 14\]"),
        ({"x_train": np.zeros([68, 28, 28])}, "got images float64"),
        ({"y_train": np.zeros(3, np.uint8)}, r"labels uint8 \[3\]"),
        ({"y_train": np.full(68, 10)}, "n labels of 0 to 9"),
        ({"y_train": np.array([object()] * 68)}, "cannot be read as Keras' mnist.npz"),
    ],
)
def test_what_is_no_mnist_is_an_error_that_says_why(tmp_path, changed, message):
    with pytest.raises(DataError, match=message):
        load_digits("train", DATA, write_mnist(tmp_path, **changed))


STRIPS = StripsData()


def training(mnist_digits, epoch, step=0, seed=0):
    return training_batches(mnist_digits, STRIPS, 20, seed, epoch, step)


def arrays(batches, count):
    return [{name: part.numpy() for name, part in batch.items()} for batch in batches.take(count)]


def assert_equal(one, other):
    for batch, same in zip(one, other, strict=True):
        for name in batch:
            np.testing.assert_array_equal(batch[name], same[name])


@pytest.fixture(scope="module")
def mnist_digits(mnist):
    return load_digits("train", DATA, mnist)


def test_a_strip_is_its_digits_from_left_to_right(mnist_digits):
    batch = arrays(training(mnist_digits, 0), 1)[0]
    assert batch["images"].shape == (20, 28, 140, 1) and batch["labels"].shape == (20, 5)
    assert batch["images"].dtype == np.float32 and batch["labels"].dtype == np.int32
    for place in range(5):
        portion = batch["images"][3, :, 28 * place : 28 * (place + 1), 0] * 255.0
        distance = np.abs(mnist_digits.images - portion).sum(axis=(1, 2))
        assert distance.min() < 1e-1
        assert mnist_digits.labels[distance.argmin()] == batch["labels"][3, place]


def test_a_resumed_run_sees_the_batches_of_an_unbroken_one(mnist_digits):
    steps = epoch_steps(mnist_digits, 20)
    assert steps == 2
    unbroken = arrays(training(mnist_digits, 0), 5)
    assert_equal(arrays(training(mnist_digits, 1, 1), 2), unbroken[3:])
    assert not np.array_equal(unbroken[0]["labels"], unbroken[2]["labels"])
    other = arrays(training(mnist_digits, 0, seed=1), 1)
    assert not np.array_equal(other[0]["labels"], unbroken[0]["labels"])


def test_scored_examples_are_the_same_each_time(mnist_digits):
    one = [dict(b) for b in scoring_batches(mnist_digits, STRIPS, "dev")]
    assert_equal(one, scoring_batches(mnist_digits, STRIPS, "dev"))
    labels = np.concatenate([batch["labels"] for batch in one])
    assert len(labels) == len(mnist_digits) == 48
    for column in labels.T:
        assert sorted(column) == sorted(mnist_digits.labels)
    assert not np.array_equal(labels[:, 0], labels[:, 1])
    test = np.concatenate([b["labels"] for b in scoring_batches(mnist_digits, STRIPS, "test")])
    assert not np.array_equal(labels, test)


ROWS = np.array([[0, 3, 5], [7, 2, 2]])


def portions(mnist_digits, shift=0, turn=0.0):
    data = StripsData(portions=3, shift=shift, turn=turn)
    strips = draw_strips(mnist_digits, ROWS, np.random.default_rng(0), data)["images"]
    assert strips.dtype == np.uint8
    return strips.reshape([2, 28, 3, 28]).transpose([0, 2, 1, 3]).reshape([6, 28, 28])


def moved(image, down, right):
    """The image moved, by padding and cutting."""
    padded = np.pad(image, 28)
    return padded[28 - down : 56 - down, 28 - right : 56 - right]


def test_each_digit_is_moved_by_itself_and_no_further_than_asked(mnist_digits):
    reach = range(-3, 4)
    found = set()
    for portion, row in zip(portions(mnist_digits, 3), ROWS.ravel(), strict=True):
        image = mnist_digits.images[row]
        places = [(d, r) for d in reach for r in reach if (moved(image, d, r) == portion).all()]
        assert len(places) == 1
        found.add(places[0])
    assert len(found) > 3


B = 50


@pytest.fixture(scope="module")
def digits():
    """Digits with strokes of 10 x 6 pixels, brighter for each."""
    images = np.zeros([B, 28, 28], np.uint8)
    images[:, 9:19, 11:17] = 100 + 2 * np.arange(B)[:, np.newaxis, np.newaxis]
    return Digits(images, np.arange(B) % 10)


def rng():
    return np.random.default_rng(0)


@pytest.mark.parametrize(
    ("settings", "area"),
    [
        ({"size": 60}, 60),
        ({"size": 42, "rotation": 45.0, "scale_from": 2.0, "scale_to": 2.0}, 240),
        ({"size": 28, "rotation": 90.0}, 60),
    ],
)
def test_a_digit_is_whole_anywhere_on_its_canvas(digits, settings, area):
    batch = draw_canvases(digits, np.arange(B)[:, np.newaxis], rng(), CanvasData(**settings))
    images = batch["images"]
    assert images.shape == (B, settings["size"], settings["size"]) and images.dtype == np.uint8
    np.testing.assert_array_equal(batch["labels"], digits.labels)
    ink = images.sum((1, 2)) / digits.images.max((1, 2))
    np.testing.assert_allclose(ink, area, rtol=0.1)


@pytest.mark.parametrize("size", [48, 60])
def test_the_digits_of_a_pair_do_not_touch(digits, size):
    rows = np.stack([np.arange(B), np.arange(B)[::-1]], axis=-1)
    batch = draw_pairs(digits, rows, rng(), PairData(size=size))
    assert batch["images"].shape == (B, size, size)
    np.testing.assert_array_equal(
        batch["images"].sum((1, 2), dtype=int), digits.images[rows].sum((1, 2, 3), dtype=int)
    )
    first, second = digits.labels[rows].T
    np.testing.assert_array_equal(batch["labels"], pair_number(first, second))
    names = [f"{min(pair)} and {max(pair)}" for pair in zip(first, second, strict=True)]
    assert [PairData.answers[label] for label in batch["labels"]] == names
