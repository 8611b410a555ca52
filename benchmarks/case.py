"""One measurement in its own process: `python -m benchmarks.case CASE RESULT`.

`benchmarks.run` starts it, so that peak memory is that of the case alone.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import logging
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.sections import SECTIONS
from benchmarks.shapes import Shape

Row = dict[str, Any]
Tables = dict[str, list[Row]]


@dataclass(frozen=True)
class Settings:
    """Settings of a measurement."""

    full: bool = False
    """Measure every combination of shape, precision, XLA and attention; takes hours."""
    repeats: int = 3
    """Timed turns of each side; figures are medians."""
    batch_sizes: tuple[int, ...] = (32, 64, 128, 256, 512)
    """Captions per training batch that each side tries."""
    batch_size: int = 64
    """Captions per batch in pipeline, epoch and memory."""
    search_batches: tuple[int, ...] = (1, 8, 32, 100)
    """Images per search."""
    export_batches: tuple[int, ...] = (1, 8)
    """Images per call of the export."""
    images: int = 1000
    """Images of the random feature store, with five captions each."""


@dataclass(frozen=True)
class Case:
    """One section, or a part of it, for one shape."""

    section: str
    shape: Shape
    settings: Settings
    part: str = ""

    def to_json(self) -> str:
        """Encodes the case for the command line."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Case:
        """Decodes the output of `to_json`."""
        values = json.loads(text)
        given = values["settings"].items()
        settings = {k: tuple(v) if isinstance(v, list) else v for k, v in given}
        return cls(
            values["section"], Shape(**values["shape"]), Settings(**settings), values["part"]
        )


def measure(case: Case) -> dict[str, Any]:
    """Returns `tables`, each row with its shape and the case's peak memory, and `machine`."""
    from benchmarks.measure import machine
    from benchmarks.peak import peak_megabytes

    tables: Tables = importlib.import_module(SECTIONS[case.section].module).measure(case)
    about = {"shape": case.shape.name}
    peak = {"peak_mb": round(peak_megabytes(), 1)}
    return {
        "tables": {name: [about | row | peak for row in rows] for name, rows in tables.items()},
        "machine": machine(),
    }


if __name__ == "__main__":
    # TensorFlow warns of functions traced for several shapes, which are intended here.
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    case_json, result = sys.argv[1:]
    Path(result).write_text(json.dumps(measure(Case.from_json(case_json))), "utf-8")
