"""Tables and numbers as text."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from sat_tf.util.commands import printable


def text_table(rows: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> str:
    """Pads the cells of each column to its widest cell, with two spaces between columns.

    Args:
        rows: Equally many cells in each, headings included.
        left: Indices of the columns that are aligned left; the others are aligned right.
    """
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = enumerate(zip(row, widths, strict=True))
        padded = (text.ljust(n) if i in left else text.rjust(n) for i, (text, n) in cells)
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Formats a Markdown table; floats have six digits, None is a dash, lists have commas."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(map(markdown_cell, line))} |" for line in lines)


def markdown_cell(value: Any) -> str:
    """Formats a value in one line that does not end a cell."""
    if isinstance(value, list):
        value = ", ".join("-" if item is None else str(item) for item in value)
    if isinstance(value, float):
        value = f"{value:.6g}"
    return " ".join(str("-" if value is None else value).split()).replace("|", "\\|")


def counted(number: int, noun: str) -> str:
    """Returns a number with its noun, such as "1 epoch" or "2 epochs"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
