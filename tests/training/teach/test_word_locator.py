"""Places of words, learned from captions alone: planted ones are found, and become maps."""

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from sat_tf.objectives.likelihood import ATTENTION_TARGETS
from tests.training.data.small_captions import table_of
from training.data.boxes import WORDS
from training.data.captions import CaptionTable
from training.data.examples import DataError, Example
from training.teach.word_locator import (
    WordLocator,
    encoder_identity,
    learn,
    located_targets,
    words_to_locate,
)

GRID, DIM, COUNT = (4, 4), 8, 240
ANIMALS = ("ant", "bee", "cow", "dog", "elk", "fox")
ENCODER = SimpleNamespace(
    backbone="planted", tap="all", grid=GRID, annotation_dim=DIM, weights=[np.arange(3.0)]
)


class Planted:
    """Noise with the pattern of each animal of the caption at one of the first `spots` places.

    The other places show animals of which no caption tells.
    """

    def __init__(self, seed: int = 0, spots: int = 16) -> None:
        draw = np.random.default_rng(seed)
        self.skipped = {}
        self.annotations = draw.normal(0, 0.3, [COUNT, 16, DIM]).astype(np.float32)
        self.places, self.examples = [], []
        for n in range(COUNT):
            there = draw.choice(len(ANIMALS), 2, replace=False)
            chosen = draw.choice(spots, 2, replace=False)
            self.annotations[n, chosen, there] += 3.0
            untold = np.arange(spots, 16)
            self.annotations[n, untold, draw.choice(len(ANIMALS), len(untold))] += 3.0
            self.places.append({ANIMALS[a]: int(s) for a, s in zip(there, chosen, strict=True)})
            # Whether it is said to be a photograph has nothing to do with what is in it.
            said = "photo" if draw.random() < 0.3 else "image"
            one, other = (ANIMALS[a] for a in there)
            captions = (f"{said} of a {one} and a {other}", f"a {other}")
            self.examples.append(Example(f"i{n}", np.zeros([4, 4, 3], np.uint8), captions))

    def read(self, indices, views=None):
        return self.annotations[indices].astype(np.float16)


@pytest.fixture(scope="module")
def planted() -> Planted:
    return Planted()


@pytest.fixture(scope="module")
def learned(planted) -> tuple[WordLocator, dict[str, float]]:
    return learn(ENCODER, planted.examples, planted, epochs=30, learning_rate=0.03)


def test_words_are_found_at_their_places_in_new_images(learned):
    locator, new = learned[0], Planted(seed=1)
    hits = [
        locator.maps(new.annotations[n], [word])[0].argmax() == place
        for n, words in enumerate(new.places)
        for word, place in words.items()
    ]
    assert np.mean(hits) > 0.95


def test_places_that_tell_nothing_are_discounted():
    source = Planted(spots=13)
    rate = {"epochs": 30, "learning_rate": 0.03}
    locator, _ = learn(ENCODER, source.examples, source, min_auroc=0.0, **rate)
    assert locator.prior[:13].min() > locator.prior[13:].max()
    without = dataclasses.replace(locator, prior=np.zeros(16, np.float32))
    word = next(iter(source.places[0]))
    with_prior, plain = (each.maps(source.annotations[0], [word])[0] for each in (locator, without))
    assert with_prior[13:].sum() < plain[13:].sum()


def test_only_words_that_an_image_tells_are_located(learned):
    locator, areas = learned
    assert set(locator.words) == set(ANIMALS)
    assert areas["photo"] < 80 and min(areas[word] for word in ANIMALS) > 99
    assert "a" not in areas  # every caption has it


@pytest.mark.parametrize(("fewest", "known"), [(2, ("rare",)), (3, ())])
def test_words_of_too_few_images_are_left_out(fewest, known):
    texts = ("rare a", "rare a", "a", "a", "a")
    examples = [Example(str(n), Path(str(n)), (text,)) for n, text in enumerate(texts)]
    assert words_to_locate(examples, fewest) == known


def test_a_locator_is_what_was_saved_and_of_its_own_encoder(learned, tmp_path):
    locator = learned[0]
    locator.save(tmp_path / "l.npz")
    again = WordLocator.load(tmp_path / "l.npz", ENCODER)
    assert again.words == locator.words and again.encoder == encoder_identity(ENCODER)
    np.testing.assert_array_equal(again.kernel, locator.kernel)
    assert again.fingerprint() == locator.fingerprint()
    other = SimpleNamespace(**{**vars(ENCODER), "grid": (2, 8)})
    with pytest.raises(DataError, match=r"4 x 4 x 8, .*; the encoder is planted, all, 2 x 8 x 8"):
        WordLocator.load(tmp_path / "l.npz", other)
    trained = SimpleNamespace(**{**vars(ENCODER), "weights": [np.arange(3.0) + 1e-3]})
    with pytest.raises(DataError, match=r"4 x 4 x 8, weights \w{12}; the encoder is"):
        WordLocator.load(tmp_path / "l.npz", trained)


@pytest.mark.parametrize(
    "change",
    [
        {"kernel": np.zeros(3)},
        {"prior": np.zeros([2, 2])},
        {"kernel": np.full([DIM, len(ANIMALS)], np.nan)},
        {"about": np.frombuffer(b'{"format": 3, "words": []}', np.uint8)},
    ],
)
def test_a_locator_whose_arrays_do_not_fit_is_refused(learned, tmp_path, change):
    learned[0].save(tmp_path / "whole.npz")
    with np.load(tmp_path / "whole.npz") as arrays:
        np.savez(tmp_path / "l.npz", **(dict(arrays) | change))
    with pytest.raises(DataError, match="is not a word locator"):
        WordLocator.load(tmp_path / "l.npz", ENCODER)


def test_another_file_or_one_of_an_earlier_format_is_no_locator(tmp_path):
    about = json.dumps({"format": 1, "words": ["x"], "encoder": "e"}).encode()
    np.savez(tmp_path / "old.npz", kernel=np.zeros([3, 1]), about=np.frombuffer(about, np.uint8))
    with pytest.raises(DataError, match="training.locate.*its format is 1, not 3"):
        WordLocator.load(tmp_path / "old.npz", ENCODER)
    with pytest.raises(DataError, match="missing.npz is not a word locator"):
        WordLocator.load(tmp_path / "missing.npz", ENCODER)


def test_each_known_word_of_a_caption_gets_its_map(learned, planted):
    words = [[WORDS.places(text) for text in one.captions] for one in planted.examples]
    targets = located_targets(learned[0], GRID, words, planted)
    examples = tuple(planted.examples)
    table: CaptionTable = table_of(examples)[0]
    row = int(np.flatnonzero((table.image_index == 0) & (table.caption_index == 0))[0])
    words = examples[0].captions[0].split()
    plain, mirrored = (
        targets.read(table, np.array([row]), len(words) + 1, np.array([flip]))[ATTENTION_TARGETS][0]
        for flip in (False, True)
    )
    for place, word in enumerate(words):
        if word in ANIMALS:
            assert plain[place].argmax() == planted.places[0][word]
            flipped = plain[place].reshape(GRID)[:, ::-1].ravel()
            np.testing.assert_array_equal(mirrored[place], flipped)
        elif word not in learned[0].words:
            assert not plain[place].any()
    assert not plain[len(words)].any()  # <end> is nowhere


def test_captions_without_a_known_word_are_an_error(learned, planted):
    unknown = [Example("i", planted.examples[0].image, ("nothing here",))]
    with pytest.raises(DataError, match="knows no word"):
        located_targets(learned[0], GRID, [[WORDS.places("nothing here")]], planted)
    with pytest.raises(DataError, match="10 images or more"):
        learn(ENCODER, unknown, planted)
