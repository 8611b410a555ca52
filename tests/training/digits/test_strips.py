"""Strips of digits: what is moved, how far, and when."""

from __future__ import annotations

import numpy as np
import pytest

from training.digits.config import StripsData
from training.digits.data import draw_strips, load_digits, scoring_batches, warped

ROWS = np.array([[0, 3, 5], [7, 2, 2]])


@pytest.fixture(scope="module")
def digits(mnist):
    return load_digits("train", mnist, 20)


def portions(digits, shift=0, turn=0.0):
    data = StripsData(portions=3, shift=shift, turn=turn)
    strips = draw_strips(digits, ROWS, np.random.default_rng(0), data)["images"]
    assert strips.dtype == np.uint8
    return strips.reshape([2, 28, 3, 28]).transpose([0, 2, 1, 3]).reshape([6, 28, 28])


def moved(image, down, right):
    """The image moved, by padding and cutting."""
    padded = np.pad(image, 28)
    return padded[28 - down : 56 - down, 28 - right : 56 - right]


def test_digits_stay_where_they_are_by_default(digits):
    np.testing.assert_array_equal(portions(digits, 0), digits.images[ROWS.ravel()])


def test_each_digit_is_moved_by_itself_and_no_further_than_asked(digits):
    reach = range(-3, 4)
    found = set()
    for portion, row in zip(portions(digits, 3), ROWS.ravel(), strict=True):
        image = digits.images[row]
        places = [(d, r) for d in reach for r in reach if (moved(image, d, r) == portion).all()]
        assert len(places) == 1
        found.add(places[0])
    assert len(found) > 3


def test_each_digit_is_turned_by_itself(digits):
    plain, turned = portions(digits), portions(digits, turn=30.0)
    assert all((one != other).any() for one, other in zip(plain, turned, strict=True))
    # The last two are the same digit.
    assert (turned[4] != turned[5]).any()


def test_a_quarter_turn_takes_right_to_down(digits):
    quarter = np.full(len(digits.images), np.pi / 2)
    clockwise = np.rot90(digits.images, -1, axes=(1, 2))
    np.testing.assert_array_equal(warped(digits.images, quarter), clockwise)


@pytest.mark.parametrize("change", [{"shift": 3}, {"turn": 30.0}])
def test_scored_digits_are_not_augmented(digits, change):
    jittered, plain = (
        scoring_batches(digits, StripsData(**changed), "dev") for changed in (change, {})
    )
    for one, other in zip(jittered, plain, strict=True):
        np.testing.assert_array_equal(one["images"], other["images"])
