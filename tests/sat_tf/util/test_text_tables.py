"""Tables as text."""

from sat_tf.util.text_tables import text_table


def test_columns_are_aligned_and_control_characters_are_escapes():
    rows = [["system", "CIDEr"], ["a\x1b[2Jb", "61.2"], ["c", "8"]]
    assert text_table(rows) == "system     CIDEr\na\\x1b[2Jb   61.2\nc              8"
