"""Tables as text."""

from __future__ import annotations

from training.tables import text_table


def test_the_first_column_is_aligned_left_unless_others_are_named():
    rows = [["", "train", "dev"], ["used", "112", "9"]]
    assert text_table(rows) == "      train  dev\nused    112    9"
    assert text_table(rows, left=(1, 2)) == "      train  dev\nused  112    9"
    assert text_table([]) == ""
