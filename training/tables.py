"""Tables and numbers as text: aligned columns for a terminal, pipes for Markdown."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Column:
    """Column of `format_table`.

    Attributes:
        key: Key of the column's cell in each row.
        heading: Text above the column; the key if empty.
        form: Format specification of numbers.
    """

    key: str
    heading: str = ""
    form: str = ""

    def cell(self, row: Mapping[str, Any]) -> str:
        """Formats the row's cell; a missing one is a dash."""
        value = row.get(self.key)
        if value is None:
            return "-"
        if isinstance(value, bool):
            return "yes" if value else "no"
        return value if isinstance(value, str) else format(value, self.form)


def format_table(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> str:
    """Formats mappings as aligned text: one line of headings, then one line per row.

    Columns that hold text in the first row are aligned left, all others right.
    """
    cells = [[column.heading or column.key for column in columns]]
    cells += [[column.cell(row) for column in columns] for row in rows]
    first = rows[0] if rows else {}
    return text_table(
        cells, [i for i, c in enumerate(columns) if isinstance(first.get(c.key), str)]
    )


def text_table(rows: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> str:
    """Pads the cells of each column to its widest cell, with two spaces between columns.

    Args:
        rows: Equally many cells in each, headings included.
        left: Indices of the columns that are aligned left; the others are aligned right.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = enumerate(zip(row, widths, strict=True))
        padded = (text.ljust(n) if i in left else text.rjust(n) for i, (text, n) in cells)
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def decimals(score: str) -> int:
    """Returns the decimals of a score: of gaps four, ratios and nats per word three, others two."""
    if score.endswith("_gap"):
        return 4
    return 3 if score.endswith("_ratio") or score.startswith("nll_phrase") else 2


def number(score: str, value: float | None, sign: str = "") -> str:
    """Formats the value of a score; one that is None or not finite is "undefined"."""
    if value is None or not math.isfinite(value):
        return "undefined"
    return f"{value:{sign}.{decimals(score)}f}"


def score_rows(scores: Mapping[str, Any], intervals: Mapping[str, Any]) -> list[list[str]]:
    """Formats name, score and interval; the third cells are left out if there is no interval."""
    rows = []
    for name, value in flat(scores).items():
        numeric = value is None or isinstance(value, (int, float))
        rows.append([name, number(name, value) if numeric else value])
        if intervals:
            rows[-1].append(interval_text(name, intervals[name]) if intervals.get(name) else "")
    return rows


def interval_text(name: str, interval: Any) -> str:
    """Formats the ends of an interval, the last two of its numbers; a dash if undefined."""
    ends = interval.values() if isinstance(interval, Mapping) else interval
    low, high = list(ends)[-2:]
    undefined = low is None or not math.isfinite(low)
    return "-" if undefined else f"[{number(name, low)}, {number(name, high)}]"


def flat(mapping: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flattens nested mappings, with dotted names."""
    found = {}
    for key, value in mapping.items():
        nested = isinstance(value, Mapping)
        found |= flat(value, f"{prefix}{key}.") if nested else {prefix + key: value}
    return found


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Formats a Markdown table; floats have six digits, None is a dash, lists have commas."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(map(markdown_cell, line))} |" for line in lines)


def markdown_cell(value: Any) -> str:
    """Formats a value in one line that does not end a cell."""
    if isinstance(value, list):
        value = ", ".join(map(str, value))
    if isinstance(value, float):
        value = f"{value:.6g}"
    return " ".join(str("-" if value is None else value).split()).replace("|", "\\|")


def counted(number: int, noun: str) -> str:
    """Returns a number with its noun, such as "1 epoch" or "2 epochs"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
