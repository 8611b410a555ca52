"""Digits on canvases: where they are, what is around them, and what is asked."""

from __future__ import annotations

import numpy as np
import pytest

from training.digits.config import CanvasData, PairData
from training.digits.data import Digits, draw_canvases, draw_pairs, pair_number

B = 50


@pytest.fixture(scope="module")
def digits():
    """Digits whose strokes are a block of 10 x 6 pixels, brighter for each."""
    images = np.zeros([B, 28, 28], np.uint8)
    images[:, 9:19, 11:17] = 100 + 2 * np.arange(B)[:, np.newaxis, np.newaxis]
    return Digits(images, np.arange(B) % 10)


def rng():
    return np.random.default_rng(0)


def canvases(digits, seed=0, **settings):
    rows = np.arange(B)[:, np.newaxis]
    return draw_canvases(digits, rows, np.random.default_rng(seed), CanvasData(**settings))


def centres_of_mass(images):
    """`[B, 2]`, (x, y) in pixels."""
    mass = images.astype(float)
    total = mass.sum((1, 2))
    x = (mass.sum(1) * np.arange(images.shape[2])).sum(1) / total
    y = (mass.sum(2) * np.arange(images.shape[1])).sum(1) / total
    return np.stack([x, y], axis=-1)


def in_pixels(centres, size):
    return (centres + 1.0) * (size - 1) / 2


def test_a_plain_canvas_is_the_digit(digits):
    batch = canvases(digits)
    np.testing.assert_array_equal(batch["images"], digits.images)
    np.testing.assert_array_equal(batch["labels"], digits.labels)
    np.testing.assert_array_equal(batch["centres"], np.zeros([B, 1, 2]))


@pytest.mark.parametrize(
    "settings",
    [
        {"size": 60},
        {"size": 42, "rotation": 45.0, "scale_from": 0.7, "scale_to": 1.2},
        {"size": 28, "rotation": 90.0},
    ],
)
def test_centres_are_where_the_digits_are(digits, settings):
    batch = canvases(digits, **settings)
    found = in_pixels(batch["centres"][:, 0], settings["size"])
    np.testing.assert_allclose(found, centres_of_mass(batch["images"]), atol=0.2)
    assert batch["centres"].dtype == np.float32 and batch["images"].dtype == np.uint8


def test_translated_digits_are_everywhere_and_whole(digits):
    batch = canvases(digits, size=60)
    spread = np.ptp(in_pixels(batch["centres"][:, 0], 60), axis=0)
    assert spread.min() > 25.0
    np.testing.assert_array_equal(batch["images"].sum((1, 2)), digits.images.sum((1, 2)))


def test_rotation_keeps_the_middle_and_turns_the_strokes(digits):
    images = canvases(digits, rotation=90.0)["images"]
    wide = (images.sum(1) > 0).sum(-1)
    high = (images.sum(2) > 0).sum(-1)
    assert (wide > high).any() and (high > wide).any()
    np.testing.assert_array_equal(images[:, 13:15, 13:15], digits.images[:, 13:15, 13:15])


def test_digits_are_turned_both_ways(digits):
    marked = Digits(digits.images.copy(), digits.labels)
    marked.images[:, 9:11, 11:17] = 255  # the top of each
    batch = canvases(marked, rotation=90.0)
    lean = (centres_of_mass(batch["images"]) - 13.5)[:, 0]
    assert lean.min() < -0.3 and lean.max() > 0.3


def test_scale_changes_the_area(digits):
    def mass(scale):
        batch = canvases(digits, size=42, scale_from=scale, scale_to=scale)
        return batch["images"].astype(float).sum((1, 2)) / digits.images.sum((1, 2))

    np.testing.assert_allclose(mass(0.7), 0.49, rtol=0.06)
    np.testing.assert_allclose(mass(1.2), 1.44, rtol=0.06)


def test_clutter_adds_scraps_and_hides_no_stroke(digits):
    plain = canvases(digits, size=60)["images"]
    cluttered = canvases(digits, size=60, clutter=4, clutter_size=8)["images"]
    assert (cluttered >= plain).all()
    added = ((cluttered > 0) & (plain == 0)).sum((1, 2))
    assert added.max() <= 4 * 64 and (added > 0).mean() > 0.5


def test_draws_depend_on_the_generator_alone(digits):
    settings = {"size": 60, "clutter": 4}
    one, same, other = (canvases(digits, seed, **settings)["images"] for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert np.any(one != other)


# --- pairs ---


def pairs(digits, **settings):
    rows = np.stack([np.arange(B), np.arange(B)[::-1]], axis=-1)
    return rows, draw_pairs(digits, rows, rng(), PairData(**settings))


@pytest.mark.parametrize("size", [48, 60, 100])
def test_the_digits_of_a_pair_do_not_touch(digits, size):
    rows, batch = pairs(digits, size=size)
    assert batch["images"].shape == (B, size, size)
    distance = np.abs(np.diff(in_pixels(batch["centres"], size), axis=1)).max((1, 2))
    assert distance.min() >= 20 - 1e-3
    np.testing.assert_array_equal(
        batch["images"].sum((1, 2), dtype=int), digits.images[rows].sum((1, 2, 3), dtype=int)
    )


def test_centres_of_a_pair_are_those_of_its_digits_left_first(digits):
    _, batch = pairs(digits)
    centres = in_pixels(batch["centres"], 60)
    assert (centres[:, 0, 0] <= centres[:, 1, 0]).all()
    for image, places in zip(batch["images"], centres, strict=True):
        for x, y in np.rint(places - 0.5).astype(int):
            assert (image[y : y + 2, x : x + 2] > 0).all()


def test_pairs_are_numbered_without_order():
    numbers = [pair_number(np.array(i), np.array(j)) for i in range(10) for j in range(i, 10)]
    assert sorted(int(n) for n in numbers) == list(range(55))
    assert numbers == sorted(numbers)
    assert pair_number(np.array(7), np.array(2)) == pair_number(np.array(2), np.array(7))


def test_pairs_ask_for_both_digits_or_for_their_sum(digits):
    rows, batch = pairs(digits)
    first, second = digits.labels[rows].T
    np.testing.assert_array_equal(batch["labels"], pair_number(first, second))
    _, sums = pairs(digits, target="sum")
    np.testing.assert_array_equal(sums["labels"], first + second)
    assert PairData(target="sum").answers == tuple(map(str, range(19)))


def test_pairs_are_called_by_their_digits():
    answers = PairData().answers
    assert len(answers) == 55
    assert answers[pair_number(np.array(7), np.array(2))] == "2 and 7"
    assert answers[pair_number(np.array(9), np.array(9))] == "9 and 9"


# --- settings ---


@pytest.mark.parametrize(
    ("kind", "settings", "key"),
    [
        (CanvasData, {"size": 27}, "size"),
        (CanvasData, {"clutter_size": 29}, "clutter_size"),
        (CanvasData, {"scale_from": 1.5}, "scale_from"),
        (PairData, {"size": 47}, "size"),
    ],
)
def test_settings_out_of_range_are_named(kind, settings, key):
    with pytest.raises(ValueError, match=f"`--data.{key}`"):
        kind(**settings)


@pytest.mark.parametrize("settings", [{"shift": 3}, {"turn": 30.0}])
def test_a_digit_is_moved_and_turned_within_its_image_in_training(digits, settings):
    rows, config = np.arange(12)[:, np.newaxis], CanvasData(**settings)
    changed = draw_canvases(digits, rows, np.random.default_rng(0), config)
    still = draw_canvases(digits, rows, np.random.default_rng(0), config.scored())
    np.testing.assert_array_equal(still["images"], digits.images[rows[:, 0]])
    assert (changed["images"] != still["images"]).any(axis=(1, 2)).sum() > 6
    np.testing.assert_array_equal(changed["centres"], still["centres"])
