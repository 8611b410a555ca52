"""Baseline of the benchmarks: the structure of most public implementations, same mathematics.

Keys, output layer and loss are inside the loop over words, the LSTM is `keras.layers.LSTMCell` on
the concatenated word and context, the context is a product and a sum, and batches are padded to
their longest caption. It is compiled with `tf.function` and computes in float32.
"""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf

from benchmarks.models import STEPS
from benchmarks.shapes import Shape
from sat_tf.config import SearchConfig
from sat_tf.layers.decoder import RNNDecoder
from sat_tf.vocabulary import END, PAD, START, UNK
from training.config import RunConfig
from training.loop.optimizers import make_optimizer


class Baseline(keras.Model):
    """Soft attention with gate, deep output, dropout and doubly stochastic penalty.

    References:
        Xu et al. (2015), arXiv:1502.03044.
    """

    def __init__(self, shape: Shape, config: RunConfig) -> None:
        super().__init__()
        self.run, self.locations = config, shape.locations
        dense, embedding_dim = keras.layers.Dense, shape.embedding_dim
        self.embedding = keras.layers.Embedding(shape.vocabulary_size, embedding_dim)
        self.initial_hidden = dense(shape.hidden_dim, "tanh")
        self.initial_cell = dense(shape.hidden_dim, "tanh")
        self.keys = dense(shape.attention_dim)
        self.query = dense(shape.attention_dim, use_bias=False)
        self.scores = dense(1, use_bias=False)
        self.gate = dense(1, "sigmoid")
        self.lstm = keras.layers.LSTMCell(shape.hidden_dim, unit_forget_bias=False)
        self.from_hidden = dense(embedding_dim)
        self.from_context = dense(embedding_dim, use_bias=False)
        self.words = dense(shape.vocabulary_size)
        decoder = config.decoder
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

    def loss_of(self, batch: dict[str, tf.Tensor], training: bool = False) -> tf.Tensor:
        """Computes eq. 14: sums over the words of a caption, mean over the captions.

        Args:
            batch: `annotations` float32 `[B, L, D]`, `tokens` int32 `[B, T + 1]`.
            training: Apply dropout.
        """
        tokens = batch["tokens"]
        annotations = self.drop_annotations(batch["annotations"], training=training)
        hidden, cell = self.start(annotations)
        log_lik = tf.zeros_like(hidden[:, 0])
        attended = tf.zeros([tf.shape(tokens)[0], self.locations])
        for t in tf.range(tf.shape(tokens)[1] - 1):
            logits, hidden, cell, alpha = self.step(
                annotations, tokens[:, t], hidden, cell, training
            )
            target = tokens[:, t + 1]
            mask = tf.cast(target != PAD, tf.float32)
            log_lik += mask * self._word_log_likelihood(logits, target)
            attended += mask[:, tf.newaxis] * alpha
        penalty = tf.reduce_sum(tf.square(1.0 - attended), axis=-1)
        return tf.reduce_mean(self.run.attention.penalty_weight * penalty - log_lik)

    def _word_log_likelihood(self, logits: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
        smoothing = self.run.fit.label_smoothing
        log_probs = tf.nn.log_softmax(logits)
        chosen = tf.gather(log_probs, target, batch_dims=1)
        return (1.0 - smoothing) * chosen + smoothing * tf.reduce_mean(log_probs, axis=-1)

    def copy_weights(self, decoder: RNNDecoder) -> None:
        """Copies the weights of sat_tf's decoder."""
        attention, cell, output = decoder.attention, decoder.cell, decoder.deep_output
        self.embedding.set_weights(decoder.embedding.get_weights())
        self.initial_hidden.set_weights(decoder.initial_state.hidden_mlp[0].get_weights())
        self.initial_cell.set_weights(decoder.initial_state.memory_mlp[0].get_weights())
        self.keys.set_weights(attention.key_projection.get_weights())
        self.query.set_weights(attention.query_projection.get_weights())
        self.scores.set_weights([np.asarray(attention.score_vector)[:, np.newaxis]])
        self.gate.set_weights(decoder.gate.get_weights())
        word_kernel, bias = cell.word_projection.get_weights()
        inputs = np.concatenate([word_kernel, *cell.context_projection.get_weights()])
        (recurrent,) = cell.recurrent_projection.get_weights()
        self.lstm.set_weights([keras_gates(part) for part in (inputs, recurrent, bias)])
        self.from_hidden.set_weights(output.hidden_projection.get_weights())
        self.from_context.set_weights(output.context_projection.get_weights())
        self.words.set_weights(output.word_projection.get_weights())


def keras_gates(gates: np.ndarray) -> np.ndarray:
    """Reorders the gates of the last axis from i, f, o, g to Keras' i, f, g, o."""
    parts = np.split(gates, 4, axis=-1)
    return np.concatenate([parts[index] for index in (0, 1, 3, 2)], axis=-1)


def train_function(model: Baseline, shape: Shape) -> tf.types.experimental.PolymorphicFunction:
    """Compiles a gradient step with the run's optimiser and clipping; it returns the loss."""
    optimizer = make_optimizer(model.run.optimizer, STEPS, model.run.fit.epochs)
    optimizer.build(model.trainable_variables)
    batch_spec = {
        "annotations": tf.TensorSpec([None, shape.locations, shape.annotation_dim], tf.float32),
        "tokens": tf.TensorSpec([None, None], tf.int32),
    }

    @tf.function(input_signature=[batch_spec])
    def train(batch):
        with tf.GradientTape() as tape:
            loss = model.loss_of(batch, training=True)
        gradients = tape.gradient(loss, model.trainable_variables)
        gradients, _ = tf.clip_by_global_norm(gradients, model.run.optimizer.clip_norm)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    return train


class BeamLoop:
    """Beam search over the baseline: one image at a time, a loop in Python.

    Its step is compiled for any number of prefixes. The beam shrinks by each hypothesis that ends,
    as in the paper's code.
    """

    def __init__(self, model: Baseline, shape: Shape, search: SearchConfig) -> None:
        self._search = search
        self._forbidden = [PAD, START, *[UNK] * search.suppress_unknown]
        rows = tf.TensorSpec([None, shape.hidden_dim])
        images = tf.TensorSpec([None, shape.locations, shape.annotation_dim])
        words = tf.TensorSpec([None], tf.int32)

        @tf.function(input_signature=[images])
        def start(annotations):
            return model.start(annotations)

        @tf.function(input_signature=[images, words, rows, rows])
        def step(annotations, words, hidden, cell):
            logits, hidden, cell, _ = model.step(annotations, words, hidden, cell)
            return tf.nn.log_softmax(logits), hidden, cell

        self._start, self._step = start, step

    def caption(self, annotations: tf.Tensor) -> tuple[list[int], float]:
        """Returns the best caption of one image: the ids of its words and its score."""
        search, finished = self._search, []
        hidden, cell = self._start(annotations[tf.newaxis])
        prefixes, totals = [[START]], np.zeros(1, np.float32)
        for length in range(search.max_length):
            images = tf.repeat(annotations[tf.newaxis], len(prefixes), axis=0)
            words = tf.constant([prefix[-1] for prefix in prefixes])
            log_probs, hidden, cell = self._step(images, words, hidden, cell)
            log_probs = self._allowed(log_probs.numpy(), first=length == 0)
            scores = (totals[:, np.newaxis] + log_probs).reshape(-1)
            count = search.beam - len(finished)
            best = np.argpartition(-scores, count - 1)[:count]
            parents, tokens = np.divmod(best, log_probs.shape[1])
            ends = tokens == END
            finished += [
                (prefixes[parent][1:], self._score(scores[index], length))
                for parent, index in zip(parents[ends], best[ends], strict=True)
            ]
            parents, tokens = parents[~ends], tokens[~ends]
            prefixes = [
                [*prefixes[parent], int(token)]
                for parent, token in zip(parents, tokens, strict=True)
            ]
            totals = scores[best[~ends]]
            if not prefixes:
                break
            hidden, cell = tf.gather(hidden, parents), tf.gather(cell, parents)
        # The others have reached the maximum length.
        finished += [
            (prefix[1:], self._score(total, search.max_length))
            for prefix, total in zip(prefixes, totals, strict=True)
        ]
        return max(finished, key=lambda hypothesis: hypothesis[1])

    def _allowed(self, log_probs: np.ndarray, first: bool) -> np.ndarray:
        log_probs = log_probs.copy()
        log_probs[:, self._forbidden] = -np.inf
        if first:
            log_probs[:, END] = -np.inf
        return log_probs

    def _score(self, log_prob: float, length: int) -> float:
        return float(log_prob) / max(length, 1) ** self._search.length_power
