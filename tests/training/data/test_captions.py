"""Rows of numbers, and captions as rows, against lists."""

import numpy as np
import pytest

from sat_tf.text.vocabulary import END, SPECIAL_TOKENS, START, UNK, Vocabulary
from training.data.captions import Rows, caption_table, learn_vocabulary, split_captions
from training.data.examples import DataError, Example, Split
from training.run.config import DataConfig

ROWS = [[3, 1, 2], [], [4], [], [0, 4, 4, 1, 2, 2]]


def lists(rows: Rows) -> list[list[int]]:
    return [row.tolist() for row in rows]


def test_rows_are_framed_cut_and_taken_as_lists_are():
    rows = Rows.of(ROWS)
    assert lists(rows) == ROWS and len(rows) == 5
    assert lists(rows.framed(1, 2)) == [[1, *row, 2] for row in ROWS]
    for most in (2, 3, 9):
        assert lists(rows.cut(most)) == [[*row[: most - 1], *row[most - 1 :][-1:]] for row in ROWS]
    assert lists(rows.take(np.array([4, 0]))) == [ROWS[4], ROWS[0]]
    assert lists(Rows.of([]).framed(1, 2)) == [] and len(Rows.of([]).cut(3)) == 0


def split_of(*captions: tuple[str, ...]) -> Split:
    image = np.zeros((1, 1, 3), np.uint8)
    return Split("train", tuple(Example(str(i), image, texts) for i, texts in enumerate(captions)))


@pytest.mark.parametrize("unit", ["words", "characters"])
@pytest.mark.parametrize("language", ["en", "de", "zh"])
def test_a_table_has_the_ids_that_the_vocabulary_gives_each_caption(unit, language):
    captions = (
        ("Ein Hund rennt.", "!!!", "ein Hund, ein Hund"),
        ("", "Die Katze 3.5 \u72d7\u72d7 Hund"),
    )
    split = split_of(*captions)
    config = DataConfig("folder", tokens=unit, language=language, min_count=1)
    words = split_captions(config, split)
    vocabulary = learn_vocabulary(config, words)
    expected = {
        (n, k): [START, *ids, END]
        for n, texts in enumerate(captions)
        for k, text in enumerate(texts)
        if (ids := vocabulary.encode(text))
    }
    for table in (words.table(vocabulary), caption_table(split, vocabulary)):
        places = zip(table.image_index.tolist(), table.caption_index.tolist(), strict=True)
        assert dict(zip(places, lists(table.tokens), strict=True)) == expected
        assert table.dropped == 2


def test_captions_become_ids_between_start_and_end():
    vocabulary = Vocabulary((*SPECIAL_TOKENS, "a", "dog"))
    table = caption_table(split_of(("A dog .", " . "), ("a cat dog a",)), vocabulary).cut(3)
    assert [row.tolist() for row in table.tokens] == [[START, 4, 5, END], [START, 4, UNK, 5, END]]
    assert all(row.dtype == np.int32 for row in table.tokens)
    assert table.image_index.tolist() == [0, 1] and table.image_index.dtype == np.int32
    assert table.caption_index.tolist() == [0, 0]
    assert table.lengths.tolist() == [4, 5]
    assert (len(table), table.dropped, table.truncated) == (2, 1, 1)
    with pytest.raises(DataError, match="No caption of the train split"):
        caption_table(split_of((".",)), Vocabulary(SPECIAL_TOKENS))
