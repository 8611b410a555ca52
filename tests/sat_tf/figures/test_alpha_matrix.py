"""The matrix of alpha over a strip."""

from __future__ import annotations

import numpy as np
import pytest

from sat_tf.digits.figures import alpha_matrix_figure

STRIP = np.zeros([28, 84], np.uint8)


def draw(alpha, probability=(0.9, 0.2), present=(True, False)):
    return alpha_matrix_figure(STRIP, [3, 9], np.array(alpha), probability, present)


def test_a_cell_is_the_warmer_the_more_of_attention_it_has():
    cells = draw([[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    blue = cells[..., 2].astype(int)  # paper is white, the glow has little blue
    top = np.flatnonzero((blue < 100).any(axis=1) & (blue > 200).any(axis=1))
    other = draw([[0.0, 0.0, 0.0, 1.0], [1.0, 0.0, 0.0, 0.0]])
    assert cells.shape == other.shape and len(top)
    assert not np.array_equal(cells, other)
    assert cells[-20, 56 + 3 * 84 + 40, 2] < 100 < cells[-20, 56 + 40, 2]


def test_a_wrong_answer_is_marked():
    alpha = np.full([2, 4], 0.25)
    assert not np.array_equal(draw(alpha), draw(alpha, present=(False, False)))


def test_without_a_null_slot_there_is_a_column_less():
    assert draw(np.full([2, 3], 1 / 3)).shape[1] == draw(np.full([2, 4], 0.25)).shape[1] - 84


def test_alpha_of_other_rows_is_an_error():
    with pytest.raises(ValueError, match="a row for each of the 2 labels"):
        draw(np.full([3, 4], 0.25))
