"""The sizes that are measured, and captions as long as Flickr8k's."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.shapes import (
    DEFAULT,
    EVERY,
    FLICKR8K_WORDS,
    SHAPES,
    TOY,
    caption_lengths,
    caption_tokens,
)
from sat_tf.layers.encoder import Encoder
from sat_tf.vocabulary import END, START, UNK


def test_every_shape_has_a_name_of_its_own():
    assert len(SHAPES) == len(DEFAULT) + 1 + len(EVERY)


def test_an_encoder_gives_the_toy_shape():
    _check_encoder(TOY)


@pytest.mark.slow
def test_an_encoder_gives_each_shape():
    for shape in {(s.backbone, s.image_size): s for s in (*DEFAULT, *EVERY)}.values():
        _check_encoder(shape)


def _check_encoder(shape):
    encoder = Encoder(shape.backbone, shape.image_size)
    height, width = encoder.grid
    assert (height * width, encoder.annotation_dim) == (shape.locations, shape.annotation_dim)


def test_captions_are_as_long_as_flickr8ks():
    lengths = caption_lengths(30_000, 0)
    known = sum(words * count for words, count in FLICKR8K_WORDS.items())
    assert sum(FLICKR8K_WORDS.values()) == 29_995
    assert np.mean(lengths) == pytest.approx(known / 29_995, rel=0.01)
    assert set(lengths) <= set(FLICKR8K_WORDS)


def test_a_caption_begins_ends_and_holds_real_words():
    for words, tokens in zip((2, 5), caption_tokens(np.array([2, 5]), 9, 0), strict=True):
        assert len(tokens) == words + 2
        assert (tokens[0], tokens[-1]) == (START, END)
        assert tokens[1:-1].min() > UNK and tokens[1:-1].max() < 9
