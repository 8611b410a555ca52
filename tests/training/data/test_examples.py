"""Splits by name, their fingerprints, and where a missing one is told."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from training.config import DataConfig
from training.data.examples import DataError, Example, Phrase, Split, canonical_split
from training.data.sources import load_split


def test_val_means_dev():
    assert canonical_split("val") == "dev"
    with pytest.raises(ValueError, match="`split`.*'both'"):
        canonical_split("both")


@pytest.mark.parametrize("data_dir", [None, Path("no/such/folder")])
def test_a_missing_folder_is_an_error_that_names_the_flag(data_dir):
    with pytest.raises(DataError, match="--data-dir"):
        load_split(DataConfig("flickr8k"), "train", data_dir)


def test_the_fingerprint_follows_the_content():
    image = np.zeros((2, 3, 3), np.uint8)
    phrase = Phrase(0, 2, (0.1, 0.2, 0.3, 0.4), "red ball")
    example = Example("0", image, ("a red ball",), (phrase,))
    split = Split("dev", (example,))
    brighter = image.copy()
    brighter[1, 2, 0] = 1
    changes = (
        {"image_id": "1"},
        {"image": brighter},
        {"image": image.reshape(3, 2, 3)},
        {"captions": ("a red", "ball")},
        {"phrases": ()},
        {"phrases": (replace(phrase, box=(0.1, 0.2, 0.3, 0.5)),)},
    )
    others = [replace(split, examples=(replace(example, **change),)) for change in changes]
    others += [replace(split, name="test"), replace(split, examples=(example, example))]
    prints = {split.fingerprint(), *(other.fingerprint() for other in others)}
    assert len(prints) == 1 + len(others)
    same = replace(split, examples=(replace(example, image=image.copy()),))
    assert same.fingerprint() == split.fingerprint()
