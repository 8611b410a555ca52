"""Evaluation of a model with known answers."""

import dataclasses

import numpy as np
import pytest

import sat_tf
from sat_tf.inference.captions import Caption
from sat_tf.text.words import tokenize
from training.data.boxes import WORDS, place_boxes
from training.data.examples import Example, Split
from training.data.image_loader import ImageSource
from training.data.readers.scenes import load as load_scenes
from training.evaluate import Arguments
from training.evaluation.evaluation import evaluate
from training.evaluation.grounding import generated_grounding, ground
from training.evaluation.reading import Reading
from training.run.config import read_run_config


@pytest.fixture(scope="module")
def captioner(soft_run):
    return sat_tf.load(soft_run, engine="keras")


@pytest.fixture(scope="module")
def split() -> Split:
    return load_scenes("dev", count=5)


@pytest.fixture
def source(split) -> ImageSource:
    return ImageSource(split.examples, 64, "crop")


def test_every_readable_image_gets_the_caption_it_gets_alone(captioner, split, source):
    search = captioner.config.search
    source.found = {2: "no image"}
    reading = Reading(captioner, split, source)
    found = reading.captions(search, batch_size=3)
    assert list(found) == [e.image_id for i, e in enumerate(split.examples) if i != 2]
    for index in (0, 4):
        example = split.examples[index]
        assert found[example.image_id].text == captioner.caption(example.image).text
    first = reading.captions(search, count=2)
    assert list(first) == list(found)[:2]


def test_likelihood_is_that_of_each_caption_by_itself(captioner, split):
    split = Split("dev", split.examples[:2])
    source = ImageSource(split.examples, 64, "crop")
    model, vocabulary = captioner.model, captioner.vocabulary
    log_lik, words, tops = 0.0, 0, []
    for example in split.examples:
        annotations = captioner.annotate(example.image[None])
        for caption in example.captions:
            ids = [1, *vocabulary.encode(caption)[: captioner.config.search.max_length], 2]
            batch = {"annotations": annotations, "tokens": np.array([ids], np.int32)}
            logits = np.asarray(model(batch).logits, np.float64)[0]
            log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
            log_lik += log_probs[np.arange(len(ids) - 1), ids[1:]].sum()
            words += len(ids) - 1
            tops += [(p.max(), p.argmax() == i) for p, i in zip(log_probs, ids[1:], strict=True)]
    found, top = Reading(captioner, split, source).likelihood()
    assert found["nll"] == pytest.approx(-log_lik / words, rel=1e-4)
    assert found["perplexity"] == pytest.approx(np.exp(-log_lik / words), rel=1e-3)
    confidence, right = np.array(tops).T
    # In another order: batches are of captions of one length.
    np.testing.assert_allclose(np.sort(top.confidence), np.sort(np.exp(confidence)), rtol=1e-3)
    assert top.right.sum() == right.sum() and len(top.right) == words
    assert len(set(top.image)) == 2


def test_next_words_are_scored_and_many_unknown_ones_are_a_note(captioner, split, source):
    config = read_run_config(captioner.path)
    reading = Reading(captioner, split, source)
    report = evaluate(reading, config.data, config.search, Arguments()).report
    known, (_, words) = report["notes"], reading.likelihood()
    assert report["scores"]["next_word_accuracy"] == pytest.approx(100 * words.right.mean())
    captions = {"captions": ("zebras graze a lot",), "phrases": ()}
    odd = [dataclasses.replace(e, **captions) for e in split.examples]
    others = dataclasses.replace(split, examples=tuple(odd))
    notes = evaluate(
        Reading(captioner, others, source), config.data, config.search, Arguments()
    ).report["notes"]
    (note,) = (note for note in notes if "unknown to the captioner" in note)
    assert note.startswith("75% of the references' words") and "perplexity" in note
    assert not any("unknown to the captioner" in note for note in known)


def drawn(reading):
    """Grounding of a captioner in the boxes of the drawings."""
    boxes = place_boxes(None, reading.split, "squash", reading.captioner.vocabulary)
    return ground(reading, boxes, {})


class Oracle(Reading):
    """Attention on the box of the phrase with the next head noun."""

    def words(self, annotations, tokens, uniform=False):
        known = self.captioner.annotate(np.stack([e.image for e in self.split.examples]))
        alphas = np.zeros([len(tokens), max(map(len, tokens)) - 1, 64])
        for at, (own, ids) in enumerate(zip(annotations, tokens, strict=True)):
            index = np.abs(np.asarray(known) - np.asarray(own)).sum((1, 2)).argmin()
            example, length = self.split.examples[index], len(ids) - 1
            alpha = np.full([length, 8, 8], 1e-3)
            numbers = [n for n, c in enumerate(example.captions) if len(tokenize(c)) + 1 == length]
            for phrase in example.phrases:
                if phrase.caption in numbers and phrase.word < length:
                    top, left, bottom, right = phrase.box
                    row, column = int(4 * (top + bottom)), int(4 * (left + right))
                    alpha[phrase.word, row, column] = 1.0
            alphas[at, :length] = (alpha / alpha.sum((1, 2), keepdims=True)).reshape(length, 64)
        return np.zeros(alphas.shape[:2]), alphas


def test_the_map_of_a_phrase_is_the_one_that_predicted_its_head_noun(captioner, source, split):
    # One caption an image, so that a map has one caption it can belong to.
    examples = tuple(
        Example(e.image_id, e.image, e.captions[:1], tuple(p for p in e.phrases if not p.caption))
        for e in split.examples
    )
    scores = drawn(Oracle(captioner, Split("dev", examples), source)).scores
    assert scores["pointing_game"] > 90 > 40 > scores["pointing_game_uniform"]
    assert scores["pointing_game"] > scores["pointing_game_shuffled"] + 20


def test_long_captions_are_grounded_to_their_end(captioner, source, split):
    # Longer than any the search gives, and the phrases at the end count too.
    longest = max(phrase.word for example in split.examples for phrase in example.phrases)
    assert longest >= captioner.config.search.max_length
    found = drawn(Reading(captioner, split, source))
    scores, by_image = found.scores, found.by_image
    assert 0 <= scores["pointing_game"] <= 100
    # What each image adds is what the figures are made of.
    assert {e.image_id: len(e.phrases) for e in split.examples} == {
        image_id: found["phrases"] for image_id, found in by_image.items()
    }
    for name in ("pointing_game", "attention_correctness"):
        values, sizes = zip(*((p[name], p["phrases"]) for p in by_image.values()), strict=True)
        assert np.average(values, weights=sizes) == pytest.approx(scores[name])


def test_a_generated_noun_is_scored_by_its_own_map():
    corner, away = np.zeros([2, 2]), np.zeros([2, 2])
    corner[0, 1], away[1, 0] = 1.0, 1.0
    wanted = {("x", noun): [(0.0, 0.5, 0.5, 1.0)] for noun in ("dot", "star")}

    def scores(words: str, maps) -> dict[str, float]:
        words, ones = tuple(words.split()), np.ones(len(words.split()))
        found = Caption(" ".join(words), words, 0.0, 0.0, ones, np.asarray(maps), beta=ones)
        return generated_grounding({"x": found}, wanted, WORDS)

    hit = scores("a red dot", [away] * 2 + [corner])
    assert hit["generated_match_rate"] == 50.0 and hit["generated_pointing_game"] == 100.0
    assert scores("a red dot", [corner] * 2 + [away])["generated_pointing_game"] == 0.0
    assert scores("a dog", [corner] * 2) == {"generated_match_rate": 0.0}
