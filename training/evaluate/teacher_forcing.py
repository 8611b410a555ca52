"""Teacher forcing: the model reads reference captions, each word given the true previous ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from sat_tf.objectives.likelihood import word_log_likelihood, word_mask
from sat_tf.runs import TrainedCaptioner
from sat_tf.vocabulary import tokenize
from training.data.batches import readable_rows, scoring_batches, scoring_plan
from training.data.bucketing import caption_table, pad_tokens
from training.data.examples import Phrase, Split
from training.data.input_source import InputSource, annotations_of
from training.metrics.calibration import WordConfidence

_BATCH = 64


class Predictions(NamedTuple):
    """Predictions of the words of a batch of captions.

    Attributes:
        log_lik: Log-likelihood of all words, nats.
        mask: bool `[B, T]`, true at words.
        confidence: `[B, T]`, probability of the likeliest word.
        right: bool `[B, T]`, whether it is the caption's.
    """

    log_lik: float
    mask: np.ndarray
    confidence: np.ndarray
    right: np.ndarray


class TeacherForcing:
    """Compiled model that reads captions with the true previous words.

    Sampled attention is replaced by its expectation, so that two evaluations agree.
    """

    def __init__(self, captioner: TrainedCaptioner) -> None:
        self.captioner = captioner
        compiled = {"autograph": False, "reduce_retracing": True}
        self._compiled_predictions = tf.function(self._predictions, **compiled)
        self._compiled_alpha = tf.function(self._alpha, **compiled)
        self._compiled_words = tf.function(self._words, **compiled)
        self._compiled_probabilities = tf.function(self._probabilities, **compiled)

    @property
    def selection(self) -> str:
        """Choice of the location: `expectation` or `argmax`."""
        selection = self.captioner.model.selection
        return "expectation" if selection == "sample" else selection

    def predictions(self, batch: dict[str, tf.Tensor]) -> Predictions:
        """Returns what a batch's words are predicted to be."""
        return Predictions(*(part.numpy() for part in self._compiled_predictions(batch)))

    def probabilities(self, batch: dict[str, np.ndarray | tf.Tensor]) -> tf.Tensor:
        """Returns the probability of every word of the vocabulary at each place, `[B, T, K]`."""
        # One graph for all lengths: several models, each retracing, make TensorFlow warn.
        specs = {key: _spec_of_any_size(key, value) for key, value in batch.items()}
        function = self._compiled_probabilities.get_concrete_function(specs)
        return function({key: tf.convert_to_tensor(value) for key, value in batch.items()})

    def alphas(
        self, inputs: dict[str, np.ndarray], tokens: Sequence[np.ndarray]
    ) -> list[np.ndarray]:
        """Returns alpha `[T, L]` of each caption."""
        alpha = self._compiled_alpha(inputs | {"tokens": pad_tokens(tokens)}).numpy()
        return [alpha[row, : len(ids) - 1] for row, ids in enumerate(tokens)]

    def annotations(self, source: InputSource, images: np.ndarray) -> np.ndarray:
        """Returns the annotations `[n, L, D]` of images by index, float32."""
        return np.asarray(annotations_of(self.captioner, source, images), np.float32)

    def words(
        self, annotations: np.ndarray, tokens: Sequence[np.ndarray], uniform: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns log-likelihood `[n, T]`, nats, and alpha `[n, T, L]` of each word.

        With `uniform`, the context weights all locations equally, whatever alpha is.
        """
        batch = {"annotations": tf.constant(annotations), "tokens": pad_tokens(tokens)}
        log_lik, alpha = self._compiled_words(batch, "uniform" if uniform else self.selection)
        return log_lik.numpy(), alpha.numpy()

    def _words(self, batch: dict[str, tf.Tensor], selection: str) -> tuple[tf.Tensor, tf.Tensor]:
        targets = batch["tokens"][:, 1:]
        output = self.captioner.model(batch, selection=selection)
        log_lik = word_log_likelihood(output.logits, targets, word_mask(targets))
        return log_lik, tf.nn.softmax(output.alignment_scores)

    def _predictions(self, batch: dict[str, tf.Tensor]) -> tuple[tf.Tensor, ...]:
        targets = batch["tokens"][:, 1:]
        mask = word_mask(targets)
        logits = self.captioner.model(batch, selection=self.selection).logits
        top = tf.reduce_max(logits, axis=-1) - tf.reduce_logsumexp(logits, axis=-1)
        right = tf.argmax(logits, axis=-1, output_type=targets.dtype) == targets
        log_lik = tf.reduce_sum(word_log_likelihood(logits, targets, mask))
        return log_lik, mask > 0.0, tf.exp(top), right

    def _probabilities(self, batch: dict[str, tf.Tensor]) -> tf.Tensor:
        return tf.nn.softmax(self.captioner.model(batch, selection=self.selection).logits)

    def _alpha(self, batch: dict[str, tf.Tensor]) -> tf.Tensor:
        output = self.captioner.model(batch, selection=self.selection)
        return tf.nn.softmax(output.alignment_scores)


def _spec_of_any_size(key: str, value: np.ndarray | tf.Tensor) -> tf.TensorSpec:
    sides = [None] if key == "tokens" else value.shape[1:]
    return tf.TensorSpec([None, *sides], value.dtype)


class PhraseMap(NamedTuple):
    """Attention that predicted the head noun of a reference noun phrase.

    Attributes:
        image_id: Image of the phrase.
        phrase: Phrase with its box.
        alpha: `[h, w]`.
    """

    image_id: str
    phrase: Phrase
    alpha: np.ndarray


def read_references(
    forced: TeacherForcing, split: Split, source: InputSource
) -> tuple[dict[str, float], WordConfidence]:
    """Predicts every word of the reference captions from the true words before it.

    Captions of unreadable images are left out, longer ones cut to the search's `max_length`.

    Returns:
        `nll`, nats per token, and its `perplexity`; the likeliest word at each place, right if it
        is the caption's.
    """
    captioner = forced.captioner
    table = caption_table(split, captioner.vocabulary, captioner.config.search.max_length)
    total, parts = 0.0, []
    plan = scoring_plan(source, table, _BATCH)
    for rows, batch in zip(plan, scoring_batches(source, table, _BATCH)[0], strict=True):
        found = forced.predictions(batch)
        total += float(found.log_lik)
        image = np.broadcast_to(table.image_index[rows][:, None], found.mask.shape)
        parts.append([part[found.mask] for part in (found.confidence, found.right, image)])
    words = WordConfidence(*map(np.concatenate, zip(*parts, strict=True)))
    nll = -total / len(words.right)
    return {"nll": nll, "perplexity": float(np.exp(nll))}, words


def phrase_maps(forced: TeacherForcing, split: Split, source: InputSource) -> Iterator[PhraseMap]:
    """Yields the map of every reference noun phrase of the readable images.

    The tokens of the captioner have to be words.
    """
    captioner = forced.captioner
    longest = max(len(tokenize(c)) for e in split.examples for c in e.captions)
    table = caption_table(split, captioner.vocabulary, longest)
    phrases: dict[tuple[int, int], list[Phrase]] = {}
    for image, example in enumerate(split.examples):
        for phrase in example.phrases:
            phrases.setdefault((image, phrase.caption), []).append(phrase)
    rows = readable_rows(table, source)
    for start in range(0, len(rows), _BATCH):
        chosen = rows[start : start + _BATCH]
        inputs = {source.key: source.read(table.image_index[chosen])}
        alphas = forced.alphas(inputs, [table.tokens[row] for row in chosen])
        for row, alpha in zip(chosen, alphas, strict=True):
            image, caption = int(table.image_index[row]), int(table.caption_index[row])
            image_id = split.examples[image].image_id
            for phrase in phrases.get((image, caption), ()):
                yield PhraseMap(image_id, phrase, alpha[phrase.word].reshape(captioner.grid))
