"""The RNN decoder: words and annotations in, distributions over the next word out.

Shapes: B batch, T words, L locations, D annotation width, N LSTM width, m embedding width,
K vocabulary.
"""

from __future__ import annotations

import dataclasses
from typing import Literal, NamedTuple

import keras
import tensorflow as tf

from sat_tf.config import DecoderConfig
from sat_tf.layers.attention import BahdanauAttention, Selection, context_vector, glance
from sat_tf.layers.decoder import AttentionLSTMCell, DeepOutput, InitialState, State
from sat_tf.layers.deferred import DeferredKernels
from sat_tf.layers.dropout import dropout
from sat_tf.layers.unroll import batch_first, step_seeds, unroll


class Picture(NamedTuple):
    """What the decoder reads of a picture at every step."""

    annotations: tf.Tensor
    """`[B, L, D]`."""
    keys: tf.Tensor | None
    """`[B, L, A]`; None without attention."""
    projected: tf.Tensor | None = None
    """`[B, 4 N]`, without attention: the one annotation's share of the gates, before beta."""
    as_shares: bool = False
    """Whether `annotations` are `[B, L, 4 N + m]`, from `RNNDecoder.project`."""
    columns: tf.Tensor | None = None
    """`[B, D, L]`, the annotations transposed; None where contexts are not taken from them."""


class Look(NamedTuple):
    """What attention did at one step, or at all of them (time second)."""

    context: tf.Tensor
    """`[B, D]`, beta phi(a, alpha); `[B, 4 N + m]` of a picture as shares."""
    alignment_scores: tf.Tensor
    """float32 `[B, L]`."""
    beta: tf.Tensor
    """float32 `[B]`; ones without a gate."""
    log_prob: tf.Tensor
    """float32 `[B]`, of the location drawn; zero where none was."""


class Taught(NamedTuple):
    """The decoder's answer to a caption it was shown, time second.

    With M samples a caption there are B M rows, those of a caption side by side.
    """

    logits: tf.Tensor
    """float32 `[B, T, K]`."""
    alignment_scores: tf.Tensor
    """float32 `[B, T, L]`."""
    beta: tf.Tensor
    """float32 `[B, T]`."""
    log_prob: tf.Tensor
    """float32 `[B, T]`, of the locations drawn; zero where none was."""
    hidden: tf.Tensor | None = None
    """float32 `[B, T, N]`, h[t-1], which each location was chosen from."""


@keras.saving.register_keras_serializable(package="sat_tf")
class RNNDecoder(keras.layers.Layer):
    """LSTM that attends to the annotations before each word (Sec. 3.1.2).

    Soft and hard attention are the same layer: they differ in the `selection` it is called with.

    Args:
        vocabulary_size: K.
        annotation_dim: D.
        attends: False reads the mean annotation at every step, the baseline.
        config: `DecoderConfig`, or its dictionary.

    References:
        Xu et al. (2015), arXiv:1502.03044.
    """

    def __init__(
        self,
        vocabulary_size: int,
        annotation_dim: int,
        attends: bool = True,
        config: DecoderConfig | dict | None = None,
        **kwargs,
    ) -> None:
        super().__init__(autocast=False, **kwargs)
        config = DecoderConfig(**config) if isinstance(config, dict) else config or DecoderConfig()
        self.vocabulary_size, self.annotation_dim = vocabulary_size, annotation_dim
        self.attends, self.config = attends, config
        self._make_parts(config)
        self._build_parts(config)
        self.built = True

    def _make_parts(self, config: DecoderConfig) -> None:
        policy = self.dtype_policy
        self.embedding = keras.layers.Embedding(
            self.vocabulary_size,
            config.embedding_dim,
            embeddings_initializer=keras.initializers.RandomUniform(-0.1, 0.1),
            dtype=policy,
            name="embedding",
        )
        self.initial_state = InitialState(
            config.hidden_dim, config.initial_layers, config.initial_dropout, dtype=policy
        )
        self.cell = AttentionLSTMCell(config.hidden_dim, autocast=False, dtype=policy)
        self.deep_output = DeepOutput(
            self.vocabulary_size,
            config.embedding_dim,
            config.output_previous_word,
            config.output_context,
            config.output_tanh,
            config.hidden_dropout,
            config.output_dropout,
            dtype=policy,
        )
        self.attention = (
            BahdanauAttention(config.attention_dim, dtype=policy) if self.attends else None
        )
        # f_beta of the gating scalar, beta = sigmoid(f_beta(h[t-1])).
        self.gate = keras.layers.Dense(1, dtype=policy, name="gate") if config.gate else None

    def _build_parts(self, config: DecoderConfig) -> None:
        self.embedding.build((None, None))
        self.initial_state.build((None, self.annotation_dim))
        self.cell.build(config.embedding_dim, self.annotation_dim)
        self.deep_output.build(config.hidden_dim, self.annotation_dim)
        if self.attention is not None:
            self.attention.build(config.hidden_dim, self.annotation_dim)
        if self.gate is not None:
            self.gate.build((None, config.hidden_dim))

    def look_once(
        self, annotations: tf.Tensor, seed: tf.Tensor | None = None
    ) -> tuple[Picture, State]:
        """What needs computing once a picture: keys and the initial state.

        Args:
            annotations: `[B, L, D]`.
            seed: int32 `[2]` for dropout; None at inference.

        Returns:
            The `Picture` and the `State` before the first word.
        """
        # By float32: TensorFlow's way from a store's float16 to bfloat16 is slower than both steps.
        annotations = tf.cast(tf.cast(annotations, tf.float32), self.compute_dtype)
        annotations = dropout(annotations, self.config.annotation_dropout, seed, 1)
        mean = tf.reduce_mean(annotations, axis=1)
        state = self.initial_state(mean, seed=seed)
        if self.attention is None:
            # One location, the mean, stands for the whole picture: projected once, not every step.
            return Picture(mean[:, tf.newaxis], None, self.cell.project_context(mean)), state
        return Picture(annotations, self.attention.keys(annotations)), state

    def project(self, picture: Picture) -> Picture:
        """The same picture for quicker steps: of each annotation, what it adds elsewhere.

        Gates and deep output read the context through matrices alone, and it is a weighted sum:
        `W z = beta sum_i alpha_i (W a_i)`. A step of a few hypotheses spends its time on fetching
        weights from memory; it now fetches L rows in place of these matrices. The products here
        are as many as those of L contexts.

        Args:
            picture: From `look_once`.

        Returns:
            A `Picture` for `step`; it answers as the other does, but for rounding.
        """
        readers = (self.cell, self.deep_output)
        shares = [reader.project_context(picture.annotations) for reader in readers]
        return Picture(tf.concat(shares, axis=-1), picture.keys, as_shares=True)

    def attend(
        self,
        picture: Picture,
        state: State,
        selection: Selection,
        seed: tf.Tensor | None = None,
        use_expectation: tf.Tensor | None = None,
        searching: bool = False,
    ) -> Look:
        """One step of attention: eq. 4-6 and the gating scalar; `searching` for no gradient."""
        if self.attention is None:
            scores = tf.zeros([tf.shape(state.hidden)[0], 1])
            chosen = glance(scores)
        else:
            align = self.attention.for_search if searching else self.attention
            scores = align(state.hidden, picture.keys)
            chosen = glance(scores, selection, seed, use_expectation)
        context = context_vector(picture.annotations, chosen.weights, picture.columns)
        if self.gate is None:
            beta = tf.ones_like(chosen.log_prob)
        else:
            beta = tf.sigmoid(tf.cast(self.gate(state.hidden), tf.float32))[:, 0]
            context *= tf.cast(beta[:, tf.newaxis], context.dtype)
        return Look(context, scores, beta, chosen.log_prob)

    def call(
        self,
        annotations: tf.Tensor,
        words: tf.Tensor,
        selection: Literal["expectation", "sample", "argmax"] = "expectation",
        seed: tf.Tensor | None = None,
        use_expectation: tf.Tensor | None = None,
        training: bool = False,
        samples: int = 1,
        captions: int = 1,
    ) -> Taught:
        """Teacher forcing: read the true previous words and predict every next one.

        Args:
            annotations: `[B / C, L, D]`.
            words: int32 `[B, T]`, y[0] = <start> and the words before each prediction.
            selection: See `sat_tf.layers.attention.glance`.
            seed: int32 `[2]`; needed by dropout and by `selection="sample"`.
            use_expectation: bool `[B]`; see `glance`.
            training: Apply dropout.
            samples: M, sequences of locations drawn a caption, from the same keys and initial
                state and under the same dropout masks: they differ in where they look alone.
            captions: C, of each picture, side by side; its keys and initial state are computed
                once.

        Returns:
            A `Taught`.
        """
        noise = None
        if training and seed is not None:
            # Steps fold their time, 0 or more, into the seed: dropout shares no draw with them.
            noise = tf.random.experimental.stateless_fold_in(seed, -1)
        picture, state = self.look_once(annotations, noise)
        if self.compute_dtype == "bfloat16":
            # oneDNN's product of one row with a matrix is quicker from columns there (in float32
            # not): transposed once, read at every step.
            columns = tf.transpose(picture.annotations, [0, 2, 1])
            picture = picture._replace(columns=columns)
        embeddings = dropout(self.embedding(words), self.config.embedding_dropout, noise, 2)
        state = State(*(_side_by_side(part, captions * samples) for part in state))
        if use_expectation is not None:
            use_expectation = _side_by_side(use_expectation, samples)
        seed = tf.zeros([2], tf.int32) if seed is None else seed
        context_kernel, recurrent_kernel = self.cell.kernels()
        reads_context = picture.projected is None
        deferred = DeferredKernels([recurrent_kernel, *[context_kernel] * reads_context])
        word_gates = tf.transpose(self.cell.project_words(embeddings), [1, 0, 2])
        word_gates = _side_by_side(word_gates, samples, axis=1)
        inputs = (deferred.tap(word_gates), step_seeds(seed, tf.shape(words)[1]))

        def step(inputs, state):
            words_t, seed_t = inputs
            look = self.attend(picture, state, selection, seed_t, use_expectation)
            context = self._context_gates(picture, look, *deferred.inside[1:])
            state = self.cell(words_t, context, state, deferred.inside[0])
            return (look, state.hidden), state

        first = state.hidden
        (looks, hidden), _ = unroll(step, state, inputs, self._step_spec(picture))
        before = tf.concat([first[tf.newaxis], hidden[:-1]], axis=0)
        deferred.record(before, *[looks.context] * reads_context)
        looks, hidden, before = tf.nest.map_structure(batch_first, (looks, hidden, before))
        logits = self._read_out(hidden, looks.context, embeddings, noise, samples)
        before = tf.cast(before, tf.float32)
        return Taught(logits, looks.alignment_scores, looks.beta, looks.log_prob, before)

    def _read_out(
        self,
        hidden: tf.Tensor,
        context: tf.Tensor,
        embeddings: tf.Tensor,
        noise: tf.Tensor | None,
        samples: int,
    ) -> tf.Tensor:
        """Logits `[B M, T, K]` of rows `[B M, T, ...]` for words `[B, T, m]`."""
        if samples == 1:
            return self.deep_output(hidden, context, embeddings, seed=noise)
        hidden, context = (
            tf.reshape(rows, [-1, samples, tf.shape(rows)[1], rows.shape[-1]])
            for rows in (hidden, context)
        )
        words = embeddings[:, tf.newaxis]
        logits = self.deep_output(hidden, context, words, seed=noise, shared_axis=1)
        return tf.reshape(logits, [-1, tf.shape(logits)[2], self.vocabulary_size])

    def step(
        self,
        picture: Picture,
        words: tf.Tensor,
        state: State,
        selection: Selection,
        seed: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, State, Look]:
        """One free-running step, for search.

        Args:
            picture: Of B pictures, from `look_once` or `project`.
            words: int32 `[B * G]`, the previous words of G hypotheses a picture.
            state: `State` of the hypotheses.
            selection: See `glance`.
            seed: int32 `[2]`, for `selection="sample"`.

        Returns:
            Logits `[B * G, K]`, the next state, the `Look`.
        """
        look = self.attend(picture, state, selection, seed, searching=True)
        if picture.as_shares:
            width = 4 * self.config.hidden_dim
            gates, context = look.context[:, :width], look.context[:, width:]
        else:
            gates, context = self._context_gates(picture, look), look.context
        # Many hypotheses have few different words: a product for each of these.
        distinct, place = tf.unique(words)
        distinct = self.embedding(distinct)
        embeddings = tf.gather(distinct, place)
        state = self.cell(tf.gather(self.cell.project_words(distinct), place), gates, state)
        projected = picture.as_shares
        logits = self.deep_output(state.hidden, context, embeddings, projected=projected)
        return logits, state, look

    def _context_gates(
        self, picture: Picture, look: Look, kernel: tf.Tensor | None = None
    ) -> tf.Tensor:
        """`[B, 4 N]`, the share of `look.context` in the LSTM's gates."""
        if picture.projected is None:
            return self.cell.project_context(look.context, kernel)
        # The projection is linear, so the gate may come after it. G rows a picture, as in `attend`.
        beta = tf.reshape(look.beta, [tf.shape(picture.projected)[0], -1, 1])
        gates = tf.cast(beta, picture.projected.dtype) * picture.projected[:, tf.newaxis]
        return tf.reshape(gates, [-1, picture.projected.shape[-1]])

    def _step_spec(self, picture: Picture) -> tuple[Look, tf.TensorSpec]:
        locations = picture.annotations.shape[1]
        return (
            Look(
                tf.TensorSpec([None, self.annotation_dim], self.compute_dtype),
                tf.TensorSpec([None, locations], tf.float32),
                tf.TensorSpec([None], tf.float32),
                tf.TensorSpec([None], tf.float32),
            ),
            tf.TensorSpec([None, self.config.hidden_dim], self.compute_dtype),
        )

    def get_config(self) -> dict:
        """Constructor arguments."""
        return {
            **super().get_config(),
            "vocabulary_size": self.vocabulary_size,
            "annotation_dim": self.annotation_dim,
            "attends": self.attends,
            "config": dataclasses.asdict(self.config),
        }


def _side_by_side(rows: tf.Tensor, samples: int, axis: int = 0) -> tf.Tensor:
    """Every row M times in a row: `[B, ...] -> [B M, ...]`."""
    return rows if samples == 1 else tf.repeat(rows, samples, axis=axis)
