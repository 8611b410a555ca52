"""Inputs of a run: words of training captions, images that can be read, files that teach."""

import numpy as np
import pytest

from tests.training.small_runs import exit_of
from training.data.captions import learn_vocabulary, split_captions
from training.data.examples import Example, Split
from training.data.image_loader import ImageSource
from training.data.inputs import Inputs, batches_of, load_data
from training.data.readers import Source
from training.train import main, parse

SCENES = ["--recipe", "scenes_soft", "--data.limit", "8", "--encoder.trainable", "False"]
SUPERVISED = ["--attention.supervision-weight", "1"]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ([*SUPERVISED, "--attention.teacher"], "expected a phrase with its boxes"),
        (["--fit.distillation-weight", "1", "--fit.predictions"], "does not hold predictions"),
    ],
)
def test_a_damaged_file_is_an_error_at_once(tmp_path, capsys, monkeypatch, flags, said):
    def too_late(*_, **__):
        raise AssertionError("annotations are computed")

    monkeypatch.setattr("training.data.inputs.open_input_source", too_late)
    damaged = tmp_path / f"damaged.{'jsonl' if 'boxes' in said else 'npz'}"
    damaged.write_bytes(b"nothing")
    argv = [*SCENES, *flags, damaged, "--run-dir", tmp_path / "run"]
    status, found = exit_of(capsys, main, *argv)
    assert status == 2 and said in " ".join(found.split())


def test_the_vocabulary_sees_training_captions_only(tmp_path, make_photographs):
    folder = make_photographs(tmp_path / "flickr8k")
    flags = ("--recipe", "flickr8k_soft", "--data.min_count", "1")
    config = parse([*flags]).config.data
    words = load_data(config, Source(config, folder)).vocabulary.words
    assert "trainword" in words and not {"devword", "testword"} & set(words)


@pytest.mark.parametrize("captions", [1, 2])
def test_batches_by_image_are_those_by_length_if_no_image_has_two_captions(captions):
    config = parse([*SCENES]).config
    pixels = np.zeros([64, 64, 3], np.uint8)
    texts = ["a", "a b", "b a b", "b"]
    examples = tuple(
        Example(str(n), pixels, tuple(texts[n : n + captions])) for n in range(len(texts))
    )
    split = Split("train", examples)
    words = split_captions(config.data, split)
    table = words.table(learn_vocabulary(config.data, words))
    source = ImageSource(examples, 64, "crop", mirrored=True)
    plan = table, Inputs(source, source), 4, 0
    _, batches = batches_of(*plan, by_image=True)
    _, by_length = batches_of(*plan)
    one, other = (next(each(0, 0).as_numpy_iterator()) for each in (batches, by_length))
    assert ("image_index" in one) is (captions == 2) and "image_index" not in other
    if captions == 1:
        np.testing.assert_array_equal(one["tokens"], other["tokens"])
        np.testing.assert_array_equal(one["images"], other["images"])
