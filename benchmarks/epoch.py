"""One epoch of `fit` over a feature store: reading, batching, steps and Keras' own loop."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from benchmarks import models
from benchmarks.case import Case, Row, Tables
from benchmarks.shapes import Shape
from benchmarks.stores import training_data
from training.data.batches import training_batches
from training.data.bucketing import CaptionTable
from training.data.input_source import InputSource


def measure(case: Case) -> Tables:
    """Measures `epoch`: soft attention in both precisions; if `full`, hard and XLA too."""
    settings = case.settings
    kinds = ("soft", "hard") if settings.full else ("soft",)
    with tempfile.TemporaryDirectory() as folder:
        source, table = training_data(case.shape, settings.images, Path(folder))
        rows = [
            _one(case.shape, source, table, settings.batch_size, (kind, precision, xla))
            for kind in kinds
            for precision in models.PRECISIONS
            for xla in ((False, True) if settings.full else (False,))
        ]
    return {"epoch": rows}


def _one(
    shape: Shape,
    source: InputSource,
    table: CaptionTable,
    batch_size: int,
    variant: tuple[models.Kind, models.Precision, bool],
) -> Row:
    """Times the second epoch; the first one traces and, with XLA, compiles every length."""
    kind, precision, xla = variant
    model = models.captioner(shape, models.run_config(shape, kind, precision, xla))
    _, steps = training_batches(source, table, batch_size, 0, 0)
    took = []
    for epoch in range(2):
        batches, _ = training_batches(source, table, batch_size, 0, epoch)
        # Only XLA compiles each length.
        count = steps if epoch or xla else min(steps, 2)
        start = time.perf_counter()
        model.fit(batches, steps_per_epoch=count, shuffle=False, verbose=0)
        took.append(time.perf_counter() - start)
    predictions = int((table.lengths - 1).sum())
    return {
        "attention": kind,
        "precision": precision,
        "xla": xla,
        "captions": len(table),
        "batch": batch_size,
        "steps": steps,
        "seconds": took[-1],
        "captions_s": len(table) / took[-1],
        "tokens_s": predictions / took[-1],
    }
