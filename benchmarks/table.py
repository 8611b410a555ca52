"""Rows as text: a column as wide as its widest cell, numbers to the right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        key: Of the row's cell.
        heading: Above it; the key where empty.
        form: Format of what is not text.
    """

    key: str
    heading: str = ""
    form: str = ""

    def cell(self, row: Mapping[str, Any]) -> str:
        """The row's cell as text; a dash where it has none."""
        value = row.get(self.key)
        if value is None:
            return "-"
        if isinstance(value, bool):
            return "yes" if value else "no"
        return value if isinstance(value, str) else format(value, self.form)


def format_table(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> str:
    """A line of headings and a line a row."""
    lines = [[column.heading or column.key for column in columns]]
    lines += [[column.cell(row) for column in columns] for row in rows]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    # Text is told from numbers by the first row.
    left = [bool(rows) and isinstance(rows[0].get(column.key), str) for column in columns]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if is_left else cell.rjust(width)
            for cell, width, is_left in zip(cells, widths, left, strict=True)
        ).rstrip()
        for cells in lines
    )
