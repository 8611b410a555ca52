"""Model inputs: only images that can be read, plain or in the views asked for."""

import numpy as np
import pytest

from sat_tf.layers.encoder import Encoder
from tests.training.data.small_captions import SIZE, drawn, epochs, files, table_of
from training.data.examples import DataError, Split
from training.data.feature_store import FeatureStore
from training.data.image_loader import ImageSource, Views
from training.data.input_source import open_input_source


def seen(*mirrored: bool) -> Views:
    return Views(np.array(mirrored), np.zeros([len(mirrored), 2]))


def test_corrupt_and_missing_files_are_skipped_and_never_in_a_batch(tmp_path):
    examples = files(tmp_path, corrupt=(1,))
    examples[2].image.unlink()
    table, vocabulary = table_of(examples)
    source = ImageSource(examples, SIZE, "crop")
    assert sorted(source.skipped) == [1, 2] and "not a JPEG" in source.skipped[1]
    assert source.skipped[2] == "cannot be read: No such file or directory"
    (first,) = epochs(source, table, 0, 1)
    words = {vocabulary.words[tokens[1]] for batch in first for tokens in batch["tokens"]}
    assert words == {"w0", "w3"}


def test_a_frozen_encoder_reads_from_the_store_and_a_trained_one_images(tmp_path):
    split = Split("train", drawn(3))
    frozen = open_input_source(Encoder("scenes_cnn", SIZE), "crop", split, tmp_path, mirrored=True)
    assert isinstance(frozen, FeatureStore) and frozen.mirrored
    assert frozen.read(np.array([0, 2]), seen(True, False)).shape == (2, 4, 32)
    plain = open_input_source(Encoder("scenes_cnn", SIZE), "crop", split, tmp_path)
    assert plain.read(np.array([0, 2]), seen(True, False)).shape == (2, 4, 32)
    moving = open_input_source(Encoder("scenes_cnn", SIZE, trainable=True), "crop", split, tmp_path)
    assert isinstance(moving, ImageSource) and not moving.mirrored


@pytest.mark.parametrize("trainable", [False, True])
def test_a_split_without_a_readable_image_is_an_error(tmp_path, trainable):
    split = Split("dev", files(tmp_path / "files", corrupt=(0, 1, 2, 3)))
    encoder = Encoder("scenes_cnn", SIZE, trainable=trainable)
    with pytest.raises(DataError, match="No image of the dev split can be read"):
        open_input_source(encoder, "crop", split, tmp_path / "cache")
