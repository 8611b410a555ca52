"""Predictions of the words of captions: their file, and their place in a batch."""

import numpy as np
import pytest

from sat_tf.objectives.likelihood import PREDICTED_SHARES, PREDICTED_WORDS
from sat_tf.text.vocabulary import Vocabulary
from tests.training.data.small_captions import SIZE, drawn, epochs, table_of
from training.data.examples import DataError
from training.data.image_loader import ImageSource
from training.teachers.distillation import WordPredictions, caption_offsets, captions_identity

WORDS = 2


def predictions_of(table, vocabulary):
    """The word itself with half of the probability, and `<end>` with a quarter, everywhere."""
    targets = np.concatenate([ids[1:] for ids in table.tokens])
    words = np.stack([targets, np.full_like(targets, 2)], axis=1)
    shares = np.tile(np.array([0.5, 0.25], np.float16), [len(words), 1])
    identity = captions_identity(table, vocabulary)
    return WordPredictions(words, shares, caption_offsets(table), identity)


def test_every_word_of_a_batch_comes_with_its_predictions():
    examples = drawn(5)
    table, vocabulary = table_of(examples)
    source, found = ImageSource(examples, SIZE, "crop"), predictions_of(table, vocabulary)
    for batch in epochs(source, table, 0, 2, found)[1]:
        targets = batch["tokens"][:, 1:]
        words, shares = batch[PREDICTED_WORDS], batch[PREDICTED_SHARES]
        assert words.shape == shares.shape == (*targets.shape, WORDS)
        np.testing.assert_array_equal(words[..., 0], targets)
        np.testing.assert_array_equal(shares[..., 0], np.where(targets > 0, 0.5, 0.0))


def test_a_file_gives_back_what_was_saved_for_these_captions_alone(tmp_path):
    table, vocabulary = table_of(drawn(3))
    saved = predictions_of(table, vocabulary)
    saved.save(tmp_path / "p.npz")
    read = WordPredictions.load(tmp_path / "p.npz", table, vocabulary)
    np.testing.assert_array_equal(read.words, saved.words)
    np.testing.assert_array_equal(read.shares, saved.shares)
    np.testing.assert_array_equal(read.offsets, saved.offsets)
    assert read.fingerprint() == saved.fingerprint()
    saved.shares[0, 0] = 0.125
    assert read.fingerprint() != saved.fingerprint()
    predictions_of(table, vocabulary).save(tmp_path / "p.npz")
    with pytest.raises(DataError, match="are of other captions"):
        WordPredictions.load(tmp_path / "p.npz", table_of(drawn(2))[0], vocabulary)
    renamed = Vocabulary((*vocabulary.words[:-1], "other"))
    with pytest.raises(DataError, match="or of another vocabulary"):
        WordPredictions.load(tmp_path / "p.npz", table, renamed)


@pytest.mark.parametrize("name", ["not finite", "do not fit", "other"])
def test_a_damaged_file_is_an_error_that_names_the_command(tmp_path, name):
    path, (table, vocabulary) = tmp_path / "p.npz", table_of(drawn(3))
    found = predictions_of(table, vocabulary)
    if name == "not finite":
        found.shares[1, 1] = np.inf
    elif name == "do not fit":
        found = WordPredictions(found.words[:-1], found.shares, found.offsets, found.captions)
    found.save(path)
    if name == "other":
        np.savez(path, kernel=np.zeros(3))
    with pytest.raises(DataError, match=r"p\.npz does not hold predictions.*training\.distill"):
        WordPredictions.load(path, table, vocabulary)
