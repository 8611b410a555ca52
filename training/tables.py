"""Tables and numbers as text."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from sat_tf.commands import printable


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
    """Formats a Markdown table, each row in one line."""
    lines = [header, ["---"] * len(header), *rows]
    cells = ([" ".join(str(cell).split()).replace("|", "\\|") for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def counted(number: int, noun: str) -> str:
    """Returns a number with its noun, such as "1 epoch" or "2 epochs"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
