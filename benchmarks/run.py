"""Measure this machine: `python -m benchmarks.run [--only step,search] [--json FILE]`.

docs/performance.md explains the figures.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import sys
from collections.abc import Collection, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from benchmarks.measure import format_table
from sat_tf.commands import exit_status
from sat_tf.errors import invalid_value
from sat_tf.fields import PositiveInt, check_fields
from sat_tf.files import write_atomically

TITLES = {
    "sweep": "Training step over batch sizes, one pass each",
    "step": "Training step, each side at its best batch size",
    "search": "Search",
    "startup": "From the command to the first training step",
}
"""Title of each table."""

SECTIONS = ("step", "search", "startup")
_SHAPES = ("flickr8k", "coco", "toy")


@dataclass(frozen=True)
class Arguments:
    """Measure training steps, search and start-up on this machine."""

    only: tuple[str, ...] = SECTIONS
    """Sections, separated by spaces or commas."""
    shapes: tuple[str, ...] = ("flickr8k", "coco")
    """Shapes, separated by spaces or commas: flickr8k, coco, or toy for a quick trial."""
    repeats: PositiveInt = 3
    """Timed turns of each side; figures are medians."""
    batch_sizes: tuple[int, ...] = (32, 64, 128, 256, 512)
    """Captions per training batch that each side tries."""
    search_batches: tuple[int, ...] = (1, 8, 32, 100)
    """Images per search."""
    images: PositiveInt = 1000
    """Images of the data set of `startup`, with five captions each."""
    json: Path | None = None
    """File of all measurements; none by default."""


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns 0 if everything was measured, 1 otherwise."""
    arguments = tyro.cli(Arguments, args=argv, prog="python -m benchmarks.run")
    return exit_status(lambda: run(arguments))


def run(arguments: Arguments) -> int:
    """Measures section by section, each in its own process; prints the tables of each."""
    check_fields(arguments)
    sections = chosen("--only", arguments.only, SECTIONS)
    shapes = chosen("--shapes", arguments.shapes, _SHAPES)
    report: dict[str, Any] = {"machine": None, "tables": {}}
    failed = False
    for section in sections:
        tables: dict[str, list[dict[str, Any]]] = {}
        for shape in shapes[:1] if section == "startup" else shapes:
            print(f"Measuring {section} {shape} ...", file=sys.stderr, flush=True)
            spawn = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(1, spawn) as process:
                try:
                    found, report["machine"] = process.submit(
                        measure, section, shape, arguments
                    ).result()
                except Exception as error:  # whatever it is: the others are measured anyway
                    print(f"Failed: {section} {shape}: {error!r}", file=sys.stderr)
                    failed = True
                    continue
            for name, rows in found.items():
                tables.setdefault(name, []).extend({"shape": shape, **row} for row in rows)
        for name, rows in tables.items():
            print(f"\n{TITLES[name]}\n\n{format_table(rows)}", flush=True)
        report["tables"] |= tables
        if arguments.json:  # an interrupted run keeps its finished sections
            write_atomically(arguments.json, json.dumps(report, indent=1) + "\n")
    print(f"\n{report['machine'] or 'Nothing was measured.'}")
    return int(failed)


def measure(section: str, shape: str, arguments: Arguments) -> tuple[dict[str, Any], str]:
    """Measures a section for a shape; returns its tables and the machine."""
    from benchmarks import startup, step
    from benchmarks.measure import machine
    from benchmarks.models import SHAPES

    # TensorFlow warns of functions traced for several shapes, which are intended here.
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    sizes, repeats = SHAPES[shape], arguments.repeats
    if section == "step":
        tables = step.measure_step(sizes, arguments.batch_sizes, repeats)
    elif section == "search":
        tables = step.measure_search(sizes, arguments.search_batches, repeats)
    else:
        tables = startup.measure(sizes, arguments.images, repeats)
    return tables, machine()


def chosen(flag: str, given: Iterable[str], known: Collection[str]) -> list[str]:
    """Splits names at spaces and commas.

    Raises:
        ValueError: A name is not known.
    """
    names = [name for part in given for name in part.split(",") if name]
    for name in names:
        if name not in known:
            raise invalid_value(flag, f"some of {', '.join(known)}", repr(name))
    return list(dict.fromkeys(names))


if __name__ == "__main__":
    sys.exit(main())
