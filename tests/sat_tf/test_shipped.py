"""Models that ship: complete, small, and with maps of the photographs they caption."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import sat_tf
from sat_tf import digits, published

NAMES = ["flickr8k_hard", "flickr8k_none", "flickr8k_soft"]
DIGITS = ["dram_pairs", "ram_28", "stn_rts"]
SAMPLE = Path(__file__).parents[2] / "serving" / "web" / "samples" / "cat.jpg"


def test_three_captioners_ship_with_one_encoder():
    assert sorted(published.names()) == NAMES
    weights = [path for path in published.SHIPPED.rglob("*.npz") if path.stem != "weights"]
    assert len(weights) == 4 and sum(path.stat().st_size for path in weights) < 60e6


def test_three_small_digit_models_ship():
    assert digits.names() == DIGITS
    folders = [published.SHIPPED / name for name in DIGITS]
    assert sum(p.stat().st_size for folder in folders for p in folder.iterdir()) < 2e6


@pytest.mark.parametrize("name", DIGITS)
def test_cards_of_digit_models_have_data_licence_error_and_command(name):
    folder = published.locate(name)
    card = (folder / published.CARD).read_text("utf-8")
    assert published.checked_files(folder) and "MNIST" in card and "CC BY-SA 3.0" in card
    assert "- dev: " in card and f"--recipe {name}" in card and "## Not for" in card


@pytest.mark.parametrize("name", NAMES)
def test_cards_say_whose_data_it_is_and_what_it_is_not_for(name):
    folder = published.locate(name)
    card = (folder / published.CARD).read_text("utf-8")
    assert published.checked_files(folder)
    assert "non-commercial research" in card and "Apache-2.0" in card
    assert "## For, and not for" in card
    taught = published.taught_by(folder)
    assert taught["inherited"] == ["boxes", "captioners", "reward"]
    boxed = "Attention was supervised by people's boxes" in card
    assert ("boxes" in taught["own"]) is boxed is (name != "flickr8k_none")


def test_a_photograph_gets_a_caption_with_maps():
    caption = sat_tf.load("flickr8k_soft").caption(SAMPLE)
    assert caption.text and caption.alpha.shape == (len(caption.words), 9, 9)
    np.testing.assert_allclose(caption.alpha.sum(axis=(1, 2)), 1.0, atol=1e-3)
    assert caption.alpha.max(axis=(1, 2)).mean() > 2 / 81  # peaked, not even
