"""Maps against unions of boxes."""

import numpy as np
import pytest

from training.data.boxes import union_coverage
from training.metrics.grounding import grounding_scores, score_phrases

LEFT, RIGHT = (0.0, 0.0, 1.0, 0.5), (0.0, 0.5, 1.0, 1.0)
SMALL = (0.1, 0.1, 0.35, 0.4)


def random_case(count=12, seed=0):
    rng = np.random.default_rng(seed)
    maps = rng.random([count, 4, 5])
    corners = np.sort(rng.random([count, 2, 2]), axis=-1)
    boxes = [(y0, x0, y1, x1) for (y0, y1), (x0, x1) in corners]
    return maps, boxes, [n // 3 for n in range(count)]


def test_single_boxes_score_as_in_grounding():
    maps, boxes, images = random_case()
    means = score_phrases(maps, [[box] for box in boxes], images).means()
    expected = grounding_scores(maps, boxes, groups=images)
    for metric in ("pointing_game", "attention_correctness"):
        for kind in ("", "_uniform", "_shuffled"):
            assert means[metric + kind] == pytest.approx(expected[metric + kind])
    name = "attention_correctness_centre"
    assert means[name] == pytest.approx(expected[name])


def test_the_centre_is_a_point():
    maps = np.ones([2, 4, 4])
    above, at = (0.1, 0.1, 0.45, 0.9), (0.4, 0.4, 0.5, 0.5)
    scores = score_phrases(maps, [[above], [above, at]], ["a", "b"])
    assert list(scores.values["pointing_game_centre"]) == [0.0, 100.0]


def test_union_counts_an_overlap_once():
    half = union_coverage([LEFT, LEFT, (0.0, 0.0, 0.5, 0.5)], 4, 4)
    np.testing.assert_allclose(half, np.repeat([[1, 1, 0, 0]], 4, axis=0))
    assert union_coverage([LEFT, RIGHT], 3, 3).min() == pytest.approx(1.0)


def test_coverage_of_a_box_is_the_product_of_its_overlaps():
    def overlap(low, high, cells):
        return cells * np.diff(np.clip(np.arange(cells + 1) / cells, low, high))

    expected = np.outer(overlap(SMALL[0], SMALL[2], 7), overlap(SMALL[1], SMALL[3], 3))
    np.testing.assert_allclose(union_coverage([SMALL], 7, 3), expected, atol=1e-12)


def test_small_phrases_have_scores_of_their_own():
    maps = np.zeros([2, 10, 10])
    maps[0, 2, 2] = maps[1, 9, 9] = 1.0
    means = score_phrases(maps, [[SMALL], [LEFT]], ["a", "b"]).means()
    assert means["pointing_game"] == 50.0 and means["pointing_game_small"] == 100.0
    assert means["attention_correctness_small_uniform"] == pytest.approx(7.5)
    assert means["pointing_game_small_centre"] == 0.0


def test_intervals_hold_their_means():
    maps, boxes, images = random_case(60)
    scores = score_phrases(maps, [[box] for box in boxes], images)
    means = scores.means()
    for name, interval in scores.intervals(100).items():
        assert interval.low <= interval.difference <= interval.high
        if "_over_" not in name:
            assert interval.difference == pytest.approx(means[name])
    gap = means["pointing_game"] - means["pointing_game_centre"]
    over = scores.intervals(100)["pointing_game_over_centre"]
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


def test_maps_boxes_and_images_that_differ_in_number_are_an_error():
    maps, boxes, images = random_case(3)
    with pytest.raises(ValueError, match="maps"):
        score_phrases(maps, [[box] for box in boxes], images[:2])
