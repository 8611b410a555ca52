"""Bounds on the likelihood of reference captions under hard attention, and the NWGM gap."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from sat_tf.models.diagnostics import nwgm_gaps, sampled_log_likelihood
from sat_tf.objectives.estimators import importance_weighted_bound
from sat_tf.objectives.likelihood import word_mask
from sat_tf.runs import TrainedCaptioner
from training.data.batches import readable_rows
from training.data.bucketing import caption_table, pad_tokens
from training.data.examples import Split
from training.data.input_source import InputSource, annotations_of

SAMPLES = 50
"""Sequences of locations drawn per caption."""
GROUPS = (1, 5, SAMPLES)
_CAPTIONS = 4  # per batch: each has logits over the vocabulary per location and sample


class Bounds:
    """Bounds and NWGM gap on a fixed sample of captions: the first caption of each image.

    Args:
        captioner: Captioner with attention.
        split: Reference captions.
        source: Images or annotations of the split.
        images: Maximum number of images.
        samples: M; a multiple of each smaller M reported.
    """

    def __init__(
        self,
        captioner: TrainedCaptioner,
        split: Split,
        source: InputSource,
        images: int,
        samples: int = SAMPLES,
    ) -> None:
        self._captioner, self._source, self._samples = captioner, source, samples
        longest = captioner.config.search.max_length
        table = caption_table(split, captioner.vocabulary, longest)
        rows = readable_rows(table, source)
        _, first = np.unique(table.image_index[rows], return_index=True)
        rows = rows[first[:images]]
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
