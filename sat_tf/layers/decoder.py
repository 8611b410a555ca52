"""The decoder: words and annotations in, distributions over the next word out.

Shapes: B images, G hypotheses per image, T words, L locations, D annotation width, N LSTM width,
m embedding width, A attention width, K vocabulary.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import keras
import tensorflow as tf
from keras import ops

from sat_tf.config import DecoderConfig
from sat_tf.layers.attention import BahdanauAttention, Selection, attention_weights, context_vector
from sat_tf.layers.lstm import (
    AttentionLSTMCell,
    DeepOutput,
    InitialState,
    State,
    batch_first,
    unroll,
)
from sat_tf.ops import DefaultSeeds, check_seed, dropout, fold_in, step_seeds
from sat_tf.util.errors import invalid_value
from sat_tf.util.fields import PositiveInt, checked


class Attended(NamedTuple):
    """Tensors of an image that every step of attention reads."""

    annotations: tf.Tensor
    """`[B, L, D]`."""
    keys: tf.Tensor | None
    """`[B, L, A]`; None without attention."""
    projected: tf.Tensor | None = None
    """`[B, 4 N]`, without attention: the one annotation's share of the gates, before beta."""
    pre_projected: bool = False
    """True if `annotations` are `[B, L, 4 N + m]`, from `RNNDecoder.project`."""

    def of(self, images: tf.Tensor) -> Attended:
        """Gathers the tensors of images by number, int `[rows]`."""
        parts = {name: part for name, part in self._asdict().items() if tf.is_tensor(part)}
        return self._replace(**{name: tf.gather(part, images) for name, part in parts.items()})


class AttentionOutput(NamedTuple):
    """Result of attention at one step, or of all steps (time second)."""

    context: tf.Tensor
    """`[B, D]`, beta phi(a, alpha); `[B, 4 N + m]` if the annotations are pre-projected."""
    alignment_scores: tf.Tensor
    """float32 `[B, L]`."""
    beta: tf.Tensor
    """float32 `[B]`; ones without a gate."""
    log_prob: tf.Tensor
    """float32 `[B]`, of the location drawn, nats; zero if none was drawn."""


class DecoderOutput(NamedTuple):
    """Teacher-forced output for all words of a caption.

    With M samples per caption there are B M rows, those of a caption side by side.
    """

    logits: tf.Tensor
    """float32 `[B, T, K]`."""
    alignment_scores: tf.Tensor
    """float32 `[B, T, L]`."""
    beta: tf.Tensor
    """float32 `[B, T]`."""
    log_prob: tf.Tensor
    """float32 `[B, T]`, of the locations drawn, nats; zero if none was drawn."""


@keras.saving.register_keras_serializable(package="sat_tf")
class DenseGradientEmbedding(keras.layers.Embedding):
    """`keras.layers.Embedding` with a gradient of one tensor in the table's shape.

    Keras' own has a row per occurrence of a word, and Adam, RMSprop and Adagrad square these before
    they sum them: a word that occurs 64 times in a batch would move 8 times as far.
    """

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        # The gradient of a reshape is dense; the reshape itself leaves every graph.
        table = ops.reshape(self.embeddings, (self.input_dim, self.output_dim))
        rows = ops.take(table, ops.cast(inputs, "int32"), axis=0)
        return ops.cast(rows, self.compute_dtype)


@keras.saving.register_keras_serializable(package="sat_tf")
class RNNDecoder(keras.layers.Layer):
    """LSTM that attends to the annotations before each word (Sec. 3.1.2).

    Soft and hard attention are the same layer: they differ in the `selection` of the call.

    Args:
        vocabulary_size: K.
        config: Widths, switches and dropout rates; None for the defaults of `DecoderConfig`.
        attends: False reads the mean annotation at every step, the baseline.
        **kwargs: Fields of `DecoderConfig`, which replace those of `config`; all others are for
            `keras.layers.Layer`.

    Call arguments:
        annotations: `[B / C, L, D]`.
        words: int32 `[B, T]`, y[0] = <start> and the words before each prediction;
            T is at least 1.
        selection: `expectation`, `sample`, `argmax` or `uniform`; see `attention_weights`.
        seed: int32 `[2]` of dropout and `sample`; None draws one. For `tf.saved_model.save`, which
            does not find the state of Keras' generator, hand one in, or call `model.export`.
        use_expectation: bool `[B]`; see `attention_weights`.
        training: Apply dropout.
        samples: M, sequences of locations drawn per caption, from the same keys and initial state
            and under the same dropout masks.
        captions: C, captions per image, side by side; keys and initial state are computed once per
            image.
        images: int `[B]` in 0 ... B' - 1, the image of each caption, if there are B' annotations;
            keys and initial state are computed, and annotations dropped, once per image.

    Output:
        `DecoderOutput`: logits, alignment scores, beta, log-probabilities and states, time second.

    Raises:
        ValueError: An argument is invalid, or shapes do not fit each other.

    Example:
        >>> decoder = RNNDecoder(vocabulary_size=100, hidden_dim=16)
        >>> output = decoder(np.zeros([2, 49, 32]), np.zeros([2, 7], "int32"))
        >>> output.logits.shape, output.alignment_scores.shape
        (TensorShape([2, 7, 100]), TensorShape([2, 7, 49]))

    References:
        Xu et al. (2015), arXiv:1502.03044.
    """

    @checked
    def __init__(
        self,
        vocabulary_size: PositiveInt,
        config: DecoderConfig | None = None,
        attends: bool = True,
        **kwargs,
    ) -> None:
        names = {field.name for field in dataclasses.fields(DecoderConfig)}
        given = {name: kwargs.pop(name) for name in names & set(kwargs)}
        super().__init__(autocast=False, **kwargs)
        self.config = config = dataclasses.replace(config or DecoderConfig(), **given)
        self.vocabulary_size, self.attends = vocabulary_size, attends
        self.default_seeds = DefaultSeeds()
        dense, policy = keras.layers.Dense, self.dtype_policy
        self.embedding = DenseGradientEmbedding(
            vocabulary_size,
            config.embedding_dim,
            embeddings_initializer=keras.initializers.RandomUniform(-0.1, 0.1),
            dtype=policy,
            name="embedding",
        )
        self.bottleneck = None
        if config.bottleneck_dim is not None:
            self.bottleneck = dense(config.bottleneck_dim, "relu", dtype=policy, name="bottleneck")
        self.initial_state = InitialState(
            config.hidden_dim, config.initial_layers, config.initial_dropout, dtype=policy
        )
        self.cell = AttentionLSTMCell(config.hidden_dim, config.embedding_dim, dtype=policy)
        self.deep_output = DeepOutput(
            vocabulary_size,
            config.embedding_dim,
            hidden_dropout=config.hidden_dropout,
            dropout=config.output_dropout,
            dtype=policy,
        )
        self.attention = BahdanauAttention(config.attention_dim, dtype=policy) if attends else None
        self.gate = dense(1, dtype=policy, name="gate") if config.gate else None

    def build(self, annotations_shape: tuple) -> None:
        _check_annotations(annotations_shape)
        config = self.config
        self.annotation_dim = config.bottleneck_dim or annotations_shape[-1]
        if self.bottleneck is not None:
            self.bottleneck.build(annotations_shape)
        hidden, annotation = (None, config.hidden_dim), (None, self.annotation_dim)
        self.embedding.build((None, None))
        self.initial_state.build(annotation)
        self.cell.build((None, config.embedding_dim + self.annotation_dim))
        self.deep_output.build(hidden, annotation)
        if self.attention is not None:
            self.attention.build(hidden, annotation)
        if self.gate is not None:
            self.gate.build(hidden)

    def call(
        self,
        annotations: tf.Tensor,
        words: tf.Tensor,
        selection: Selection = "expectation",
        seed: tf.Tensor | None = None,
        use_expectation: tf.Tensor | None = None,
        training: bool = False,
        samples: int = 1,
        captions: int = 1,
        images: tf.Tensor | None = None,
    ) -> DecoderOutput:
        config = self.config
        _check_words(words.shape, (annotations if images is None else images).shape, captions)
        if seed is None:
            rates = [rate for name, rate in vars(config).items() if name.endswith("_dropout")]
            draws = selection == "sample" or (training and any(rates))
            seed = self.default_seeds.draw() if draws else tf.zeros([2], tf.int32)
        check_seed(seed)
        # Steps fold their time, 0 or more, into the seed: dropout shares no draw with them.
        noise = fold_in(seed, -1) if training else None
        attended, state = self.begin(annotations, noise)
        if images is not None:
            attended, state = attended.of(images), State(*(tf.gather(p, images) for p in state))
        state = State(*(_side_by_side(part, captions * samples) for part in state))
        embeddings = dropout(self.embedding(words), config.embedding_dropout, noise, 2)
        word_gates = tf.transpose(self.cell.project_words(embeddings), [1, 0, 2])
        word_gates = _side_by_side(word_gates, samples, axis=1)
        if use_expectation is not None:
            use_expectation = _side_by_side(use_expectation, samples)
        attention, hidden = self._unroll(
            attended, state, word_gates, selection, seed, use_expectation
        )
        logits = self._read_out(hidden, attention.context, embeddings, noise, samples)
        return DecoderOutput(logits, *attention[1:])

    def begin(
        self, annotations: tf.Tensor, seed: tf.Tensor | None = None
    ) -> tuple[Attended, State]:
        """Computes what all steps share, keys for example, and the state before the first word.

        Args:
            annotations: `[B, L, D]`.
            seed: int32 `[2]` of dropout; None applies none.
        """
        _check_annotations(annotations.shape)
        if not self.built:
            self.build(annotations.shape)
        # TensorFlow's cast of a store's float16 to bfloat16 is slower than two by way of float32.
        annotations = tf.cast(tf.cast(annotations, tf.float32), self.compute_dtype)
        if self.bottleneck is not None:
            annotations = self.bottleneck(annotations)
        annotations = dropout(annotations, self.config.annotation_dropout, seed, 1)
        # The sum over locations may exceed float16, whose largest number is 65,504.
        wide = tf.float32 if annotations.dtype == tf.float16 else annotations.dtype
        mean = tf.cast(tf.reduce_mean(tf.cast(annotations, wide), axis=1), annotations.dtype)
        state = self.initial_state(mean, training=seed is not None, seed=seed)
        if self.attention is None:
            # The mean is the one location of the whole image: projected once, not at every step.
            return Attended(mean[:, tf.newaxis], None, self.cell.project_context(mean)), state
        return Attended(annotations, self.attention.keys(annotations)), state

    def project(self, attended: Attended) -> Attended:
        """Projects the annotations once, for steps on one image in a small runtime (LiteRT).

        Gates and deep output read the context through matrices alone, and it is a weighted sum:
        `W z = beta sum_i alpha_i (W a_i)`. A step then reads L projected rows in place of the
        matrices, which saves memory traffic; in batches it is slower. Takes the `Attended` of
        `begin` and returns one for `step`, with the same results but for rounding.
        """
        readers = (self.cell, self.deep_output)
        shares = [reader.project_context(attended.annotations) for reader in readers]
        return Attended(tf.concat(shares, axis=-1), attended.keys, pre_projected=True)

    def attend(
        self,
        attended: Attended,
        state: State,
        selection: Selection,
        seed: tf.Tensor | None = None,
        use_expectation: tf.Tensor | None = None,
    ) -> AttentionOutput:
        """Computes one step of attention (eq. 4-6) and the gate.

        Args:
            attended: From `begin` or `project`.
            state: `State` of t-1.
            selection: See `attention_weights`.
            seed: int32 `[2]` of `sample`; None draws one.
            use_expectation: bool `[B]`; see `attention_weights`.
        """
        if self.attention is None:
            scores = tf.zeros([tf.shape(state.hidden)[0], 1])
            chosen = attention_weights(scores)
        else:
            scores = self.attention.scores(state.hidden, attended.keys)
            if seed is None and selection == "sample":
                seed = self.default_seeds.draw()
            chosen = attention_weights(scores, selection, seed, use_expectation)
        context = context_vector(attended.annotations, chosen.weights)
        if self.gate is None:
            beta = tf.ones_like(chosen.log_prob)
        else:
            beta = tf.sigmoid(tf.cast(self.gate(state.hidden), tf.float32))[:, 0]
            context *= tf.cast(beta[:, tf.newaxis], context.dtype)
        return AttentionOutput(context, scores, beta, chosen.log_prob)

    def step(
        self,
        attended: Attended,
        words: tf.Tensor,
        state: State,
        selection: Selection,
        seed: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, State, AttentionOutput]:
        """Takes one free-running step, for search.

        Args:
            attended: Of B images, from `begin` or `project`.
            words: int32 `[B * G]`, the previous words of G hypotheses per image.
            state: `State` of the hypotheses.
            selection: See `attention_weights`.
            seed: int32 `[2]` of `sample`; None draws one.

        Returns:
            Logits `[B * G, K]`, the next state, the `AttentionOutput`.
        """
        embeddings = self.embedding(words)
        word_gates = self.cell.project_words(embeddings)
        attention = self.attend(attended, state, selection, seed)
        if attended.pre_projected:
            width = 4 * self.config.hidden_dim
            gates, context = attention.context[:, :width], attention.context[:, width:]
        else:
            gates = self._context_gates(attended, attention)
            context = self.deep_output.project_context(attention.context)
        state = self.cell.step(word_gates, gates, state)
        return self.deep_output.logits(state.hidden, context, embeddings), state, attention

    def _unroll(
        self,
        attended: Attended,
        first: State,
        word_gates: tf.Tensor,
        selection: Selection,
        seed: tf.Tensor,
        use_expectation: tf.Tensor | None,
    ) -> tuple[AttentionOutput, tf.Tensor]:
        """Runs all steps from gates `[T, B, 4 N]`; returns attention and h[t]."""
        seeds = step_seeds(seed, tf.shape(word_gates)[0])

        def step(inputs, state):
            gates_t, seed_t = inputs
            attention = self.attend(attended, state, selection, seed_t, use_expectation)
            state = self.cell.step(gates_t, self._context_gates(attended, attention), state)
            return (attention, state.hidden), state

        spec = lambda dtype, *axes: tf.TensorSpec([None, *axes], dtype)  # noqa: E731
        outputs = AttentionOutput(
            spec(self.compute_dtype, self.annotation_dim),
            spec(tf.float32, attended.annotations.shape[1]),
            beta=spec(tf.float32),
            log_prob=spec(tf.float32),
        )
        states = spec(self.compute_dtype, self.config.hidden_dim)
        taken, _ = unroll(step, first, (word_gates, seeds), (outputs, states))
        return tf.nest.map_structure(batch_first, taken)

    def _context_gates(self, attended: Attended, attention: AttentionOutput) -> tf.Tensor:
        """Computes the context's share of the LSTM's gates, `[B, 4 N]`."""
        if attended.projected is None:
            return self.cell.project_context(attention.context)
        # The projection is linear, so the gate may come after it. G rows per image, as in `attend`.
        beta = tf.reshape(attention.beta, [tf.shape(attended.projected)[0], -1, 1])
        gates = tf.cast(beta, attended.projected.dtype) * attended.projected[:, tf.newaxis]
        return tf.reshape(gates, [-1, attended.projected.shape[-1]])

    def _read_out(
        self,
        hidden: tf.Tensor,
        context: tf.Tensor,
        embeddings: tf.Tensor,
        noise: tf.Tensor | None,
        samples: int,
    ) -> tf.Tensor:
        """Computes logits `[B M, T, K]` of rows `[B M, T, ...]` for embeddings `[B, T, m]`."""
        output = self.deep_output
        if samples == 1:
            return output.logits(hidden, output.project_context(context), embeddings, noise)
        hidden, context = (
            tf.reshape(rows, [-1, samples, tf.shape(rows)[1], rows.shape[-1]])
            for rows in (hidden, context)
        )
        context, words = output.project_context(context), embeddings[:, tf.newaxis]
        logits = output.logits(hidden, context, words, noise, shared_axis=1)
        return tf.reshape(logits, [-1, tf.shape(logits)[2], self.vocabulary_size])

    def get_config(self) -> dict:
        """Returns the constructor arguments."""
        return {
            **super().get_config(),
            "vocabulary_size": self.vocabulary_size,
            "attends": self.attends,
            **dataclasses.asdict(self.config),
        }


def _side_by_side(rows: tf.Tensor, times: int, axis: int = 0) -> tf.Tensor:
    """Repeats every row M times, side by side: `[B, ...] -> [B M, ...]`."""
    return rows if times == 1 else tf.repeat(rows, times, axis=axis)


# --- checks of inputs by what is known of their shapes: none is left in a graph ---


def _check_annotations(shape: tuple) -> None:
    if tf.TensorShape(shape).rank not in (None, 3):
        raise invalid_value("annotations", "shape [B, L, D]", f"shape {tuple(shape)}")


def _check_words(shape: tuple, annotations_shape: tuple, captions: int) -> None:
    """Checks that a shape is `[B C, T]`, for annotations `[B, L, D]`, and T is not 0."""
    shape, annotations_shape = tf.TensorShape(shape), tf.TensorShape(annotations_shape)
    images = None if annotations_shape.rank is None else annotations_shape[0]
    rows = None if images is None else images * captions
    if not shape.is_compatible_with([rows, None]):
        expected = f"shape [{'B' if rows is None else rows}, T], captions={captions} per image"
        raise invalid_value("words", expected, f"shape {tuple(shape)}")
    if shape.rank is not None and shape[1] == 0:
        raise invalid_value("words", "at least one word per caption", f"shape {tuple(shape)}")
