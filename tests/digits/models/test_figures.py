"""Figures of digits: alpha over a strip, patches of glimpses."""

import numpy as np

from digits.models import alpha_matrix_figure, glimpse_figure

STRIP = np.zeros([28, 84], np.uint8)
IMAGE = np.zeros([60, 60], np.float32)


def test_a_cell_is_the_warmer_the_more_of_attention_it_has():
    alpha = np.eye(4)[[0, 3]]
    cells = alpha_matrix_figure(STRIP, [3, 9], alpha, (0.9, 0.2), (True, False))
    # Paper is white, the glow has little blue.
    assert cells[-20, 56 + 3 * 84 + 40, 2] < 100 < cells[-20, 56 + 40, 2]


def test_patches_are_one_inside_the_other():
    patches = np.zeros([1, 4, 4, 2], np.float32)
    patches[0, :, :, 0] = 1.0  # fine: white
    figure = glimpse_figure(IMAGE, np.zeros([1, 2], np.float32), patches, "")
    tile = figure[38 : 38 + 168, 188 : 188 + 168]
    assert tile[84, 84].tolist() == [255, 255, 255]
    assert tile[10, 10].tolist() == [0, 0, 0]
