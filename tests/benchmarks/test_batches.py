"""Batches that take turns: bucketed or in any order."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.batches import ROTATION, rotation
from benchmarks.flops import training_flops
from benchmarks.shapes import FLICKR8K_WORDS, TOY


@pytest.mark.parametrize("bucketed", [True, False])
def test_batches_are_full_and_counted(bucketed):
    made = rotation(TOY, 6, bucketed)
    tokens = [batch["tokens"].numpy() for batch in made.batches]
    assert len(tokens) == ROTATION and made.captions == 6 * ROTATION
    assert made.words == sum(int((ids[:, 1:] != 0).sum()) for ids in tokens)
    assert made.flops == training_flops(TOY, made.captions, made.words)
    for batch in made.batches:
        assert batch["annotations"].shape == [6, TOY.locations, TOY.annotation_dim]


def test_buckets_hold_little_padding_and_common_batches_much():
    assert rotation(TOY, 32, bucketed=True).padding < 0.05
    assert rotation(TOY, 32, bucketed=False).padding > 0.2


def test_buckets_stand_for_an_epoch():
    made = rotation(TOY, 32, bucketed=True)
    mean = sum(n * count for n, count in FLICKR8K_WORDS.items()) / sum(FLICKR8K_WORDS.values())
    assert made.words / made.captions == pytest.approx(mean + 1, rel=0.1)


def test_batches_differ():
    first, second, _ = rotation(TOY, 4, bucketed=True, dtype="float32").batches
    assert first["annotations"].dtype == "float32"
    assert not np.array_equal(first["annotations"], second["annotations"])
