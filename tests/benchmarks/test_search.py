"""The sides of the search find captions of one length."""

from __future__ import annotations

import pytest

from benchmarks import models
from benchmarks.baseline import Baseline
from benchmarks.search import MAX_LENGTH, batched, looped, untrained
from benchmarks.shapes import TOY


@pytest.mark.parametrize("kind", ["soft", "hard"])
def test_captions_are_as_long_as_they_may_be(kind):
    captioner = untrained(TOY, kind)
    assert captioner.model.selection == {"soft": "expectation", "hard": "sample"}[kind]
    assert batched(captioner, TOY, 2, 3, {}).call() == MAX_LENGTH


def test_the_loop_finds_captions_as_long():
    baseline = Baseline(TOY, models.run_config(TOY))
    baseline.copy_weights(untrained(TOY).model.decoder)
    assert looped(baseline, TOY, 2).call() == MAX_LENGTH
