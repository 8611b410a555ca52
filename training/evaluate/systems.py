"""Scores of several systems, trained with one or more seeds each, as a table."""

from __future__ import annotations

import statistics
import string
from collections.abc import Mapping, Sequence
from typing import TypeVar

from training.evaluate.reports import number
from training.tables import text_table

T = TypeVar("T")

LABELS = string.ascii_uppercase
"""Names of the systems, in the order given."""


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
