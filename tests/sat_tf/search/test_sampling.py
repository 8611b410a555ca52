"""Sampled captions: frequencies and log-probabilities."""

import math

import numpy as np
import pytest

from sat_tf.vocabulary import END, PAD, START
from tests.sat_tf.search.tree_models import VOCABULARY, TreeModel, captions_of_draws, draws


def test_sample_frequencies_are_the_probabilities():
    model = TreeModel(seed=18, spread=1.0)
    count = 20000
    drawn = captions_of_draws(draws(model, count, [3, 4], max_length=2))
    probabilities = np.exp(model.log_probs[0])
    words = [token for token in range(VOCABULARY) if token != END]
    for word in words:
        first = probabilities[0, word]
        second = probabilities[model.node((word,))]
        expected = {(word,): first * second[END]}
        expected |= {(word, other): first * second[other] for other in words}
        for caption, probability in expected.items():
            deviation = math.sqrt(probability * (1 - probability) / count)
            assert drawn.count(caption) / count == pytest.approx(probability, abs=5 * deviation)
    assert drawn.count(()) / count == pytest.approx(probabilities[0, END], abs=0.02)


def test_sampled_log_probs_are_the_models():
    model = TreeModel(seed=19)
    drawn = draws(model, 30, [5, 6], forbidden=(PAD, START), min_length=1)
    assert (drawn.lengths >= 1).all()
    for k, words in enumerate(captions_of_draws(drawn)):
        assert drawn.log_probs[k, 0] == pytest.approx(model.log_prob(0, words), rel=1e-5)
        assert drawn.word_log_probs[k, 0].sum() == pytest.approx(drawn.log_probs[k, 0], rel=1e-5)
        assert drawn.auxiliary["node"][k, 0, len(words) - 1] == model.node(words[:-1])
