"""Attention maps against boxes, by hand."""

import numpy as np
import pytest

from training.evaluation.pointing import score_phrases, union_coverage

CORNER = (0.0, 0.0, 0.5, 0.5)  # top left quarter: four of the sixteen cells of a 4 x 4 grid


def score(name, alpha, box):
    (value,) = score_phrases([alpha], [[box]], ["image"]).values[name]
    return value / 100


def drawn(maps, boxes, *images, **options):
    return score_phrases(maps, [[box] for box in boxes], *images, **options).means()


def one_hot(row, column, size=4):
    alpha = np.zeros((size, size))
    alpha[row, column] = 1.0
    return alpha


def test_all_mass_inside_scores_a_hundred():
    scores = drawn([one_hot(1, 1)], [CORNER])
    assert scores["pointing_game"] == 100
    assert scores["attention_correctness"] == pytest.approx(100)


def test_rows_are_top_to_bottom_and_columns_left_to_right():
    bottom_left = (0.75, 0.0, 1.0, 0.25)
    assert score("pointing_game", one_hot(3, 0), bottom_left) == 1
    assert score("pointing_game", one_hot(0, 3), bottom_left) == 0
    wide = np.zeros((2, 6))
    wide[1, 0] = 1.0
    assert score("attention_correctness", wide, (0.5, 0.0, 1.0, 1 / 6)) == pytest.approx(1)


def test_a_cell_cut_by_the_box_counts_by_area():
    # The box holds half of the cell's height and a quarter of its width.
    assert score(
        "attention_correctness", one_hot(0, 0, 2), (0.25, 0.0, 0.5, 0.125)
    ) == pytest.approx(1 / 8)


def test_uniform_maps_score_the_share_of_the_box():
    box = (0.1, 0.2, 0.4, 0.9)
    scores = drawn([np.full((7, 5), 3.0)], [box])
    assert scores["attention_correctness"] == pytest.approx(21)
    assert scores["attention_correctness_uniform"] == pytest.approx(21)
    # Centres: rows at 3/14 and 5/14 of 7, columns at 0.3 ... 0.9 of 5 (edges included).
    assert scores["pointing_game_uniform"] == pytest.approx(100 * 2 * 4 / 35)
    assert scores["pointing_game"] == scores["pointing_game_uniform"]


def test_tied_maxima_share_the_hit():
    assert score("pointing_game", one_hot(0, 0) + one_hot(3, 3), CORNER) == 0.5


def test_fifteen_pixels_beside_a_box_are_near_enough():
    # Cells are 25 pixels wide and 50 high: the centre is 12.5 pixels right of the box and 5 below
    # it, 13.5 from its corner; or 12.5 below, 17.7 from it.
    sizes = {"pixels": [(1 / 200, 1 / 100)], "images": ["a"]}
    for bottom, hit in ((0.1, 100), (0.0625, 0)):
        box = (0.0, 0.0, bottom, 0.25)
        values = score_phrases([one_hot(0, 1)], [[box]], **sizes).values
        assert values["pointing_game"] == [0] and values["pointing_game_15px"] == [hit]
    values = score_phrases([one_hot(0, 1)], [[(0.0, 0.0, 0.43, 1.0)]], **sizes).values
    assert values["pointing_game_centre"] == [0] and values["pointing_game_centre_15px"] == [100]


def test_centre_control_looks_at_the_middle():
    middle, corner = (0.25, 0.25, 0.75, 0.75), (0.0, 0.0, 0.2, 0.2)
    for size in (4, 5):
        scores = drawn([one_hot(0, 0, size)] * 2, [middle, corner])
        assert scores["pointing_game_centre"] == pytest.approx(50)
        assert scores["attention_correctness_centre"] == pytest.approx(50)


def test_shuffled_maps_come_from_another_image_when_groups_are_given():
    rows = [0] * 3 + [1] * 2 + [2] * 3 + [3] * 2
    maps = [one_hot(row, 0) for row in rows]
    boxes = [(row / 4, 0.0, row / 4 + 0.25, 1.0) for row in rows]
    scores = drawn(maps, boxes, [f"p{row}" for row in rows])
    assert scores["pointing_game_shuffled"] == 0


LEFT, RIGHT = (0.0, 0.0, 1.0, 0.5), (0.0, 0.5, 1.0, 1.0)


def random_case(count=12, seed=0):
    rng = np.random.default_rng(seed)
    maps = rng.random([count, 4, 5])
    corners = np.sort(rng.random([count, 2, 2]), axis=-1)
    boxes = [(y0, x0, y1, x1) for (y0, y1), (x0, x1) in corners]
    return maps, boxes, [n // 3 for n in range(count)]


def test_union_counts_an_overlap_once():
    half = union_coverage([LEFT, LEFT, (0.0, 0.0, 0.5, 0.5)], 4, 4)
    np.testing.assert_allclose(half, np.repeat([[1, 1, 0, 0]], 4, axis=0))
    assert union_coverage([LEFT, RIGHT], 3, 3).min() == pytest.approx(1.0)


def test_intervals_hold_their_means():
    maps, boxes, images = random_case(90)
    scores = score_phrases(maps, [[box] for box in boxes], images)
    means = scores.means()
    for name, interval in scores.intervals().items():
        if not np.isnan(interval.low):  # a few hits have no interval
            assert interval.low <= interval.difference <= interval.high
        if "_over_" not in name:
            assert interval.difference == pytest.approx(means[name])
    gap = means["pointing_game"] - means["pointing_game_centre"]
    over = scores.intervals()["pointing_game_over_centre"]
    assert over.difference == pytest.approx(gap)


def test_the_table_counts_a_phrase_under_each_of_its_types():
    maps, boxes, images = random_case(4)
    types = [("people",), ("people", "other"), ("scene",), ()]
    table = score_phrases(maps, [[box] for box in boxes], images, types).by_type()
    assert {name: row["phrases"] for name, row in table.items()} == {
        "people": 2,
        "other": 1,
        "scene": 1,
    }
