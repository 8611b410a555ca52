"""Tables of a comparison: scores per system, and differences from the first one."""

from __future__ import annotations

import json
import math
import statistics
import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from training.tables import number, text_table

if TYPE_CHECKING:
    from training.metrics.bootstrap import Interval

T = TypeVar("T")

LABELS = string.ascii_uppercase
"""Names of the systems, in the order given."""


def read_report(report: Path, split: str) -> dict[str, Any]:
    """Reads the report of an evaluation on a split.

    Raises:
        ValueError: It is no report, or one on another split.
    """
    try:
        found = json.loads(report.read_text("utf-8"))
        found_split, _ = found["split"], found["configuration"]["data"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{report} is not the report of an evaluation.") from error
    if found_split != split:
        message = f"{report.parent} is an evaluation on {found_split}: expected one on {split}."
        raise ValueError(message)
    return found


def by_system(values: Sequence[T], seeds: int) -> list[Sequence[T]]:
    """Groups values of evaluations, of which `seeds` in a row are one system's."""
    return [values[start : start + seeds] for start in range(0, len(values), seeds)]


def means_over_seeds(values: Sequence[float], seeds: int) -> list[float]:
    """Returns the mean of each system."""
    return [statistics.fmean(own) for own in by_system(values, seeds)]


def score_table(scores: Mapping[str, Sequence[float]]) -> str:
    """Formats the scores, metric -> one value per system."""
    count = len(next(iter(scores.values()), ()))
    rows = [[name, *(number(name, value) for value in values)] for name, values in scores.items()]
    return text_table([["", *LABELS[:count]], *rows])


def difference_table(differences: Mapping[str, Sequence[Interval]]) -> str:
    """Formats differences with their 95 % intervals: metric -> one per system but the first."""
    count = len(next(iter(differences.values()), ()))
    heads = [""]
    for label in LABELS[1 : count + 1]:
        heads += [f"{label} - {LABELS[0]}", "95 % interval"]
    rows = [heads]
    for name, intervals in differences.items():
        row = [name]
        for found in intervals:
            by, low, high = (number(name, value, sign="+") for value in found)
            row += [by, "-" if math.isnan(found.low) else f"[{low}, {high}]"]
        rows.append(row)
    return text_table(rows, left=range(0, 2 * count + 1, 2))
