"""Values of several seeds as one cell of a table: mean and standard deviation."""

from __future__ import annotations

import statistics
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    """The same figure of several runs.

    Attributes:
        values: At least one.
    """

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Their mean."""
        return statistics.fmean(self.values)

    @property
    def deviation(self) -> float | None:
        """Their standard deviation, with n - 1 below; None of one value."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    def __format__(self, form: str) -> str:
        if self.deviation is None:
            return format(self.mean, form)
        return f"{self.mean:{form}} ± {self.deviation:{form}}"
