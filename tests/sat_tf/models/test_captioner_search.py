"""The captioner's search against teacher forcing."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from sat_tf.config import SearchConfig
from sat_tf.models import captioner
from sat_tf.vocabulary import END, PAD, START, UNK
from tests.sat_tf.models.captioner_models import KINDS, D, L, make_batch, make_model, randomise


def greedy_by_hand(model, annotations, max_length, forbidden):
    """The most probable next word of a growing prefix, by teacher forcing."""
    words = [START]
    while len(words) <= max_length:
        tokens = np.array([[*words, PAD]], np.int32)
        logits = model({"annotations": annotations[None], "tokens": tokens}).logits[0, -1].numpy()
        logits[list(forbidden) + ([END] if len(words) == 1 else [])] = -np.inf
        words.append(int(logits.argmax()))
        if words[-1] == END:
            break
    return [word for word in words[1:] if word != END]


@pytest.mark.parametrize(
    ("kind", "inference", "suppress"),
    [
        ("soft", "expectation", True),
        ("hard", "argmax", True),
        ("hard", "expectation", False),
        ("none", "expectation", True),
    ],
)
def test_a_beam_of_one_is_a_greedy_loop(kind, inference, suppress):
    model = randomise(make_model(kind, inference=inference))
    # Centred, so that their means differ enough for other captions.
    annotations = 3.0 * (make_batch(4)["annotations"] - 1.0)
    search = SearchConfig(beam=1, max_length=4, suppress_unknown=suppress)
    found = model.search(annotations, search)
    forbidden = (PAD, START, UNK) if suppress else (PAD, START)
    captions = set()
    for row, image in enumerate(annotations):
        expected = greedy_by_hand(model, image, 4, forbidden)
        length = int(found.lengths[row, 0])
        assert found.token_ids[row, 0, :length].numpy().tolist() == expected
        captions.add(tuple(expected))
    assert len(captions) > 1


@pytest.mark.parametrize("inference", ["expectation", "argmax"])
def test_the_search_reports_what_teacher_forcing_sees(inference):
    model = randomise(make_model("hard", inference=inference))
    annotations = make_batch(3)["annotations"]
    found = tf.function(model.search, autograph=False)(annotations)
    alpha, beta = (part.numpy() for part in found.auxiliary)
    assert alpha.shape == (3, 3, 6, L)
    words = found.token_ids.numpy()
    tokens = np.pad(words.reshape(9, -1), [(0, 0), (1, 0)], constant_values=START)
    taught = model({"annotations": np.repeat(annotations, 3, axis=0), "tokens": tokens})
    every_alpha = tf.nn.softmax(taught.alignment_scores).numpy()
    every_log_prob = tf.nn.log_softmax(taught.logits).numpy()
    for row, k in np.ndindex(3, 3):
        length, words = int(found.lengths[row, k]), found.token_ids[row, k].numpy()
        expected = every_alpha[3 * row + k, :length]
        np.testing.assert_allclose(alpha[row, k, :length], expected, rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(alpha[row, k, :length].sum(-1), np.ones(length), rtol=1e-5)
        expected = taught.beta[3 * row + k, :length]
        np.testing.assert_allclose(beta[row, k, :length], expected, rtol=1e-4)
        # A caption cut at the horizon was never asked for its end.
        count = length + (length < 5)
        assert length == 5 or words[length] == END
        total = every_log_prob[3 * row + k, np.arange(count), words[:count]].sum()
        np.testing.assert_allclose(found.log_probs[row, k], total, rtol=1e-4)


def spy_on_projection(monkeypatch, model):
    """Returns a list that grows by one at each call of `project`."""
    calls, project = [], model.decoder.project
    monkeypatch.setattr(model.decoder, "project", lambda p: calls.append(p) or project(p))
    return calls


@pytest.mark.parametrize("kind", KINDS)
def test_projecting_the_locations_changes_no_answer(kind, monkeypatch):
    model = randomise(make_model(kind))
    annotations = make_batch(5)["annotations"]
    shown = spy_on_projection(monkeypatch, model)
    found = model.search(annotations)
    assert len(shown) == 1
    monkeypatch.setattr(captioner, "CAPTION_WORDS", 0)
    plain = model.search(annotations)
    assert len(shown) == 1
    np.testing.assert_array_equal(found.token_ids, plain.token_ids)
    alpha, beta = found.auxiliary
    for one, two in zip((found.scores, alpha, beta), (plain.scores, *plain.auxiliary), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5)


def test_locations_are_projected_where_the_search_reads_more_contexts(monkeypatch):
    model = make_model()
    shown = spy_on_projection(monkeypatch, model)
    annotations = np.zeros([1, 24, D], np.float32)
    for beam, times in ((1, 0), (2, 1)):
        model.search(annotations, SearchConfig(beam=beam, max_length=2))
        assert len(shown) == times


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_does_not_depend_on_its_neighbours(kind):
    model = randomise(make_model(kind))
    annotations = make_batch(5)["annotations"]
    together = model.search(annotations)
    backwards = model.search(annotations[::-1])
    alone = [model.search(annotations[row : row + 1]) for row in range(5)]
    for field in ("token_ids", "lengths"):
        parts = np.concatenate([getattr(one, field) for one in alone])
        np.testing.assert_array_equal(parts, getattr(together, field))
        np.testing.assert_array_equal(getattr(backwards, field)[::-1], parts)
    scores = np.concatenate([one.scores for one in alone])
    np.testing.assert_allclose(scores, together.scores, rtol=1e-4)


def test_captions_from_samples_are_fixed_by_the_seed():
    model = randomise(make_model("hard", inference="sample"), 2.0)
    annotations = np.repeat(make_batch(1)["annotations"], 30, axis=0)
    search = SearchConfig(beam=1, max_length=5)
    draw = tf.function(
        lambda seed: model.search(annotations, search, seed).log_probs, autograph=False
    )
    once = draw(tf.constant([1, 2])).numpy()
    np.testing.assert_array_equal(once, draw(tf.constant([1, 2])))
    assert np.any(once != draw(tf.constant([1, 3])))
    assert len(np.unique(once)) > 1  # The rows draw each for itself.


def test_the_search_configuration_is_the_default():
    model = randomise(make_model())
    annotations = make_batch(2)["annotations"]
    found = model.search(annotations)
    assert found.token_ids.shape == (2, 3, 6)
    given = model.search(annotations, dataclasses.replace(model.config.search, beam=2))
    assert given.token_ids.shape == (2, 2, 6)
