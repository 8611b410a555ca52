"""Figures of digits: alpha over a strip, paths of glimpses, images side by side."""

import numpy as np

from digits.figures import alpha_matrix_figure, glimpse_figure
from sat_tf.inference.figures import GLOW

STRIP = np.zeros([28, 84], np.uint8)
IMAGE = np.zeros([60, 60], np.float32)


def draw(alpha, probability=(0.9, 0.2), present=(True, False)):
    return alpha_matrix_figure(STRIP, [3, 9], np.array(alpha), probability, present)


def test_a_cell_is_the_warmer_the_more_of_attention_it_has():
    cells = draw([[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    # Paper is white, the glow has little blue.
    assert cells[-20, 56 + 3 * 84 + 40, 2] < 100 < cells[-20, 56 + 40, 2]


def path(locations, scales=2):
    patches = np.zeros([len(locations), 4, 4, scales], np.float32)
    return glimpse_figure(IMAGE, np.array(locations, np.float32), patches, "3, read as 8")


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
