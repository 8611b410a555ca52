"""Calls of an export through the C++ session, split as in `benchmarks.serving_latency`."""

from __future__ import annotations

from benchmarks.case import Case, Tables
from benchmarks.search import BEAMS, MAX_LENGTH, untrained
from benchmarks.serving_latency import measure_calls, noise_jpeg
from sat_tf.config import SearchConfig


def measure(case: Case) -> Tables:
    """Measures `export`: one row per number of images in a call."""
    captioner = untrained(case.shape)
    search = SearchConfig(beam=BEAMS[-1], max_length=MAX_LENGTH)
    # Calls are short: it takes many for a steady median.
    repeats = 5 * case.settings.repeats
    batches = case.settings.export_batches
    return {"export": measure_calls(captioner, search, noise_jpeg(224), batches, repeats)}
