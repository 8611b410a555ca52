"""Explanations: own captions as the search has them, uniform maps as enumerated, bad sentences."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

import sat_tf
from sat_tf.inference.confidence import Limits
from sat_tf.text.vocabulary import START
from tests.sat_tf.tiny_runs import PIXELS
from training.evaluation.confidence import fit_familiarity


class UniformAt:
    """Stands for the multinoulli: the mean, and all locations alike at a time."""

    def __init__(self, time):
        self.left = time + 1

    def __call__(self, scores):
        self.alpha = tf.nn.softmax(scores)
        return self

    def sample(self, seed=None):
        self.left -= 1
        return self.alpha if self.left else tf.ones_like(self.alpha) / self.alpha.shape[-1]


def taught(captioner, annotations, tokens, **options):
    batch = {"annotations": annotations, "tokens": tf.constant([[START, *tokens]])}
    log_probs = tf.nn.log_softmax(captioner.model(batch, **options).logits)[0].numpy()
    return log_probs[range(len(tokens)), tokens]


@pytest.mark.parametrize("kind", ["soft", "hard", "none"])
def test_own_captions_are_explained_as_the_search_has_them_and_looking_as_enumerated(
    loaded, monkeypatch, kind
):
    captioner = loaded[kind]
    caption, found = captioner.caption(PIXELS), captioner.explain(PIXELS)
    assert (found.text, found.words, found.tokens) == (caption.text, caption.words, caption.tokens)
    for name in ("log_probs", "log_prob", "score", "alpha", "beta"):
        if (expected := getattr(caption, name)) is not None:
            np.testing.assert_allclose(getattr(found, name), expected, atol=1e-5)
    np.testing.assert_array_equal(found.image, caption.image)
    if kind == "none":
        assert found.alpha is found.beta is found.looking is None
        assert found.rows()[0] == ["word", "log p"]
        return
    annotations = captioner.annotate(captioner.pixels(PIXELS)[np.newaxis])
    real = taught(captioner, annotations, found.tokens)
    for time, worth in enumerate(found.looking):
        monkeypatch.setattr("sat_tf.layers.attention.multinoulli", UniformAt(time))
        even = taught(captioner, annotations, found.tokens, selection="sample")
        np.testing.assert_allclose(worth, real[time] - even[time], atol=1e-5)
    assert np.abs(found.looking).max() > 1e-4


@pytest.mark.parametrize("kind", ["soft", "hard"])
def test_graphs_explain_as_tensorflow_does(light, loaded, kind, monkeypatch):
    captioner = sat_tf.load(light[kind])
    own = captioner.annotate(captioner.pixels(PIXELS)[np.newaxis]).mean(axis=1)
    noise = np.random.default_rng(0).normal(size=[2, 20, own.shape[1]])
    train = own + 0.1 + 0.1 * noise[0]
    dev = train.mean(axis=0) + np.linspace(0.0, 1.0, 20)[:, np.newaxis] * noise[1]
    captioner.limits = Limits(fit_familiarity(train, dev, ""))
    monkeypatch.setattr(loaded[kind], "limits", captioner.limits)
    for sentence in (None, "a box", "a red dot near dogs"):  # graphs take three rows at once
        found, expected = (c.explain(PIXELS, sentence) for c in (captioner, loaded[kind]))
        assert (found.words, found.unknown) == (expected.words, expected.unknown)
        for name in ("log_probs", "log_prob", "looking", "alpha", "beta"):
            pair = getattr(found, name), getattr(expected, name)
            np.testing.assert_allclose(*pair, atol=1e-4, equal_nan=True)
        assert found.familiarity == pytest.approx(expected.familiarity, abs=1e-4)
    assert found.familiarity == pytest.approx(loaded[kind].caption(PIXELS).familiarity, abs=1e-4)
    assert 0.0 < found.familiarity < 1.0


def test_drawn_locations_are_those_of_the_caption(run_of):
    captioner = sat_tf.load(run_of["hard"])
    captioner.set_inference("sample")
    search = dataclasses.replace(captioner.config.search, beam=1)
    captioner.model.config = dataclasses.replace(captioner.config, search=search)
    caption, found = captioner.caption(PIXELS), captioner.explain(PIXELS)
    np.testing.assert_allclose(found.log_probs, caption.log_probs, atol=1e-5)


def test_unknown_words_are_named_and_have_no_probability(loaded):
    found = loaded["soft"].explain(PIXELS, "Two dogs near a BOX")
    assert found.words == ("two", "dogs", "near", "a", "box") and found.unknown == ("dogs",)
    assert found.text == "two dogs near a box"
    for values in (found.log_probs, found.looking):
        np.testing.assert_array_equal(np.isnan(values), [False, True, False, False, False])
    assert np.isnan(found.log_prob) and not np.isnan(found.alpha).any()
    head, *rows = found.rows()
    assert head == ["word", "log p", "looking", "gate", "x, %", "y, %"]
    assert rows[1][:3] == ["dogs", "?", "?"] and len(rows) == 5
    assert found.figure().shape[2] == 3


@pytest.mark.parametrize(
    ("sentence", "message"),
    [
        (" ... ", "expected a sentence with words, got ' ... '"),
        ("a red dot near a box", "expected at most 5 words, as many as a caption may have, got 6"),
        ("<end> dogs, cats", "expected a word that the captioner knows, got unknown: end, dogs"),
        (7, "`sentence`"),
    ],
)
def test_other_sentences_are_refused(loaded, sentence, message):
    with pytest.raises(ValueError, match=message.replace(".", r"\.")):
        loaded["soft"].explain(PIXELS, sentence)
