"""Limits of a captioner in the graph of an export, see `sat_tf.trained.limits`."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from sat_tf.config import SearchConfig
from sat_tf.search import Hypotheses
from sat_tf.trained.limits import UNFAMILIAR, Confidence, Familiarity, Limits


def known_limits(limits: Limits, search: SearchConfig) -> Limits:
    """Returns the limits of captions of a search: without the confidence of another search's."""
    fits = limits.confidence is not None and limits.confidence.fits(search)
    return limits if fits else limits._replace(confidence=None)


def limit_outputs(
    limits: Limits, annotations: tf.Tensor, found: Hypotheses
) -> dict[str, tf.Tensor]:
    """Computes `familiarity` and `confidence`, float32 `[B]`, as far as they are known."""
    if limits.familiarity is None:
        return {}
    outputs = {"familiarity": _familiarity(limits.familiarity, annotations)}
    if limits.confidence is not None:
        outputs["confidence"] = _confidence(limits.confidence, found, outputs["familiarity"])
    return outputs


def _familiarity(known: Familiarity, annotations: tf.Tensor) -> tf.Tensor:
    moved = tf.reduce_mean(annotations, axis=1) - known.mean
    basis = tf.constant(known.basis.T)  # int8: a quarter of the export
    along = tf.matmul(moved, tf.cast(basis, tf.float32)) * known.scales
    beside = tf.reduce_sum(moved**2, -1) - tf.reduce_sum(along**2, -1)
    distance = tf.reduce_sum((along / known.deviations) ** 2, -1)
    distance += tf.maximum(beside, 0.0) / known.rest
    low, high = known.levels[:-1], known.levels[1:]
    shares = (high - distance[:, tf.newaxis]) / tf.maximum(high - low, np.finfo(np.float32).tiny)
    return tf.reduce_mean(tf.clip_by_value(shares, 0.0, 1.0), axis=1)


def _confidence(known: Confidence, found: Hypotheses, familiarity: tf.Tensor) -> tf.Tensor:
    share = tf.nn.log_softmax(found.scores)[:, 0]
    tokens = tf.cast(found.lengths[:, 0], tf.float32)
    evidence = tf.stack([found.log_probs[:, 0], tokens, share, familiarity], axis=-1)
    logit = known.bias + tf.linalg.matvec(evidence, tf.constant(known.slopes))
    return tf.sigmoid(logit) * tf.minimum(familiarity / UNFAMILIAR, 1.0)
