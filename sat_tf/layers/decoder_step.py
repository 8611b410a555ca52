"""One step of the decoder, and what all steps of an image share.

Shapes: B images, G hypotheses per image, L locations, D annotation width, N LSTM width,
m embedding width, K vocabulary.
"""

from __future__ import annotations

import keras
import tensorflow as tf

from sat_tf.errors import dropout_rate, positive
from sat_tf.layers.attention import BahdanauAttention, Selection, attention_weights, context_vector
from sat_tf.layers.attention_lstm import AttentionLSTMCell, State
from sat_tf.layers.decoder_types import AttentionMemory, AttentionOutput
from sat_tf.layers.deep_output import DeepOutput
from sat_tf.layers.dropout import DefaultSeeds, dropout
from sat_tf.layers.initial_state import InitialState
from sat_tf.layers.input_checks import check_annotations
from sat_tf.layers.traced import TracedOutputs


class DecoderStep(TracedOutputs, keras.layers.Layer):
    """Parts of `RNNDecoder`, which documents the arguments, and its free-running step."""

    def __init__(
        self,
        vocabulary_size: int,
        embedding_dim: int = 512,
        attention_dim: int = 512,
        hidden_dim: int = 512,
        attends: bool = True,
        initial_layers: int = 1,
        bottleneck_dim: int | None = None,
        gate: bool = True,
        attention_previous_word: bool = False,
        output_previous_word: bool = True,
        output_context: bool = True,
        output_tanh: bool = True,
        annotation_dropout: float = 0.0,
        initial_dropout: float = 0.0,
        embedding_dropout: float = 0.0,
        hidden_dropout: float = 0.0,
        output_dropout: float = 0.0,
        **kwargs,
    ) -> None:
        super().__init__(autocast=False, **kwargs)
        self.vocabulary_size = positive("vocabulary_size", vocabulary_size)
        self.embedding_dim = positive("embedding_dim", embedding_dim)
        self.attention_dim, self.hidden_dim = attention_dim, hidden_dim
        self.attends, self.initial_layers = attends, initial_layers
        self.bottleneck_dim = bottleneck_dim
        self.attention_previous_word = attention_previous_word
        self.output_previous_word, self.output_context = output_previous_word, output_context
        self.output_tanh = output_tanh
        self.annotation_dropout = dropout_rate("annotation_dropout", annotation_dropout)
        self.embedding_dropout = dropout_rate("embedding_dropout", embedding_dropout)
        self.initial_dropout, self.hidden_dropout = initial_dropout, hidden_dropout
        self.output_dropout = output_dropout
        self.default_seeds = DefaultSeeds()
        self._make_parts(gate)

    def _make_parts(self, gate: bool) -> None:
        policy = self.dtype_policy
        self.embedding = keras.layers.Embedding(
            self.vocabulary_size,
            self.embedding_dim,
            embeddings_initializer=keras.initializers.RandomUniform(-0.1, 0.1),
            dtype=policy,
            name="embedding",
        )
        self.bottleneck = None
        if self.bottleneck_dim is not None:
            width = positive("bottleneck_dim", self.bottleneck_dim)
            self.bottleneck = keras.layers.Dense(width, "relu", dtype=policy, name="bottleneck")
        self.initial_state = InitialState(
            self.hidden_dim, self.initial_layers, self.initial_dropout, dtype=policy
        )
        self.cell = AttentionLSTMCell(self.hidden_dim, self.embedding_dim, dtype=policy)
        self.deep_output = DeepOutput(
            self.vocabulary_size,
            self.embedding_dim,
            self.output_previous_word,
            self.output_context,
            self.output_tanh,
            self.hidden_dropout,
            self.output_dropout,
            dtype=policy,
        )
        self.attention = (
            BahdanauAttention(self.attention_dim, dtype=policy) if self.attends else None
        )
        self.gate = keras.layers.Dense(1, dtype=policy, name="gate") if gate else None

    def build(self, annotations_shape: tuple) -> None:
        check_annotations(annotations_shape)
        self.annotation_dim = self.bottleneck_dim or annotations_shape[-1]
        if self.bottleneck is not None:
            self.bottleneck.build(annotations_shape)
        hidden, annotation = (None, self.hidden_dim), (None, self.annotation_dim)
        self.embedding.build((None, None))
        self.initial_state.build(annotation)
        self.cell.build((None, self.embedding_dim + self.annotation_dim))
        self.deep_output.build(hidden, annotation)
        if self.attention is not None:
            word_dim = self.embedding_dim if self.attention_previous_word else 0
            self.attention.build((None, self.hidden_dim + word_dim), annotation)
        if self.gate is not None:
            self.gate.build(hidden)

    def prepare_memory(
        self, annotations: tf.Tensor, seed: tf.Tensor | None = None
    ) -> tuple[AttentionMemory, State]:
        """Computes what all steps share: keys and the initial state.

        Args:
            annotations: `[B, L, D]`.
            seed: int32 `[2]` of dropout; None applies none.

        Returns:
            The `AttentionMemory` and the `State` before the first word.

        Raises:
            ValueError: The annotations are of another rank.
        """
        check_annotations(annotations.shape)
        if not self.built:
            self.build(annotations.shape)
        # TensorFlow's cast of a store's float16 to bfloat16 is slower than two by way of float32.
        annotations = tf.cast(tf.cast(annotations, tf.float32), self.compute_dtype)
        if self.bottleneck is not None:
            annotations = self.bottleneck(annotations)
        annotations = dropout(annotations, self.annotation_dropout, seed, 1)
        # The sum over locations may exceed float16, whose largest number is 65,504.
        wide = tf.float32 if annotations.dtype == tf.float16 else annotations.dtype
        mean = tf.reduce_mean(tf.cast(annotations, wide), axis=1)
        mean = tf.cast(mean, annotations.dtype)
        state = self.initial_state(mean, training=seed is not None, seed=seed)
        if self.attention is None:
            # The mean is the one location of the whole image: projected once, not at every step.
            projected = self.cell.project_context(mean)
            return AttentionMemory(mean[:, tf.newaxis], None, projected), state
        return AttentionMemory(annotations, self.attention.keys(annotations)), state

    def project(self, attended: AttentionMemory) -> AttentionMemory:
        """Projects the annotations once, for faster steps of a few hypotheses per image.

        Gates and deep output read the context through matrices alone, and it is a weighted sum:
        `W z = beta sum_i alpha_i (W a_i)`. A step then reads L projected rows in place of the
        matrices. The products here are as many as those of L contexts.

        Args:
            attended: From `prepare_memory`.

        Returns:
            An `AttentionMemory` for `step`, with the same results but for rounding.
        """
        readers = (self.cell, self.deep_output)
        shares = [reader.project_context(attended.annotations) for reader in readers]
        return AttentionMemory(tf.concat(shares, axis=-1), attended.keys, pre_projected=True)

    def attend(
        self,
        attended: AttentionMemory,
        state: State,
        selection: Selection,
        seed: tf.Tensor | None = None,
        use_expectation: tf.Tensor | None = None,
        embeddings: tf.Tensor | None = None,
        searching: bool = False,
    ) -> AttentionOutput:
        """Computes one step of attention (eq. 4-6) and the gate.

        Args:
            attended: From `prepare_memory` or `project`.
            state: `State` of t-1.
            selection: See `attention_weights`.
            seed: int32 `[2]` of `sample`; None draws one.
            use_expectation: bool `[B]`; see `attention_weights`.
            embeddings: `[B, m]` of the previous words; read by `attention_previous_word` only.
            searching: Take the path that is fast for many hypotheses and has no gradient.

        Returns:
            The `AttentionOutput` of one step.
        """
        if self.attention is None:
            scores = tf.zeros([tf.shape(state.hidden)[0], 1])
            chosen = attention_weights(scores)
        else:
            align = self.attention.inference_scores if searching else self.attention.scores
            query = state.hidden
            if self.attention_previous_word:
                query = tf.concat([query, tf.cast(embeddings, query.dtype)], axis=-1)
            scores = align(query, attended.keys)
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
        attended: AttentionMemory,
        words: tf.Tensor,
        state: State,
        selection: Selection,
        seed: tf.Tensor | None = None,
        portable: bool = False,
    ) -> tuple[tf.Tensor, State, AttentionOutput]:
        """Takes one free-running step, for search.

        Args:
            attended: Memory of B images, from `prepare_memory` or `project`.
            words: int32 `[B * G]`, the previous words of G hypotheses per image.
            state: `State` of the hypotheses.
            selection: See `attention_weights`.
            seed: int32 `[2]` of `sample`; None draws one.
            portable: Take plain operations that every runtime has, LiteRT say, at equal results.

        Returns:
            Logits `[B * G, K]`, the next state, the `AttentionOutput`.
        """
        embeddings, word_gates = self._read(words, portable)
        attention = self.attend(
            attended, state, selection, seed, embeddings=embeddings, searching=not portable
        )
        if attended.pre_projected:
            width = 4 * self.hidden_dim
            gates, context = attention.context[:, :width], attention.context[:, width:]
        else:
            gates = self.context_gates(attended, attention)
            context = self.deep_output.project_context(attention.context)
        state = self.cell.step(word_gates, gates, state)
        return self.deep_output.logits(state.hidden, context, embeddings), state, attention

    def _read(self, words: tf.Tensor, portable: bool) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns embeddings `[B * G, m]` and gates `[B * G, 4 N]` of the previous words."""
        if portable:
            embeddings = self.embedding(words)
            return embeddings, self.cell.project_words(embeddings)
        # Many hypotheses have few distinct words: each is projected once.
        distinct, place = tf.unique(words)
        distinct = self.embedding(distinct)
        return tf.gather(distinct, place), tf.gather(self.cell.project_words(distinct), place)

    def context_gates(
        self, attended: AttentionMemory, attention: AttentionOutput, kernel: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Computes the context's share of the LSTM's gates, `[B, 4 N]`; `kernel` as in the cell."""
        if attended.projected is None:
            return self.cell.project_context(attention.context, kernel)
        # The projection is linear, so the gate may come after it. G rows per image, as in `attend`.
        beta = tf.reshape(attention.beta, [tf.shape(attended.projected)[0], -1, 1])
        gates = tf.cast(beta, attended.projected.dtype) * attended.projected[:, tf.newaxis]
        return tf.reshape(gates, [-1, attended.projected.shape[-1]])

    def get_config(self) -> dict:
        """Returns the constructor arguments.

        Raises:
            ValueError: Keras has quantised the decoder; its parts would be made as before that.
        """
        # Keras quantises every dense layer of a model, this one included.
        if getattr(self.cell.word_projection, "quantization_mode", None) is not None:
            raise ValueError(
                "A quantised decoder cannot be made again from its configuration. Save the model "
                "before it is quantised and quantise it after loading, or call `save_weights`."
            )
        names = ("vocabulary_size", "embedding_dim", "attention_dim", "hidden_dim", "attends")
        names += ("initial_layers", "bottleneck_dim", "attention_previous_word")
        names += ("output_previous_word", "output_context", "output_tanh")
        names += ("annotation_dropout", "initial_dropout", "embedding_dropout")
        names += ("hidden_dropout", "output_dropout")
        config = {name: getattr(self, name) for name in names}
        return {**super().get_config(), **config, "gate": self.gate is not None}
