"""Rows as text."""

from __future__ import annotations

from benchmarks.table import Column, format_table

COLUMNS = [Column("side"), Column("rate", "captions/s", ".1f"), Column("xla", "XLA")]


def test_columns_line_up_text_left_numbers_right():
    rows = [
        {"side": "sat_tf", "rate": 1234.56, "xla": True},
        {"side": "a", "rate": 7, "xla": False},
    ]
    assert format_table(COLUMNS, rows).splitlines() == [
        "side    captions/s  XLA",
        "sat_tf      1234.6  yes",
        "a              7.0   no",
    ]


def test_a_cell_that_a_row_has_not_is_a_dash():
    assert format_table(COLUMNS, [{"side": "a"}]).splitlines()[1].split() == ["a", "-", "-"]
