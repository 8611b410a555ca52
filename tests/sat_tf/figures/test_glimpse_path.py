"""Paths of glimpses and rectified digits, drawn."""

from __future__ import annotations

import numpy as np
import pytest

from sat_tf.digits.figures import glimpse_figure, side_by_side
from sat_tf.figures.drawing import GLOW, PAPER

IMAGE = np.zeros([60, 60], np.float32)


def path(locations, scales=2):
    patches = np.zeros([len(locations), 4, 4, scales], np.float32)
    return glimpse_figure(IMAGE, np.array(locations, np.float32), patches, "3, read as 8")


def test_there_is_a_tile_a_glimpse():
    two, three = path([[0, 0], [0.5, 0]]), path([[0, 0], [0.5, 0], [0, 0.5]])
    assert two.dtype == np.uint8 and two.shape[0] == three.shape[0]
    assert three.shape[1] - two.shape[1] == 178


def test_the_path_goes_where_the_locations_are():
    figure = path([[0, 0], [1, -1]])[:, :178]  # to the upper right corner
    rows, columns = np.nonzero(np.all(figure == GLOW, axis=-1))
    assert rows.min() < 60 and columns.max() > 160
    assert rows.max() <= 130 and columns.min() >= 85


def test_patches_are_one_inside_the_other():
    patches = np.zeros([1, 4, 4, 2], np.float32)
    patches[0, :, :, 0] = 1.0  # fine: white
    figure = glimpse_figure(IMAGE, np.zeros([1, 2], np.float32), patches, "")
    tile = figure[38 : 38 + 168, 188 : 188 + 168]
    assert tile[84, 84].tolist() == [255, 255, 255]
    assert tile[10, 10].tolist() == [0, 0, 0]


def test_images_of_any_size_stand_side_by_side():
    figure = side_by_side([IMAGE, np.ones([28, 28], np.float32)], "a title")
    assert figure[100, 90].tolist() == [0, 0, 0]
    assert figure[100, 90 + 178].tolist() == [255, 255, 255]
    assert figure[100, 2].tolist() == list(PAPER)


def test_a_location_for_every_patch():
    with pytest.raises(ValueError, match="`locations`.*got shape"):
        glimpse_figure(IMAGE, np.zeros([3, 2]), np.zeros([2, 4, 4, 1]), "")
