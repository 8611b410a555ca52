"""The likelihood of the labels of single digits."""

from __future__ import annotations

import tensorflow as tf

from sat_tf.objectives.terms import Batch, Terms, weighted
from sat_tf.ops.draws import replica_seed


def predicted_class(logits: tf.Tensor) -> tf.Tensor:
    """int32 `[...]`, the most probable class of logits `[..., classes]`."""
    return tf.argmax(logits, axis=-1, output_type=tf.int32)


class ClassificationObjective:
    """Mean negative log-likelihood of the labels, of a model `(images, seed) -> (logits, _)`."""

    log_names = ("nll", "accuracy")

    def __call__(self, model, batch: Batch, seed: tf.Tensor, global_size: tf.Tensor) -> Terms:
        """Computes the loss of a batch of `images` and `labels`; see `Objective`."""
        del global_size
        labels = batch["labels"]
        logits, _ = model(batch["images"], replica_seed(seed))
        nll = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        correct = tf.cast(predicted_class(logits) == labels, tf.float32)
        means = {"nll": nll, "accuracy": 100.0 * tf.reduce_mean(correct)}
        return Terms(nll, weighted(means, tf.cast(tf.size(labels), tf.float32)))
