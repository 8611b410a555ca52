"""Measure this machine: `python -m benchmarks.run [--only step search] [--json FILE]`.

docs/performance.md explains the figures.
"""

from __future__ import annotations

import logging
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from json import dumps
from pathlib import Path
from typing import Any, Literal

from benchmarks.measure import command, format_table
from sat_tf.files import write_atomically

TITLES = {
    "sweep": "Training step over batch sizes, one pass each",
    "step": "Training step, each side at its best batch size",
    "search": "Search",
}
"""Title of each table."""

_Section = Literal["step", "search"]
_Shape = Literal["flickr8k", "coco", "toy"]


def run(
    only: tuple[_Section, ...] = ("step", "search"),
    shapes: tuple[_Shape, ...] = ("flickr8k", "coco"),
    repeats: int = 3,
    batch_sizes: tuple[int, ...] = (32, 64, 128, 256, 512),
    search_batches: tuple[int, ...] = (1, 8, 32, 100),
    json: Path | None = None,
) -> None:
    """Measures training steps and search, each in its own process.

    Args:
        only: What is measured.
        shapes: Sizes of captioner and data; toy is for a quick trial.
        repeats: Timed turns of each side; figures are medians.
        batch_sizes: Captions per training batch that each side tries.
        search_batches: Images per search.
        json: File of all measurements; none by default.
    """
    sizes = {"step": batch_sizes, "search": search_batches}
    report: dict[str, Any] = {"machine": None, "tables": {}}
    for section in only:
        tables: dict[str, list[dict[str, Any]]] = {}
        for shape in shapes:
            print(f"Measuring {section} {shape} ...", file=sys.stderr, flush=True)
            spawn = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(1, spawn) as process:
                done = process.submit(measure, section, shape, sizes[section], repeats)
                found, report["machine"] = done.result()
            for name, rows in found.items():
                tables.setdefault(name, []).extend({"shape": shape, **row} for row in rows)
        for name, rows in tables.items():
            print(f"\n{TITLES[name]}\n\n{format_table(rows)}", flush=True)
        report["tables"] |= tables
        if json:  # an interrupted run keeps its finished sections
            write_atomically(json, dumps(report, indent=1) + "\n")
    print(f"\n{report['machine']}")


def measure(section: _Section, shape: _Shape, sizes: Any, repeats: int) -> tuple[dict, str]:
    """Measures a section for a shape; returns its tables and the machine."""
    from benchmarks import step
    from benchmarks.measure import machine
    from benchmarks.models import SHAPES

    # TensorFlow warns of functions traced for several shapes, which are intended here.
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    sections = {"step": step.measure_step, "search": step.measure_search}
    return sections[section](SHAPES[shape], sizes, repeats), machine()


if __name__ == "__main__":
    sys.exit(command(run))
