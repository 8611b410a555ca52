"""The RNN decoder: words and annotations in, distributions over the next word out.

Shapes: B batch, T words, L locations, D annotation width, N LSTM width, m embedding width,
K vocabulary.
"""

from __future__ import annotations

import keras
import tensorflow as tf

from sat_tf.layers.attention import Selection
from sat_tf.layers.attention_lstm import State
from sat_tf.layers.decoder_step import DecoderStep
from sat_tf.layers.decoder_types import AttentionMemory, AttentionOutput, DecoderOutput
from sat_tf.layers.dropout import dropout
from sat_tf.layers.input_checks import check_seed, check_words
from sat_tf.layers.unroll import batch_first, step_seeds, unroll
from sat_tf.ops.deferred_gradients import DeferredKernels


@keras.saving.register_keras_serializable(package="sat_tf")
class RNNDecoder(DecoderStep):
    """LSTM that attends to the annotations before each word (Sec. 3.1.2).

    Soft and hard attention are the same layer: they differ in the `selection` of the call. The
    decoder is differentiable once: gradients of gradients, such as a gradient penalty's, are wrong.

    A model, or a `Captioner`, that was quantised (`quantize("int8")`) is saved by `save_weights`
    and loaded into one that was quantised, too. Keras could not load the file of its `save`.

    Args:
        vocabulary_size: K.
        embedding_dim: Width m of the word embeddings.
        attention_dim: Width of the hidden layer of the attention MLP (eq. 4).
        hidden_dim: Width N of the LSTM.
        attends: False reads the mean annotation at every step, the baseline.
        initial_layers: Layers of the MLPs that give c_0 and h_0; 0 starts from zeros.
        bottleneck_dim: Width of a ReLU layer that projects the annotations before attention,
            context and initial state read them; None, as in the paper, for no such layer.
        gate: Multiply the context by the gating scalar, beta = sigmoid(f_beta(h[t-1])).
        attention_previous_word: Attention reads E y[t-1] beside h[t-1]. In the paper it does not,
            and so knows the words up to y[t-2] only, by way of h[t-1].
        output_previous_word: The deep output (eq. 7) reads the previous word.
        output_context: The deep output reads the context.
        output_tanh: The deep output has the tanh of the released code.
        annotation_dropout: Share dropped of the annotations, after the bottleneck; this and the
            following in [0, 1).
        initial_dropout: Share dropped inside the MLPs of the initial state.
        embedding_dropout: Share dropped of the embeddings.
        hidden_dropout: Share dropped of h[t] before the deep output.
        output_dropout: Share dropped of the hidden layer of the deep output.
        **kwargs: For `keras.layers.Layer`.

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
    ) -> DecoderOutput:
        check_words(words.shape, annotations.shape, captions)
        if seed is not None:
            check_seed(seed)
        else:
            draws = selection == "sample" or (training and self._drops)
            seed = self.default_seeds.draw() if draws else tf.zeros([2], tf.int32)
        # Steps fold their time, 0 or more, into the seed: dropout shares no draw with them.
        noise = tf.random.experimental.stateless_fold_in(seed, -1) if training else None
        attended, state = self.prepare_memory(annotations, noise)
        state = State(*(_side_by_side(part, captions * samples) for part in state))
        embeddings = dropout(self.embedding(words), self.embedding_dropout, noise, 2)
        word_gates = tf.transpose(self.cell.project_words(embeddings), [1, 0, 2])
        word_gates = _side_by_side(word_gates, samples, axis=1)
        if use_expectation is not None:
            use_expectation = _side_by_side(use_expectation, samples)
        words_read = (word_gates,)
        if self.attends and self.attention_previous_word:
            queries = tf.transpose(embeddings, [1, 0, 2])
            words_read += (_side_by_side(queries, samples, axis=1),)
        attention, hidden, before = self._unroll(
            attended, state, words_read, selection, seed, use_expectation
        )
        logits = self._read_out(hidden, attention.context, embeddings, noise, samples)
        return DecoderOutput(logits, *attention[1:], tf.cast(before, tf.float32))

    def compute_output_shape(self, annotations_shape: tuple, words_shape: tuple) -> DecoderOutput:
        """Returns the shapes of a call with one sample per caption."""
        words, locations = tuple(words_shape), annotations_shape[1] if self.attends else 1
        rest = (self.vocabulary_size,), (locations,), (), (), (self.hidden_dim,)
        return DecoderOutput(*((*words, *shape) for shape in rest))

    @property
    def _drops(self) -> bool:
        rates = (self.annotation_dropout, self.initial_dropout, self.embedding_dropout)
        return any((*rates, self.hidden_dropout, self.output_dropout))

    def _unroll(
        self,
        attended: AttentionMemory,
        first: State,
        words: tuple[tf.Tensor, ...],
        selection: Selection,
        seed: tf.Tensor,
        use_expectation: tf.Tensor | None,
    ) -> tuple[AttentionOutput, tf.Tensor, tf.Tensor]:
        """Runs all steps; returns attention, h[t] and h[t-1], `[B, T, ...]`.

        `words` are gates `[T, B, 4 N]` and, if attention reads them, embeddings `[T, B, m]`.
        """
        word_gates, *embeddings = words
        context_kernel, recurrent_kernel = self.cell.kernels()
        reads_context = attended.projected is None
        deferred = DeferredKernels([recurrent_kernel, *[context_kernel] * reads_context])
        seeds = step_seeds(seed, tf.shape(word_gates)[0])
        inputs = (deferred.tap(word_gates), seeds, *embeddings)

        def step(inputs, state):
            gates_t, seed_t, *word_t = inputs
            attention = self.attend(attended, state, selection, seed_t, use_expectation, *word_t)
            context = self.context_gates(attended, attention, *deferred.inside[1:])
            state = self.cell.step(gates_t, context, state, deferred.inside[0])
            return (attention, state.hidden), state

        (attention, hidden), _ = unroll(step, first, inputs, self._step_spec(attended))
        before = tf.concat([first.hidden[tf.newaxis], hidden[:-1]], axis=0)
        deferred.record(before, *[attention.context] * reads_context)
        return tf.nest.map_structure(batch_first, (attention, hidden, before))

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

    def _step_spec(self, attended: AttentionMemory) -> tuple[AttentionOutput, tf.TensorSpec]:
        locations = attended.annotations.shape[1]
        return (
            AttentionOutput(
                tf.TensorSpec([None, self.annotation_dim], self.compute_dtype),
                tf.TensorSpec([None, locations], tf.float32),
                tf.TensorSpec([None], tf.float32),
                tf.TensorSpec([None], tf.float32),
            ),
            tf.TensorSpec([None, self.hidden_dim], self.compute_dtype),
        )


def _side_by_side(rows: tf.Tensor, times: int, axis: int = 0) -> tf.Tensor:
    """Repeats every row M times, side by side: `[B, ...] -> [B M, ...]`."""
    return rows if times == 1 else tf.repeat(rows, times, axis=axis)
