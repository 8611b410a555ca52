"""Sampled captions: frequencies, log-probabilities, seeds."""

import math

import numpy as np
import pytest

from sat_tf.vocabulary import END, PAD, START
from tests.sat_tf.search.tree_models import VOCABULARY, TreeModel, captions_of_draws, draws


def test_samples_are_reproducible_with_their_seed():
    model = TreeModel(seed=17, spread=0.5)
    first, again, other = (draws(model, 50, seed) for seed in ([1, 2], [1, 2], [1, 3]))
    np.testing.assert_array_equal(first.token_ids, again.token_ids)
    assert (first.token_ids != other.token_ids).any()
    # Neither the images nor the steps share their noise.
    assert len(set(captions_of_draws(first))) > 25


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_sample_frequencies_are_the_probabilities(temperature):
    model = TreeModel(seed=18, spread=1.0)
    count = 20000
    drawn = captions_of_draws(draws(model, count, [3, 4], temperature=temperature, max_length=2))
    tempered = np.exp(model.log_probs[0] / temperature)
    tempered /= tempered.sum(-1, keepdims=True)
    words = [token for token in range(VOCABULARY) if token != END]
    for word in words:
        first = tempered[0, word]
        second = tempered[model.node((word,))]
        expected = {(word,): first * second[END]}
        expected |= {(word, other): first * second[other] for other in words}
        for caption, probability in expected.items():
            deviation = math.sqrt(probability * (1 - probability) / count)
            assert drawn.count(caption) / count == pytest.approx(probability, abs=5 * deviation)
    assert drawn.count(()) / count == pytest.approx(tempered[0, END], abs=0.02)


def test_sampled_log_probs_are_the_models_whatever_the_temperature():
    model = TreeModel(seed=19)
    drawn = draws(model, 30, [5, 6], temperature=3.0, forbidden=(PAD, START), min_length=1)
    assert (drawn.lengths >= 1).all()
    for k, words in enumerate(captions_of_draws(drawn)):
        assert drawn.log_probs[k, 0] == pytest.approx(model.log_prob(0, words), rel=1e-5)
        assert drawn.word_log_probs[k, 0].sum() == pytest.approx(drawn.log_probs[k, 0], rel=1e-5)
        assert drawn.auxiliary["node"][k, 0, len(words) - 1] == model.node(words[:-1])


def test_a_temperature_of_zero_is_an_error_that_names_it():
    with pytest.raises(ValueError, match="invalid value for argument `temperature`"):
        draws(TreeModel(seed=23), 2, [0, 0], temperature=0.0)
