"""The file that shows the whole method runs, stays short, and trains both kinds of attention."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from experiments import minimal


def test_it_fits_on_a_page_or_two():
    assert len(Path(minimal.__file__).read_text("utf-8").splitlines()) <= 150


@pytest.mark.slow
def test_soft_and_hard_attention_train_and_are_drawn(tmp_path, capsys):
    out = tmp_path / "figure.png"
    minimal.main(["--scenes", "64", "--epochs", "2", "--out", str(out)])
    said = capsys.readouterr().out
    losses = [
        float(line.partition("loss: ")[2].split()[0])
        for line in said.splitlines()
        if "loss: " in line
    ]
    soft, hard = losses[:2], losses[2:]
    assert len(hard) == 6 and soft[1] < soft[0] and hard[-1] < hard[0]
    assert "soft: " in said and "hard: " in said
    pixels = np.asarray(Image.open(out))
    assert pixels.ndim == 3 and pixels.std() > 10
