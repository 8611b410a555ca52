"""`sat-tf explain`: a table, a figure; sentences that are refused."""

import numpy as np
import pytest
from PIL import Image

from tests.image_files import noise
from training.explain import main


@pytest.fixture
def flags(soft_run, tmp_path):
    noise(40, 90).save(tmp_path / "bird.png")
    return [str(tmp_path / "bird.png"), "--run-dir", str(soft_run), "--out", str(tmp_path / "out")]


def test_it_prints_a_table_and_draws_the_figure(flags, tmp_path, capsys):
    assert main([flags[0], "A red unicorn", *flags[1:]]) == 0
    first, head, *rows = capsys.readouterr().out.splitlines()
    assert first.endswith("bird.png: a red unicorn")
    assert head.split() == ["word", "log", "p", "looking", "gate", "x,", "%", "y,", "%"]
    assert [row.split()[0] for row in rows[:3]] == ["a", "red", "unicorn"]
    assert rows[2].split()[1:3] == ["?", "?"]
    assert rows[3] == "Not known, and read as <unk>: unicorn."
    assert np.asarray(Image.open(tmp_path / "out" / "bird.png")).std() > 0


@pytest.mark.parametrize("sentence", ["", "unicorns", "a " * 9])
def test_what_cannot_be_read_is_refused_in_a_line(flags, sentence, capsys):
    assert main([flags[0], sentence, *flags[1:]]) == 2
    assert "`sentence`" in capsys.readouterr().err
    assert main([flags[0] + "x", *flags[1:]]) == 2
    assert "`image`" in capsys.readouterr().err
