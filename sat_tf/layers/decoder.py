"""The decoder's parts: attention LSTM cell, initial state, gating scalar, deep output.

Shapes: B batch, T words, L locations, D annotation width, N LSTM width, m embedding width,
K vocabulary.
"""

from __future__ import annotations

from typing import NamedTuple

import keras
import tensorflow as tf

from sat_tf.layers.dropout import dropout


class State(NamedTuple):
    """State of the LSTM."""

    hidden: tf.Tensor
    """`[B, N]`, h."""
    memory: tf.Tensor
    """`[B, N]`, c."""


@keras.saving.register_keras_serializable(package="sat_tf")
class AttentionLSTMCell(keras.layers.Layer):
    """LSTM whose gates also read the context (eq. 1-3).

    `(i, f, o, g) = T (E y[t-1], h[t-1], z[t]); c = f c[t-1] + i g; h = o tanh(c)`

    The products with the word and the context are the caller's to take (`project_words`,
    `project_context`): what does not depend on the state is projected outside the loop.

    Args:
        hidden_dim: Width N.

    Call arguments:
        words: `[B, 4 N]`, one step of `project_words`.
        context: `[B, 4 N]`, `project_context` of z[t].
        state: `State`, of t-1.
        recurrent_kernel: `[N, 4 N]` to use instead of the layer's own, in a loop which takes its
            gradient elsewhere.

    Output:
        `State` of t.

    References:
        Xu et al. (2015), eq. 1-3, arXiv:1502.03044.
    """

    def __init__(self, hidden_dim: int, **kwargs) -> None:
        super().__init__(**kwargs)
        self.hidden_dim, policy = hidden_dim, self.dtype_policy
        self.word_projection = keras.layers.Dense(
            4 * hidden_dim, dtype=policy, name="word_projection"
        )
        self.context_projection = keras.layers.Dense(
            4 * hidden_dim, use_bias=False, dtype=policy, name="context_projection"
        )
        self.recurrent_projection = keras.layers.Dense(
            4 * hidden_dim,
            use_bias=False,
            kernel_initializer=_OrthogonalGates(),
            dtype=policy,
            name="recurrent_projection",
        )

    def build(self, embedding_dim: int, annotation_dim: int) -> None:
        """Make the weights for words of width m and contexts of width D."""
        self.word_projection.build((None, embedding_dim))
        self.context_projection.build((None, annotation_dim))
        self.recurrent_projection.build((None, self.hidden_dim))
        self.built = True

    def project_words(self, embeddings: tf.Tensor) -> tf.Tensor:
        """`[..., m] -> [..., 4 N]`: the words' share of the gates, with the bias."""
        return self.word_projection(embeddings)

    def project_context(self, context: tf.Tensor, kernel: tf.Tensor | None = None) -> tf.Tensor:
        """`[..., D] -> [..., 4 N]`: the context's share of the gates; linear, without a bias."""
        return self.context_projection(context) if kernel is None else tf.matmul(context, kernel)

    def kernels(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Those of context `[D, 4 N]` and state `[N, 4 N]`, in the dtype of the products."""
        layers = (self.context_projection, self.recurrent_projection)
        return tuple(tf.cast(layer.kernel, self.compute_dtype) for layer in layers)

    def call(
        self,
        words: tf.Tensor,
        context: tf.Tensor,
        state: State,
        recurrent_kernel: tf.Tensor | None = None,
    ) -> State:
        """Equations 1-3; the memory is kept in float32."""
        if recurrent_kernel is None:
            recurrent = self.recurrent_projection(state.hidden)
        else:
            recurrent = tf.matmul(state.hidden, recurrent_kernel)
        gates = words + context + recurrent
        input_gate, forget_gate, output_gate, candidate = tf.split(
            tf.cast(gates, tf.float32), 4, axis=-1
        )
        memory = tf.sigmoid(forget_gate) * state.memory + tf.sigmoid(input_gate) * tf.tanh(
            candidate
        )
        hidden = tf.sigmoid(output_gate) * tf.tanh(memory)
        return State(tf.cast(hidden, state.hidden.dtype), memory)

    def get_config(self) -> dict:
        """Constructor arguments."""
        return {**super().get_config(), "hidden_dim": self.hidden_dim}


@keras.saving.register_keras_serializable(package="sat_tf")
class _OrthogonalGates(keras.initializers.Initializer):
    """One orthogonal square matrix a gate, side by side, as in the released code."""

    def __call__(self, shape, dtype=None):
        size, gates = shape[0], shape[1] // shape[0]
        make = keras.initializers.Orthogonal(seed=keras.random.SeedGenerator())
        return tf.concat([make((size, size), dtype=dtype) for _ in range(gates)], axis=1)


@keras.saving.register_keras_serializable(package="sat_tf")
class InitialState(keras.layers.Layer):
    """`c_0 = f_init_c(mean_i a_i)`, `h_0 = f_init_h(mean_i a_i)` (Sec. 3.1.2).

    Args:
        hidden_dim: Width N.
        layers: Layers of each MLP; those before the last are ReLU layers of the annotations'
            width, the last is a tanh. 0 starts from zeros: what is said of a picture then has to
            come through the context.
        dropout: Share dropped of the hidden layers.

    Call arguments:
        mean_annotation: `[B, D]`.
        seed: int32 `[2]`, or None at inference.

    Output:
        `State`.
    """

    def __init__(self, hidden_dim: int, layers: int = 1, dropout: float = 0.0, **kwargs) -> None:
        super().__init__(**kwargs)
        self.hidden_dim, self.layers, self.dropout = hidden_dim, layers, dropout
        self.hidden_mlp = self._mlp("hidden")
        self.memory_mlp = self._mlp("memory")

    def _mlp(self, name: str) -> list[keras.layers.Layer]:
        if self.layers == 0:
            return []
        # The widths of the ReLU layers are known at build: they are those of the annotations.
        policy = self.dtype_policy
        relu = [
            _SquareDense(dtype=policy, name=f"{name}_{index}") for index in range(self.layers - 1)
        ]
        out = keras.layers.Dense(self.hidden_dim, "tanh", dtype=policy, name=f"{name}_out")
        return [*relu, out]

    def build(self, shape) -> None:
        """Make the weights for annotations of width `shape[-1]`."""
        for layer in (*self.hidden_mlp, *self.memory_mlp):
            layer.build(shape)
        self.built = True

    def call(self, mean_annotation: tf.Tensor, seed: tf.Tensor | None = None) -> State:
        """Both MLPs."""
        if self.layers == 0:
            zeros = tf.zeros([tf.shape(mean_annotation)[0], self.hidden_dim])
            return State(tf.cast(zeros, mean_annotation.dtype), zeros)
        hidden = self._apply(self.hidden_mlp, mean_annotation, seed, salt=200)
        memory = self._apply(self.memory_mlp, mean_annotation, seed, salt=100)
        return State(hidden, tf.cast(memory, tf.float32))

    def _apply(self, mlp, outputs, seed, salt):
        for index, layer in enumerate(mlp):
            outputs = layer(outputs)
            if index < len(mlp) - 1:
                outputs = dropout(outputs, self.dropout, seed, salt + index)
        return outputs

    def get_config(self) -> dict:
        """Constructor arguments."""
        return {
            **super().get_config(),
            "hidden_dim": self.hidden_dim,
            "layers": self.layers,
            "dropout": self.dropout,
        }


class _SquareDense(keras.layers.Layer):
    """ReLU layer as wide as its input."""

    def build(self, shape) -> None:
        self.dense = keras.layers.Dense(shape[-1], "relu", dtype=self.dtype_policy)
        self.dense.build(shape)
        self.built = True

    def call(self, inputs):
        return self.dense(inputs)


@keras.saving.register_keras_serializable(package="sat_tf")
class DeepOutput(keras.layers.Layer):
    """Logits of the next word (eq. 7), for all steps at once.

    `p(y_t) ~ exp(L_o tanh(E y[t-1] + L_h h[t] + L_z z[t]))`

    Args:
        vocabulary_size: K.
        embedding_dim: Width m.
        previous_word: Add `E y[t-1]`.
        context: Add `L_z z[t]`.
        tanh: Apply the tanh, which the released code has and eq. 7 has not.
        hidden_dropout: Share dropped of h[t].
        dropout: Share dropped of the hidden layer.

    Call arguments:
        hidden: `[..., N]`.
        context: `[..., D]`.
        embeddings: `[..., m]`, of the previous words.
        seed: int32 `[2]`, or None at inference.
        shared_axis: Axis along which all have one dropout mask.
        projected: `context` is what `project_context` made of it.

    Output:
        Logits, float32 `[..., K]`.

    References:
        Xu et al. (2015), eq. 7, arXiv:1502.03044; Pascanu et al. (2014), arXiv:1312.6026.
    """

    def __init__(
        self,
        vocabulary_size: int,
        embedding_dim: int,
        previous_word: bool = True,
        context: bool = True,
        tanh: bool = True,
        hidden_dropout: float = 0.0,
        dropout: float = 0.0,
        **kwargs,
    ) -> None:
        super().__init__(**kwargs)
        self.vocabulary_size, self.embedding_dim = vocabulary_size, embedding_dim
        self.previous_word, self.context, self.tanh = previous_word, context, tanh
        self.hidden_dropout, self.dropout = hidden_dropout, dropout
        policy = self.dtype_policy
        self.hidden_projection = keras.layers.Dense(
            embedding_dim, dtype=policy, name="hidden_projection"
        )
        self.context_projection = keras.layers.Dense(
            embedding_dim, use_bias=False, dtype=policy, name="context_projection"
        )
        self.word_projection = keras.layers.Dense(
            vocabulary_size, dtype=policy, name="word_projection"
        )

    def build(self, hidden_dim: int, annotation_dim: int) -> None:
        """Make the weights for states of width N and contexts of width D."""
        self.hidden_projection.build((None, hidden_dim))
        if self.context:
            self.context_projection.build((None, annotation_dim))
        self.word_projection.build((None, self.embedding_dim))
        self.built = True

    def project_context(self, context: tf.Tensor) -> tf.Tensor:
        """`L_z z`, `[..., D] -> [..., m]`; linear. `[..., 0]` where the context is not read."""
        return self.context_projection(context) if self.context else context[..., :0]

    def call(
        self,
        hidden: tf.Tensor,
        context: tf.Tensor,
        embeddings: tf.Tensor,
        seed: tf.Tensor | None = None,
        shared_axis: int | None = None,
        projected: bool = False,
    ) -> tf.Tensor:
        """Equation 7 with the switches of the constructor."""
        hidden = dropout(hidden, self.hidden_dropout, seed, 3, shared_axis)
        outputs = self.hidden_projection(hidden)
        if self.context:
            outputs += context if projected else self.project_context(context)
        if self.previous_word:
            outputs += tf.cast(embeddings, outputs.dtype)
        if self.tanh:
            outputs = tf.tanh(outputs)
        outputs = dropout(outputs, self.dropout, seed, 4, shared_axis)
        return tf.cast(self.word_projection(outputs), tf.float32)

    def get_config(self) -> dict:
        """Constructor arguments."""
        return {
            **super().get_config(),
            "vocabulary_size": self.vocabulary_size,
            "embedding_dim": self.embedding_dim,
            "previous_word": self.previous_word,
            "context": self.context,
            "tanh": self.tanh,
            "hidden_dropout": self.hidden_dropout,
            "dropout": self.dropout,
        }
