"""Bounds of hard attention's likelihood, and the gap that its expectation leaves."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from sat_tf.objectives.estimators import importance_weighted_bound
from sat_tf.objectives.likelihood import word_mask
from sat_tf.trained.captioning import TrainedCaptioner
from training.data.batches import pad_tokens
from training.data.examples import Split
from training.data.image_loader import InputSource
from training.evaluate.diagnostics import nwgm_gaps, sampled_log_likelihood
from training.evaluate.reading import Reading

SAMPLES = 50
"""Sequences of locations drawn per caption."""
GROUPS = (1, 5, SAMPLES)
_QUICK_IMAGES, _QUICK_SAMPLES = 16, 5
_CAPTIONS = 4  # per batch of bounds: each has logits over the vocabulary per location and sample


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


def quick_bounds(
    captioner: TrainedCaptioner, split: Split, source: InputSource
) -> Callable[[], dict[str, float]]:
    """Returns what measures the bounds on so few images that it takes seconds."""
    return Bounds(Reading(captioner, split, source), _QUICK_IMAGES, _QUICK_SAMPLES).measure
