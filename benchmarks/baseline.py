"""Baseline of the benchmarks: the structure of most public implementations, same mathematics.

Keys, output layer and loss are inside the loop over words, the LSTM is `keras.layers.LSTMCell` on
the concatenated word and context, the context is a product and a sum, and batches are padded to
their longest caption. It is compiled with `tf.function` and computes in float32.
"""

from __future__ import annotations

from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from benchmarks.models import STEPS, Shape, run_config
from sat_tf.text.vocabulary import END, PAD, START, UNK
from training.run.build import make_optimizer


class Baseline(keras.Model):
    """Soft attention with gate, deep output, dropout and doubly stochastic penalty.

    References:
        Xu et al. (2015), arXiv:1502.03044.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape, self.run = shape, run_config(shape)
        dense, width, decoder = keras.layers.Dense, shape.width, self.run.decoder
        self.embedding = keras.layers.Embedding(shape.vocabulary_size, width)
        self.initial_hidden, self.initial_cell = dense(width, "tanh"), dense(width, "tanh")
        self.keys, self.query = dense(width), dense(width, use_bias=False)
        self.scores, self.gate = dense(1, use_bias=False), dense(1, "sigmoid")
        self.lstm = keras.layers.LSTMCell(width, unit_forget_bias=False)
        self.from_hidden, self.from_context = dense(width), dense(width, use_bias=False)
        self.words = dense(shape.vocabulary_size)
        self.drop_annotations = keras.layers.Dropout(decoder.annotation_dropout)
        self.drop_embedding = keras.layers.Dropout(decoder.embedding_dropout)
        self.drop_output = keras.layers.Dropout(decoder.output_dropout)
        # Builds every layer.
        annotations = tf.zeros([1, shape.locations, shape.annotation_dim])
        self.step(annotations, tf.zeros([1], tf.int32), *self.start(annotations))
        self.built = True

    def start(self, annotations: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Computes h_0 and c_0 `[B, N]` from annotations `[B, L, D]`."""
        mean = tf.reduce_mean(annotations, axis=1)
        return self.initial_hidden(mean), self.initial_cell(mean)

    def step(
        self,
        annotations: tf.Tensor,
        words: tf.Tensor,
        hidden: tf.Tensor,
        cell: tf.Tensor,
        training: bool = False,
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        """Reads one word; returns logits `[B, K]`, h, c `[B, N]` and alpha `[B, L]`."""
        activation = tf.tanh(self.keys(annotations) + self.query(hidden)[:, tf.newaxis])
        alpha = tf.nn.softmax(self.scores(activation)[..., 0])
        context = tf.reduce_sum(alpha[..., tf.newaxis] * annotations, axis=1)
        context *= self.gate(hidden)
        embedding = self.drop_embedding(self.embedding(words), training=training)
        inputs = tf.concat([embedding, context], axis=-1)
        hidden, (_, cell) = self.lstm(inputs, [hidden, cell], training=training)
        output = tf.tanh(self.from_hidden(hidden) + self.from_context(context) + embedding)
        return self.words(self.drop_output(output, training=training)), hidden, cell, alpha

    def loss_of(self, batch: dict[str, tf.Tensor]) -> tf.Tensor:
        """Computes eq. 14 with dropout: sums over words, mean over captions.

        Args:
            batch: `annotations` float32 `[B, L, D]`, `tokens` int32 `[B, T + 1]`.
        """
        tokens, smoothing = batch["tokens"], self.run.fit.label_smoothing
        annotations = self.drop_annotations(batch["annotations"], training=True)
        hidden, cell = self.start(annotations)
        log_lik = tf.zeros_like(hidden[:, 0])
        attended = tf.zeros([tf.shape(tokens)[0], self.shape.locations])
        for t in tf.range(tf.shape(tokens)[1] - 1):
            logits, hidden, cell, alpha = self.step(annotations, tokens[:, t], hidden, cell, True)
            target = tokens[:, t + 1]
            mask = tf.cast(target != PAD, tf.float32)
            log_probs = tf.nn.log_softmax(logits)
            chosen = tf.gather(log_probs, target, batch_dims=1)
            smooth = tf.reduce_mean(log_probs, axis=-1)
            log_lik += mask * ((1.0 - smoothing) * chosen + smoothing * smooth)
            attended += mask[:, tf.newaxis] * alpha
        penalty = tf.reduce_sum(tf.square(1.0 - attended), axis=-1)
        return tf.reduce_mean(self.run.attention.penalty_weight * penalty - log_lik)


def train_function(shape: Shape) -> Callable[[dict[str, tf.Tensor]], tf.Tensor]:
    """Compiles a gradient step with the run's optimiser and clipping; it returns the loss."""
    model = Baseline(shape)
    settings = model.run.optimizer
    optimizer = make_optimizer(settings, STEPS, model.run.fit.epochs)
    optimizer.build(model.trainable_variables)
    batch_spec = {
        "annotations": tf.TensorSpec([None, shape.locations, shape.annotation_dim], tf.float32),
        "tokens": tf.TensorSpec([None, None], tf.int32),
    }

    @tf.function(input_signature=[batch_spec])
    def train(batch):
        with tf.GradientTape() as tape:
            loss = model.loss_of(batch)
        gradients = tape.gradient(loss, model.trainable_variables)
        gradients, _ = tf.clip_by_global_norm(gradients, settings.clip_norm)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    return train


def beam_search(shape: Shape, beam: int, length: int) -> Callable[[tf.Tensor], list[int]]:
    """Returns a search for captions of so many words: one image at a time, a loop in Python.

    Its step is compiled for any number of prefixes.
    """
    model = Baseline(shape)
    rows = tf.TensorSpec([None, shape.width])
    images = tf.TensorSpec([None, shape.locations, shape.annotation_dim])
    start = tf.function(model.start, input_signature=[images])

    @tf.function(input_signature=[images, tf.TensorSpec([None], tf.int32), rows, rows])
    def step(annotations, words, hidden, cell):
        logits, hidden, cell, _ = model.step(annotations, words, hidden, cell)
        return tf.nn.log_softmax(logits), hidden, cell

    def search(annotations: tf.Tensor) -> list[int]:
        hidden, cell = start(annotations[tf.newaxis])
        prefixes, totals = [[START]], np.zeros(1, np.float32)
        for _ in range(length):
            images = tf.repeat(annotations[tf.newaxis], len(prefixes), axis=0)
            words = tf.constant([prefix[-1] for prefix in prefixes])
            log_probs, hidden, cell = step(images, words, hidden, cell)
            log_probs = log_probs.numpy()
            log_probs[:, [PAD, START, END, UNK]] = -np.inf
            scores = (totals[:, np.newaxis] + log_probs).reshape(-1)
            best = np.argpartition(-scores, beam - 1)[:beam]
            parents, tokens = np.divmod(best, log_probs.shape[1])
            prefixes = [
                [*prefixes[parent], int(token)]
                for parent, token in zip(parents, tokens, strict=True)
            ]
            totals = scores[best]
            hidden, cell = tf.gather(hidden, parents), tf.gather(cell, parents)
        return prefixes[int(np.argmax(totals))][1:]

    return search
