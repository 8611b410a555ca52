"""A captioner on a split: the captions it writes, and the likelihood of those it reads."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import tensorflow as tf

from sat_tf.config import SearchConfig
from sat_tf.objectives.estimators import importance_weighted_bound
from sat_tf.objectives.likelihood import word_log_likelihood, word_mask
from sat_tf.trained.captioning import TrainedCaptioner
from sat_tf.trained.captions import Caption
from sat_tf.vocabulary import UNK
from training.data.batches import pad_tokens, readable_rows, scoring_batches, scoring_plan
from training.data.captions import CaptionTable, caption_table
from training.data.examples import Split
from training.data.image_loader import InputSource, readable_images
from training.evaluate.diagnostics import nwgm_gaps, sampled_log_likelihood
from training.metrics.calibration import WordConfidence

SAMPLES = 50
"""Sequences of locations drawn per caption."""
GROUPS = (1, 5, SAMPLES)
_BATCH = 64
_CAPTIONS = 4  # per batch of bounds: each has logits over the vocabulary per location and sample


class Reading:
    """A captioner with the images and the reference captions of a split.

    References are read with the true previous words. Sampled attention is then replaced by its
    expectation, so that two evaluations agree.

    Args:
        captioner: Trained captioner.
        split: The captions as written.
        source: Images or annotations of the split.
    """

    def __init__(self, captioner: TrainedCaptioner, split: Split, source: InputSource) -> None:
        self.captioner, self.split, self.source = captioner, split, source
        compiled = {"autograph": False, "reduce_retracing": True}
        self._compiled_predictions = tf.function(self._predictions, **compiled)
        self._compiled_words = tf.function(self._words, **compiled)
        self._compiled_probabilities = tf.function(self._probabilities, **compiled)

    @cached_property
    def table(self) -> CaptionTable:
        """The whole reference captions as ids; a `DataError` if none has a word."""
        return caption_table(self.split, self.captioner.vocabulary)

    @cached_property
    def cut_table(self) -> CaptionTable:
        """The same, with captions cut to the search's `max_length`."""
        return self.table.cut(self.captioner.config.search.max_length)

    @cached_property
    def unknown_share(self) -> float:
        """Share of the references' tokens that the captioner does not know, 0 to 1."""
        rows = self.cut_table.tokens
        words = rows.flat.size - 2 * len(rows)  # without <start> and <end>
        return float(np.count_nonzero(rows.flat == UNK) / words)

    @cached_property
    def rows(self) -> np.ndarray:
        """Rows of the table whose image can be read; a `DataError` if there is none."""
        return readable_rows(self.table, self.source)

    def annotations(self, indices: np.ndarray) -> tf.Tensor | np.ndarray:
        """Reads or computes the annotations `[n, L, D]` of examples by index."""
        inputs = self.source.read(indices)
        return inputs if self.source.key == "annotations" else self.captioner.annotate(inputs)

    def captions(
        self, search: SearchConfig, batch_size: int = 50, count: int | None = None
    ) -> dict[str, Caption]:
        """Captions the readable images, or the first `count` of them, by image id."""
        readable = readable_images(self.split, self.source, count)
        captions = {}
        for start in range(0, len(readable), batch_size):
            indices = readable[start : start + batch_size]
            annotations = self.annotations(indices)
            ids = [self.split.examples[index].image_id for index in indices]
            captions |= dict(zip(ids, self.captioner.describe(annotations, search), strict=True))
        return captions

    def likelihood(self) -> tuple[dict[str, float], WordConfidence]:
        """Predicts every word of the reference captions from the true words before it.

        Captions of unreadable images are left out, longer ones cut to the search's `max_length`.

        Returns:
            `nll`, nats per token, and its `perplexity`; the likeliest word at each place, right if
            it is the caption's.
        """
        table, total, parts = self.cut_table, 0.0, []
        plan = scoring_plan(self.source, table, _BATCH)
        batches, _ = scoring_batches(self.source, table, _BATCH)
        for rows, batch in zip(plan, batches, strict=True):
            found = (part.numpy() for part in self._compiled_predictions(batch))
            log_lik, mask, confidence, right = found
            total += float(log_lik)
            image = np.broadcast_to(table.image_index[rows][:, None], mask.shape)
            parts.append([part[mask] for part in (confidence, right, image)])
        words = WordConfidence(*map(np.concatenate, zip(*parts, strict=True)))
        nll = -total / len(words.right)
        return {"nll": nll, "perplexity": float(np.exp(nll))}, words

    @property
    def selection(self) -> str:
        """Choice of the location: `expectation` or `argmax`."""
        selection = self.captioner.model.selection
        return "expectation" if selection == "sample" else selection

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
        """Predicts the words of a batch.

        Returns:
            Log-likelihood of all words, nats; and `[B, T]` each, whether there is a word, the
            probability of the likeliest one, and whether that is the caption's.
        """
        targets = batch["tokens"][:, 1:]
        mask = word_mask(targets)
        logits = self.captioner.model(batch, selection=self.selection).logits
        top = tf.reduce_max(logits, axis=-1) - tf.reduce_logsumexp(logits, axis=-1)
        right = tf.argmax(logits, axis=-1, output_type=targets.dtype) == targets
        log_lik = tf.reduce_sum(word_log_likelihood(logits, targets, mask))
        return log_lik, mask > 0.0, tf.exp(top), right

    def _probabilities(self, batch: dict[str, tf.Tensor]) -> tf.Tensor:
        return tf.nn.softmax(self.captioner.model(batch, selection=self.selection).logits)


class Bounds:
    """Bounds and NWGM gap on a fixed sample of captions: the first caption of each image.

    Args:
        reading: Captioner with attention, and captions of a split.
        images: Maximum number of images.
        samples: M; a multiple of each smaller M reported.
    """

    def __init__(self, reading: Reading, images: int, samples: int = SAMPLES) -> None:
        self._reading, self._samples, table = reading, samples, reading.cut_table
        _, first = np.unique(table.image_index[reading.rows], return_index=True)
        rows = reading.rows[first[:images]]
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
            `forward_gap`, nats per word (`training.evaluate.diagnostics.nwgm_gaps`).
        """
        sums = dict.fromkeys(self._names, 0.0)
        for number, start in enumerate(range(0, len(self), _CAPTIONS)):
            part = slice(start, start + _CAPTIONS)
            annotations = self._reading.annotations(self._images[part])
            tokens = tf.constant(pad_tokens(self._tokens[part]))
            found = self._compiled(annotations, tokens, tf.constant([0, number]))
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
        decoder = self._reading.captioner.model.decoder
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
