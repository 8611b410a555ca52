"""Sections of the benchmark and the columns of their tables. Imports no TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from training.tables import Column

_SHAPE, _PEAK = Column("shape"), Column("peak_mb", "peak MB", ".0f")
_SIDE, _PRECISION, _BATCH = Column("side"), Column("precision"), Column("batch")
_BASELINE = Column("times_baseline", "x baseline", ".2f")


@dataclass(frozen=True)
class Section:
    """One part of the benchmark.

    Attributes:
        module: Module with `measure(case) -> Tables`.
        tables: Name of the table -> title and columns.
        parts: Cases per shape.
        once: Measure the first shape only.
    """

    module: str
    tables: Mapping[str, tuple[str, tuple[Column, ...]]]
    parts: tuple[str, ...] = ("",)
    once: bool = False


_SWEEP = (_SHAPE, _SIDE, _PRECISION, _BATCH, Column("captions_s", "captions/s", ".1f"))
_STEP = (
    _SHAPE,
    _SIDE,
    Column("attention"),
    _PRECISION,
    Column("xla", "XLA"),
    _BATCH,
    Column("captions_s", "captions/s", ".1f"),
    _BASELINE,
    Column("tokens_s", "tokens/s", ".0f"),
    Column("padding", "padding", ".1%"),
    Column("gflops", "GFLOP/s", ".1f"),
    Column("product_gflops", "products alone", ".1f"),
    Column("product_share", "share", ".1%"),
)
_PIPELINE = (
    _SHAPE,
    Column("encode_images_s", "encode images/s", ".1f"),
    Column("read_images_s", "read images/s", ".0f"),
    Column("read_mb_s", "read MB/s", ".0f"),
    _BATCH,
    Column("padding", "padding", ".1%"),
    Column("batch_ms", "batch ms", ".2f"),
    _PRECISION,
    Column("step_ms", "step ms", ".1f"),
    Column("share_of_step", "share", ".1%"),
    _PEAK,
)
_EPOCH = (
    _SHAPE,
    Column("attention"),
    _PRECISION,
    Column("xla", "XLA"),
    Column("captions"),
    _BATCH,
    Column("steps"),
    Column("seconds", "seconds", ".2f"),
    Column("captions_s", "captions/s", ".1f"),
    Column("tokens_s", "tokens/s", ".0f"),
    _PEAK,
)
_SEARCH = (
    _SHAPE,
    _SIDE,
    Column("attention"),
    _PRECISION,
    Column("beam"),
    _BATCH,
    Column("images_s", "images/s", ".1f"),
    _BASELINE,
    Column("words", "words", ".1f"),
)
LATENCY = (
    Column("beam"),
    _BATCH,
    Column("decode_ms", "decode ms", ".1f"),
    Column("encoder_ms", "encoder ms", ".1f"),
    Column("search_ms", "search ms", ".1f"),
    Column("whole_ms", "whole ms", ".1f"),
    Column("whole_over_encoder", "x encoder", ".2f"),
    Column("words", "words", ".1f"),
)
"""Columns of a call of an export, also in `benchmarks.serving_latency`."""

_MEMORY = (_SHAPE, Column("what"), _BATCH, _PEAK)
_MEMORY_PARTS = ("imports", "baseline float32", "sat_tf float32", "sat_tf bfloat16", "search")
_STARTUP = (
    _SHAPE,
    Column("images"),
    Column("first_step_s", "first step s", ".2f"),
    Column("imports_s", "import tensorflow, keras s", ".2f"),
    Column("times_imports", "x imports", ".2f"),
)
_PHASES = (_SHAPE, Column("phase"), Column("seconds", "seconds", ".2f"))

SECTIONS: dict[str, Section] = {
    "step": Section(
        "benchmarks.step",
        {
            "sweep": ("Training step over batch sizes, one pass each", _SWEEP),
            "step": ("Training step, each side at its best batch size", _STEP),
        },
    ),
    "pipeline": Section("benchmarks.pipeline", {"pipeline": ("Input pipeline", _PIPELINE)}),
    "epoch": Section("benchmarks.epoch", {"epoch": ("A whole epoch", _EPOCH)}),
    "search": Section("benchmarks.search", {"search": ("Search", _SEARCH)}),
    "export": Section(
        "benchmarks.export", {"export": ("A call of an export", (_SHAPE, *LATENCY, _PEAK))}
    ),
    "memory": Section(
        "benchmarks.memory",
        {"memory": ("Peak memory, one process each", _MEMORY)},
        _MEMORY_PARTS,
    ),
    "startup": Section(
        "benchmarks.startup",
        {
            "startup": ("From the command to the first training step", _STARTUP),
            "phases": ("Where that time goes", _PHASES),
        },
        once=True,
    ),
}
