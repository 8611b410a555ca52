"""Digit portions: which labels are in a strip of digits, by attention over its portions.

Training gives the presence of a label; attention has to find its place. Shapes: B strips, P
portions per strip, L slots (the portions and the null slot), Q queries, D annotation width, M
samples per query.
"""

from __future__ import annotations

from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from digits.config import PortionsConfig
from digits.models import DigitModel, Score, alpha_matrix_figure, convolution, dense, sequential
from sat_tf.layers.attention import (
    BahdanauAttention,
    Selection,
    attention_entropy,
    attention_weights,
    by_image,
    context_vector,
    entropy_share,
)
from sat_tf.objectives.estimators import (
    Estimator,
    Rollout,
    by_sample,
    learning_signal,
    stochastic_loss,
)
from sat_tf.ops import dropout, replica_seed, step_seeds
from sat_tf.train_step import Batch, Terms, weighted

_DROPOUT = 1  # salt of its masks


class Answers(NamedTuple):
    """Answers to `B Q` pairs of strip and query, M of each side by side."""

    logits: tf.Tensor
    """float32 `[B Q M]`; positive means that the label is there."""
    alignment_scores: tf.Tensor
    """float32 `[B Q, L]`, of the portions, then the null slot."""
    log_prob: tf.Tensor
    """float32 `[B Q M]`, log p of the slot drawn, 0 if none was."""


class NullSlot(keras.layers.Layer):
    """Appends a learned annotation to those of the portions: `[B, P, D] -> [B, P + 1, D]`."""

    def __init__(self, annotation_dim: int, **kwargs) -> None:
        super().__init__(**kwargs)
        self.annotation = self.add_weight(name="annotation", shape=(1, 1, annotation_dim))
        self.built = True

    def call(self, annotations: tf.Tensor) -> tf.Tensor:
        """Appends the null slot."""
        shape = tf.concat([tf.shape(annotations)[:1], [1, annotations.shape[-1]]], axis=0)
        return tf.concat([annotations, tf.broadcast_to(self.annotation, shape)], axis=1)


class Portions(DigitModel):
    """Presence of labels in a strip of digits, by attention over its portions.

    `a_i = CNN(portion_i)`, one CNN for all; for a query `q` (a learned embedding of a label),
    `e_i = v . tanh(W_a a_i + W_h q + b)`, `alpha = softmax(e)`, `z = phi({a_i}, {alpha_i})` and
    `p(label is there) = sigmoid(w . relu(W_z z + W_q q + b))`. Soft and hard attention differ in
    `phi`.

    References:
        Bahdanau et al. (2014), arXiv:1409.0473; Xu et al. (2015), arXiv:1502.03044.
    """

    def __init__(self, config: PortionsConfig, portions: int = 5, **kwargs) -> None:
        super().__init__(config, **kwargs)
        self.portions = portions
        self.labels = [9] if config.queries == "one" else list(range(10))
        layers = [
            convolution(config.filters, 3),
            keras.layers.MaxPooling2D(),
            convolution(2 * config.filters, 3),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
        ]
        self.encoder = sequential(layers, (28, 28, 1), "encoder")
        features = self.encoder.output_shape[-1]
        self.annotation = dense(features, config.annotation_dim, "relu", name="annotation")
        self.queries = keras.layers.Embedding(len(self.labels), config.query_dim, name="queries")
        self.queries.build((None,))
        layers = [keras.layers.Dense(config.hidden_dim, "relu"), keras.layers.Dense(1)]
        answered = config.annotation_dim + config.query_dim
        self.answer_layers = sequential(layers, (answered,), "answer")
        self.null = NullSlot(config.annotation_dim, name="null")
        self.attention = BahdanauAttention(config.attention_dim, name="attention")
        self.attention.build((None, config.query_dim), (None, None, config.annotation_dim))
        self.objective = PresenceObjective(config)
        self.built = True

    def annotate(self, images: tf.Tensor, seed: tf.Tensor | None = None) -> tf.Tensor:
        """Encodes strips `[B, 28, 28 P, 1]` as annotations `[B, P, D]`."""
        columns = tf.reshape(images, [-1, 28, self.portions, 28, 1])
        portions = tf.reshape(tf.transpose(columns, [0, 2, 1, 3, 4]), [-1, 28, 28, 1])
        features = dropout(self.encoder(portions), self.config.dropout, seed, _DROPOUT)
        annotations = self.annotation(features)
        return tf.reshape(annotations, [-1, self.portions, self.config.annotation_dim])

    def call(
        self,
        images: tf.Tensor,
        selection: Selection = "expectation",
        samples: int = 1,
        seed: tf.Tensor | None = None,
        training: bool = False,
    ) -> Answers:
        """Answers all queries about each strip.

        Args:
            images: float32 `[B, 28, 28 P, 1]` in [0, 1].
            selection: How attention takes its context; see `attention_weights`.
            samples: M, answers per query, each with its own slot.
            seed: int32 `[2]`, for `sample` and dropout.
            training: Apply dropout.
        """
        annotations = self.annotate(images, seed if training else None)
        count = len(self.labels)
        query = tf.tile(self.queries(tf.range(count)), [tf.shape(annotations)[0], 1])
        annotations = self.null(annotations)
        scores = self.attention(query, annotations)
        seed = tf.unstack(step_seeds(seed, 1))[0] if selection == "sample" else None
        chosen = attention_weights(tf.repeat(scores, samples, axis=0), selection, seed)
        context = context_vector(annotations, chosen.weights)
        told = tf.concat([context, tf.repeat(query, samples, axis=0)], axis=-1)
        return Answers(self.answer_layers(told)[:, 0], scores, chosen.log_prob)

    def infer(self, batch: Batch) -> Answers:
        """Answers deterministically: hard attention takes the portion with the largest alpha."""
        hard = self.config.attention == "hard"
        return self(batch["images"], selection="argmax" if hard else "expectation")

    def scores(self, batch: Batch, seed: tf.Tensor) -> dict[str, Score]:
        """Scores a batch: `error` and `presence_accuracy`, and the arg max of attention.

        `location_accuracy`: on the right portion, over labels that occur once in their strip;
        `null_accuracy`: on the null slot, over labels that do not occur.
        """
        answers, labels = self.infer(batch), batch["labels"]
        present = self.presence(labels)
        said = tf.cast(tf.reshape(answers.logits, tf.shape(present)) > 0.0, tf.float32)
        right = 100.0 * tf.cast(said == present, tf.float32)
        scores = {"error": Score(100.0 - right), "presence_accuracy": Score(right)}
        found = tf.argmax(by_image(answers.alignment_scores, labels), axis=-1)
        places = self._places(labels)
        place = tf.argmax(places, axis=1)
        once = tf.cast(tf.reduce_sum(places, axis=1) == 1.0, tf.float32)
        scores["location_accuracy"] = Score(100.0 * tf.cast(found == place, tf.float32), once)
        resting = tf.cast(found == self.portions, tf.float32)
        scores["null_accuracy"] = Score(100.0 * resting, 1.0 - present)
        return scores

    def figures(self, batch: Batch, seed: tf.Tensor) -> list[np.ndarray]:
        """Draws the matrix of alpha, queries by slots, under each strip."""
        answers = self.infer(batch)
        alpha = tf.nn.softmax(by_image(answers.alignment_scores, batch["images"])).numpy()
        present = self.presence(batch["labels"]).numpy()
        said = tf.reshape(tf.sigmoid(answers.logits), present.shape).numpy()
        strips = np.round(255.0 * batch["images"].numpy()[..., 0]).astype(np.uint8)
        return [
            alpha_matrix_figure(strip, self.labels, *rows)
            for strip, *rows in zip(strips, alpha, said, present > 0.5, strict=True)
        ]

    def presence(self, labels: tf.Tensor) -> tf.Tensor:
        """1.0 where the label of a query is in the strip: `[B, P] -> [B, Q]`."""
        return tf.reduce_max(self._places(labels), axis=1)

    def _places(self, labels: tf.Tensor) -> tf.Tensor:
        """1.0 in the portions that hold the label of a query: `[B, P] -> [B, P, Q]`."""
        asked = tf.constant(self.labels, labels.dtype)
        return tf.cast(labels[..., tf.newaxis] == asked, tf.float32)


class PresenceObjective:
    """Cross-entropy of the presence of each label, nats per query.

    Hard attention maximises the ELBO, with the gradient of `estimators`: a query with M samples
    is an example, and a sample's one draw its only step.
    """

    def __init__(self, config: PortionsConfig) -> None:
        self.config = config
        self.hard = config.attention == "hard"
        self.log_names = ("alpha_entropy", "reward") if self.hard else ("alpha_entropy",)

    def __call__(self, model, batch: Batch, seed: tf.Tensor) -> Terms:
        """Computes the loss of a batch of `images` and `labels`; see `Objective`."""
        config = self.config
        samples, selection = (config.samples, "sample") if self.hard else (1, "expectation")
        options = {"selection": selection, "samples": samples, "seed": replica_seed(seed)}
        answers = model(batch["images"], **options, training=True)
        present = tf.repeat(tf.reshape(model.presence(batch["labels"]), [-1]), samples)
        log_lik = -tf.nn.sigmoid_cross_entropy_with_logits(present, answers.logits)
        loss = -tf.reduce_mean(log_lik)
        means = {"alpha_entropy": tf.reduce_mean(entropy_share(answers.alignment_scores))}
        if self.hard:
            means["reward"] = tf.reduce_mean(log_lik)
            log_prob = by_sample(answers.log_prob[:, tf.newaxis], samples)
            entropy = attention_entropy(answers.alignment_scores)[tf.newaxis, :, tf.newaxis]
            log_lik = by_sample(log_lik[:, tf.newaxis], samples)
            rollout = Rollout(
                log_prob=log_prob,
                entropy=tf.broadcast_to(entropy, tf.shape(log_prob)),
                log_lik=log_lik,
                reward=tf.stop_gradient(log_lik),
                mask=tf.ones_like(log_prob),
            )
            estimator = Estimator(1.0, config.entropy_weight, baseline="leave_one_out")
            signal = learning_signal(rollout, estimator)
            loss = stochastic_loss(rollout, signal, estimator)
        size = tf.cast(tf.shape(batch["labels"])[0], tf.float32)
        return Terms(loss, weighted(means, size))
