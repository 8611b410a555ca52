"""Likelihood of reference captions: each word given the true previous ones, and its bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from sat_tf.models.diagnostics import nwgm_gaps, sampled_log_likelihood
from sat_tf.objectives.estimators import importance_weighted_bound
from sat_tf.objectives.likelihood import word_log_likelihood, word_mask
from sat_tf.runs import TrainedCaptioner
from training.data.batches import (
    CaptionTable,
    caption_table,
    pad_tokens,
    readable_rows,
    scoring_batches,
    scoring_plan,
)
from training.data.examples import Split
from training.data.image_loader import InputSource
from training.metrics.calibration import WordConfidence

SAMPLES = 50
"""Sequences of locations drawn per caption."""
GROUPS = (1, 5, SAMPLES)
_BATCH = 64
_CAPTIONS = 4  # per batch of bounds: each has logits over the vocabulary per location and sample


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
        specs = {
            key: tf.TensorSpec(
                [None, *([None] if key == "tokens" else value.shape[1:])], value.dtype
            )
            for key, value in batch.items()
        }
        function = self._compiled_probabilities.get_concrete_function(specs)
        return function({key: tf.convert_to_tensor(value) for key, value in batch.items()})

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


@dataclass(frozen=True, eq=False)
class References:
    """The reference captions of a split as ids.

    Attributes:
        split: The captions as written.
        source: Images or annotations of the split.
        table: The whole captions.
        rows: Rows of the table whose image can be read.
    """

    split: Split
    source: InputSource
    table: CaptionTable
    rows: np.ndarray

    @classmethod
    def of(cls, captioner: TrainedCaptioner, split: Split, source: InputSource) -> References:
        """Encodes the captions with the captioner's vocabulary.

        Raises:
            DataError: No caption has a word, or no image that has one can be read.
        """
        table = caption_table(split, captioner.vocabulary)
        return cls(split, source, table, readable_rows(table, source))


def annotations_of(
    captioner: TrainedCaptioner, source: InputSource, indices: np.ndarray
) -> tf.Tensor | np.ndarray:
    """Reads or computes the annotations `[n, L, D]` of examples by index."""
    inputs = source.read(indices)
    return inputs if source.key == "annotations" else captioner.annotate(inputs)


def read_references(
    forced: TeacherForcing, references: References
) -> tuple[dict[str, float], WordConfidence]:
    """Predicts every word of the reference captions from the true words before it.

    Captions of unreadable images are left out, longer ones cut to the search's `max_length`.

    Returns:
        `nll`, nats per token, and its `perplexity`; the likeliest word at each place, right if it
        is the caption's.
    """
    source = references.source
    table = references.table.cut(forced.captioner.config.search.max_length)
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


class Bounds:
    """Bounds and NWGM gap on a fixed sample of captions: the first caption of each image.

    Args:
        captioner: Captioner with attention.
        references: Captions of a split.
        images: Maximum number of images.
        samples: M; a multiple of each smaller M reported.
    """

    def __init__(
        self,
        captioner: TrainedCaptioner,
        references: References,
        images: int,
        samples: int = SAMPLES,
    ) -> None:
        self._captioner, self._source, self._samples = captioner, references.source, samples
        table = references.table.cut(captioner.config.search.max_length)
        _, first = np.unique(table.image_index[references.rows], return_index=True)
        rows = references.rows[first[:images]]
        self._images = table.image_index[rows]
        self._tokens = [table.tokens[row] for row in rows]
        self._compiled = tf.function(self._measure, autograph=False, reduce_retracing=True)

    def __len__(self) -> int:
        """Number of images, one caption each."""
        return len(self._tokens)

    def measure(self) -> dict[str, float]:
        """Averages over the captions; the draws are the same every time.

        Returns:
            `elbo` and `importance_weighted_bound_M` for M = 5 and, given as many samples, 50, in
            nats per caption, all from the same samples in groups of M; `nwgm_gap` and
            `forward_gap`, nats per word (`sat_tf.models.diagnostics.nwgm_gaps`).
        """
        sums = dict.fromkeys(self._names, 0.0)
        for number, start in enumerate(range(0, len(self), _CAPTIONS)):
            part = slice(start, start + _CAPTIONS)
            tokens = pad_tokens(self._tokens[part])
            annotations = annotations_of(self._captioner, self._source, self._images[part])
            found = self._compiled(annotations, tf.constant(tokens), tf.constant([0, number]))
            for name, total in zip(sums, found.numpy(), strict=True):
                sums[name] += float(total)
        words = sum(len(tokens) - 1 for tokens in self._tokens)
        return {
            name: total / (words if name.endswith("_gap") else len(self))
            for name, total in sums.items()
        }

    @property
    def _names(self) -> tuple[str, ...]:
        bounds = (f"importance_weighted_bound_{m}" for m in GROUPS if 1 < m <= self._samples)
        return "elbo", *bounds, "nwgm_gap", "forward_gap"

    def _measure(self, annotations: tf.Tensor, tokens: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Sums the bounds and gaps over a batch, in the order of the names."""
        decoder = self._captioner.model.decoder
        log_lik = sampled_log_likelihood(decoder, annotations, tokens, self._samples, seed)
        steps = tf.shape(log_lik)[2]
        bounds = []
        for size in (m for m in GROUPS if m <= self._samples):
            # Groups of M samples lie along the batch axis, like captions.
            groups = tf.reshape(log_lik, [size, -1, steps])
            share = self._samples // size
            bounds.append(tf.reduce_sum(importance_weighted_bound(groups)) / share)
        gaps = nwgm_gaps(decoder, annotations, tokens[:, :-1])
        mask = word_mask(tokens[:, 1:])
        return tf.stack([*bounds, *(tf.reduce_sum(gap * mask) for gap in gaps)])
