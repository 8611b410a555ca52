"""The file that shows the whole method stays short, and trains both kinds of attention."""

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from experiments import minimal


def test_it_fits_on_a_page_or_two():
    assert len(Path(minimal.__file__).read_text("utf-8").splitlines()) <= 160


def test_pointing_counts_colours_and_shapes_found_in_the_boxes_of_their_objects():
    places = [0, 9, 9, 0, 0, 9, 63]  # "a red circle and a blue star": all found but the star
    alpha = np.eye(64)[[places]]
    boxes = [[(0.1, 0.1, 0.3, 0.3), (0.1, 0.1, 0.3, 0.3)]]
    assert minimal.pointing(alpha, boxes) == 0.75


@pytest.mark.slow
def test_soft_and_hard_attention_move_to_the_objects_and_are_drawn(tmp_path, capsys):
    out = tmp_path / "figure.png"
    minimal.main(["--steps", "480", "--out", str(out)])
    said = capsys.readouterr().out
    found = re.findall(r"(\w+): (\d+) of 100 new scenes right, pointing game (\d+)%", said)
    # One spot for all words finds a tenth of them, as does a map without a maximum.
    assert [kind for kind, *_ in found] == ["soft", "hard"]
    assert all(int(looked) > 30 for *_, looked in found), found
    pixels = np.asarray(Image.open(out))
    assert pixels.ndim == 3 and pixels.std() > 10
