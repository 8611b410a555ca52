"""Which variants of a training step are measured, and on what."""

from __future__ import annotations

from benchmarks.shapes import TOY
from benchmarks.step import BASELINE, SAT_TF, Stepper, Variant, variants


def test_variants_of_the_usual_and_of_the_full_run():
    usual, full = variants(full=False), variants(full=True)
    assert usual[0] == Variant(BASELINE) and len(usual) == 7
    assert set(usual) < set(full) and len(set(full)) == len(full) == 9
    assert Variant(SAT_TF, "hard", "bfloat16", xla=True) in full


def test_the_baseline_has_shuffled_batches_in_float32():
    ours, theirs = (Stepper(Variant(side), TOY).batches(16) for side in (SAT_TF, BASELINE))
    assert ours.padding < theirs.padding
    assert ours.batches[0]["annotations"].dtype == "float16"
    assert theirs.batches[0]["annotations"].dtype == "float32"
