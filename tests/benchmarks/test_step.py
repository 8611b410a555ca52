"""Batches of the two sides of a training step."""

from __future__ import annotations

from benchmarks.shapes import TOY
from benchmarks.step import BASELINE, SAT_TF, Stepper, Variant


def test_the_baseline_has_shuffled_batches_in_float32():
    ours, theirs = (Stepper(Variant(side), TOY).batches(16) for side in (SAT_TF, BASELINE))
    assert ours.padding < theirs.padding
    assert ours.batches[0]["annotations"].dtype == "float16"
    assert theirs.batches[0]["annotations"].dtype == "float32"
