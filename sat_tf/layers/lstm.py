"""The decoder's network of Sec. 3.1.2 but for attention: first state, LSTM, deep output, the loop.

Shapes: B batch, T steps, D annotation width, N LSTM width, m embedding width, K vocabulary.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from sat_tf.ops import DefaultSeeds, dropout
from sat_tf.util.errors import invalid_value
from sat_tf.util.fields import Fraction, NonNegativeInt, PositiveInt, checked

Nest = Any


class State(NamedTuple):
    """State of the LSTM."""

    hidden: tf.Tensor
    """`[B, N]`, h, in the policy's compute dtype."""
    cell: tf.Tensor
    """`[B, N]`, c; the decoder keeps it in float32."""


@keras.saving.register_keras_serializable(package="sat_tf")
class InitialState(keras.layers.Layer):
    """State of the LSTM from the mean annotation (Sec. 3.1.2).

    `c_0 = f_init_c(mean_i a_i)`, `h_0 = f_init_h(mean_i a_i)`

    Args:
        hidden_dim: Width N.
        layers: Layers of each MLP: ReLU layers of the annotations' width, then one tanh layer.
            0 starts from zeros, so that an image is seen through the context alone.
        dropout: Share dropped of the ReLU layers, in [0, 1).
        **kwargs: For `keras.layers.Layer`.

    Call arguments:
        mean_annotation: `[B, D]`.
        training: Apply dropout.
        seed: int32 `[2]` of dropout; None draws one.

    Output:
        `State`: hidden in the policy's compute dtype, cell in float32, `[B, N]` each.

    Example:
        >>> InitialState(hidden_dim=16)(np.zeros([2, 32])).hidden.shape
        TensorShape([2, 16])

    References:
        Xu et al. (2015), Sec. 3.1.2, arXiv:1502.03044.
    """

    @checked
    def __init__(
        self,
        hidden_dim: PositiveInt = 512,
        layers: NonNegativeInt = 1,
        dropout: Fraction = 0.0,
        **kwargs,
    ) -> None:
        super().__init__(**kwargs)
        self.hidden_dim, self.layers, self.dropout = hidden_dim, layers, dropout
        self.default_seeds = DefaultSeeds()
        # "memory" is the cell c: paths of weights in saved files have this name.
        self.hidden_mlp, self.memory_mlp = self._mlp("hidden"), self._mlp("memory")

    def _mlp(self, name: str) -> list[keras.layers.Layer]:
        if self.layers == 0:
            return []
        policy = self.dtype_policy
        relu = [_SquareDense(dtype=policy, name=f"{name}_{n}") for n in range(self.layers - 1)]
        out = keras.layers.Dense(self.hidden_dim, "tanh", dtype=policy, name=f"{name}_out")
        return [*relu, out]

    def build(self, mean_annotation_shape: tuple) -> None:
        for layer in (*self.hidden_mlp, *self.memory_mlp):
            layer.build(mean_annotation_shape)

    def call(
        self, mean_annotation: tf.Tensor, training: bool = False, seed: tf.Tensor | None = None
    ) -> State:
        if self.layers == 0:
            zeros = tf.zeros([tf.shape(mean_annotation)[0], self.hidden_dim])
            return State(tf.cast(zeros, mean_annotation.dtype), zeros)
        if not training:
            seed = None
        elif seed is None and self.dropout:
            seed = self.default_seeds.draw()

        def apply(mlp: list[keras.layers.Layer], salt: int) -> tf.Tensor:
            outputs = mean_annotation
            for index, layer in enumerate(mlp[:-1]):
                outputs = dropout(layer(outputs), self.dropout, seed, salt + index)
            return mlp[-1](outputs)

        hidden, cell = apply(self.hidden_mlp, salt=200), apply(self.memory_mlp, salt=100)
        return State(hidden, tf.cast(cell, tf.float32))

    def get_config(self) -> dict:
        names = ("hidden_dim", "layers", "dropout")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


class _SquareDense(keras.layers.Layer):
    """ReLU layer as wide as its input."""

    def build(self, shape: tuple) -> None:
        self.dense = keras.layers.Dense(shape[-1], "relu", dtype=self.dtype_policy)
        self.dense.build(shape)

    def call(self, inputs):
        return self.dense(inputs)


@keras.saving.register_keras_serializable(package="sat_tf")
class AttentionLSTMCell(keras.layers.Layer):
    """LSTM cell with gates that also read the context (eq. 1-3).

    `(i, f, o, g) = T (E y[t-1], h[t-1], z[t]); c = f c[t-1] + i g; h = o tanh(c)`

    `keras.layers.RNN` takes it. Another loop can project all words at once before it
    (`project_words`), then call `step` with the projections.

    Args:
        hidden_dim: Width N.
        embedding_dim: Width m of a word; the rest of the input is the context.
        **kwargs: For `keras.layers.Layer`.

    Call arguments:
        inputs: `[B, m + D]`, the word's embedding and the context, side by side.
        states: `[h, c]` of t-1, `[B, N]` each.

    Output:
        `(h, [h, c])` of t, in the dtypes of the states that came. Sums are taken in float32.

    Example:
        >>> cell = AttentionLSTMCell(hidden_dim=16, embedding_dim=8)
        >>> keras.layers.RNN(cell)(np.zeros([2, 5, 8 + 32])).shape
        TensorShape([2, 16])

    References:
        Xu et al. (2015), eq. 1-3, arXiv:1502.03044.
    """

    @checked
    def __init__(
        self, hidden_dim: PositiveInt = 512, embedding_dim: PositiveInt = 512, **kwargs
    ) -> None:
        # A float32 cell stays what it is; the projections cast their inputs.
        super().__init__(autocast=False, **kwargs)
        self.hidden_dim, self.embedding_dim = hidden_dim, embedding_dim
        gates = functools.partial(keras.layers.Dense, 4 * hidden_dim, dtype=self.dtype_policy)
        self.word_projection = gates(name="word_projection")
        self.context_projection = gates(use_bias=False, name="context_projection")
        self.recurrent_projection = gates(
            use_bias=False, kernel_initializer=_OrthogonalGates(), name="recurrent_projection"
        )

    @property
    def state_size(self) -> list[int]:
        """Widths of h and c; the output, h, has the first."""
        return [self.hidden_dim, self.hidden_dim]

    def build(self, inputs_shape: tuple) -> None:
        context_dim = inputs_shape[-1] - self.embedding_dim
        if context_dim < 1:
            expected = f"more columns than embedding_dim={self.embedding_dim}: a word and a context"
            raise invalid_value("inputs", expected, f"shape {inputs_shape}")
        for projection, width in (
            (self.word_projection, self.embedding_dim),
            (self.context_projection, context_dim),
            (self.recurrent_projection, self.hidden_dim),
        ):
            if not projection.built:  # `project_words` and others may have been called before
                projection.build((None, width))

    def call(
        self, inputs: tf.Tensor, states: Sequence[tf.Tensor]
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        word, context = inputs[..., : self.embedding_dim], inputs[..., self.embedding_dim :]
        state = self.step(self.project_words(word), self.project_context(context), State(*states))
        return state.hidden, list(state)

    def project_words(self, embeddings: tf.Tensor) -> tf.Tensor:
        """Computes the words' share of the gates, `[..., m] -> [..., 4 N]`, with the bias."""
        return self.word_projection(embeddings)

    def project_context(self, context: tf.Tensor) -> tf.Tensor:
        """Computes the context's share of the gates, `[..., D] -> [..., 4 N]`: linear, no bias."""
        return self.context_projection(context)

    def step(self, word_gates: tf.Tensor, context_gates: tf.Tensor, state: State) -> State:
        """Advances the state by one step, from shares of the gates, `[B, 4 N]` each."""
        recurrent = self.recurrent_projection(state.hidden)
        gates = tf.cast(word_gates + context_gates + recurrent, tf.float32)
        input_gate, forget_gate, output_gate, candidate = tf.split(gates, 4, axis=-1)
        kept = tf.sigmoid(forget_gate) * tf.cast(state.cell, tf.float32)
        cell = kept + tf.sigmoid(input_gate) * tf.tanh(candidate)
        hidden = tf.sigmoid(output_gate) * tf.tanh(cell)
        return State(tf.cast(hidden, state.hidden.dtype), tf.cast(cell, state.cell.dtype))

    def get_config(self) -> dict:
        config = {"hidden_dim": self.hidden_dim, "embedding_dim": self.embedding_dim}
        return {**super().get_config(), **config}


@keras.saving.register_keras_serializable(package="sat_tf")
class _OrthogonalGates(keras.initializers.Initializer):
    """One orthogonal square matrix per gate, side by side, as in the released code."""

    def __call__(self, shape, dtype=None):
        size, gates = shape[0], shape[1] // shape[0]
        make = keras.initializers.Orthogonal(seed=keras.random.SeedGenerator())
        return tf.concat([make((size, size), dtype=dtype) for _ in range(gates)], axis=1)


def unroll(
    step: Callable[[Nest, Nest], tuple[Nest, Nest]], state: Nest, inputs: Nest, outputs: Nest
) -> tuple[Nest, Nest]:
    """Runs a step function over time (a `tf.while_loop` with stacked outputs); differentiable.

    `keras.layers.RNN` takes no constants, such as annotations, in Keras 3 and returns one tensor
    per step.

    Args:
        step: `(inputs_t, state) -> (outputs_t, state)`; shapes of the state do not change.
        state: Nest of `[B, ...]`, the state before the first step.
        inputs: Nest of `[T, ...]`, time first.
        outputs: Nest of `tf.TensorSpec`: dtype and shape `[B, ...]` of one step's outputs.

    Returns:
        The outputs stacked over time, nest of `[T, B, ...]`, and the last state.
    """
    leaves = [tf.convert_to_tensor(leaf) for leaf in tf.nest.flatten(inputs)]
    steps = tf.shape(leaves[0])[0]
    arrays = [tf.TensorArray(leaf.dtype, steps).unstack(leaf) for leaf in leaves]
    written = [
        tf.TensorArray(spec.dtype, steps, element_shape=spec.shape)
        for spec in tf.nest.flatten(outputs)
    ]

    def body(time, state, written):
        inputs_t = tf.nest.pack_sequence_as(inputs, [array.read(time) for array in arrays])
        outputs_t, state = step(inputs_t, state)
        tf.nest.assert_same_structure(outputs, outputs_t)
        flat = tf.nest.flatten(outputs_t)
        return time + 1, state, [a.write(time, o) for a, o in zip(written, flat, strict=True)]

    _, state, written = tf.while_loop(
        lambda time, *_: time < steps,
        body,
        (tf.constant(0), state, written),
        maximum_iterations=steps,
    )
    return tf.nest.pack_sequence_as(outputs, [array.stack() for array in written]), state


def batch_first(outputs: tf.Tensor) -> tf.Tensor:
    """Transposes `[T, B, ...]`, from `unroll`, to `[B, T, ...]`."""
    return tf.transpose(outputs, [1, 0, *range(2, outputs.shape.rank)])


@keras.saving.register_keras_serializable(package="sat_tf")
class DeepOutput(keras.layers.Layer):
    """Logits of the next word (eq. 7), for one step or all at once.

    `p(y_t) ~ exp(L_o tanh(E y[t-1] + L_h h[t] + L_z z[t]))`, with the tanh of the released code.

    Args:
        vocabulary_size: K.
        embedding_dim: Width m.
        hidden_dropout: Share dropped of h[t], in [0, 1).
        dropout: Share dropped of the hidden layer, in [0, 1).
        **kwargs: For `keras.layers.Layer`.

    Call arguments:
        hidden: `[..., N]`.
        context: `[..., D]`.
        embeddings: `[..., m]`, of the previous words.
        training: Apply dropout.
        seed: int32 `[2]` of dropout; None draws one.

    Output:
        Logits, float32 `[..., K]`.

    Example:
        >>> layer = DeepOutput(vocabulary_size=100, embedding_dim=8)
        >>> layer(np.zeros([2, 16]), np.zeros([2, 32]), np.zeros([2, 8])).shape
        TensorShape([2, 100])

    References:
        Xu et al. (2015), eq. 7, arXiv:1502.03044; Pascanu et al. (2014), arXiv:1312.6026.
    """

    @checked
    def __init__(
        self,
        vocabulary_size: PositiveInt,
        embedding_dim: PositiveInt = 512,
        hidden_dropout: Fraction = 0.0,
        dropout: Fraction = 0.0,
        **kwargs,
    ) -> None:
        super().__init__(**kwargs)
        self.vocabulary_size, self.embedding_dim = vocabulary_size, embedding_dim
        self.hidden_dropout, self.dropout = hidden_dropout, dropout
        self.default_seeds = DefaultSeeds()
        dense = functools.partial(keras.layers.Dense, dtype=self.dtype_policy)
        self.hidden_projection = dense(embedding_dim, name="hidden_projection")
        self.context_projection = dense(embedding_dim, use_bias=False, name="context_projection")
        self.word_projection = dense(vocabulary_size, name="word_projection")

    def build(self, hidden_shape: tuple, context_shape: tuple) -> None:
        self.hidden_projection.build(hidden_shape)
        self.context_projection.build(context_shape)
        self.word_projection.build((None, self.embedding_dim))

    def call(
        self,
        hidden: tf.Tensor,
        context: tf.Tensor,
        embeddings: tf.Tensor,
        training: bool = False,
        seed: tf.Tensor | None = None,
    ) -> tf.Tensor:
        if not training:
            seed = None
        elif seed is None and (self.hidden_dropout or self.dropout):
            seed = self.default_seeds.draw()
        return self.logits(hidden, self.project_context(context), embeddings, seed)

    def project_context(self, context: tf.Tensor) -> tf.Tensor:
        """Computes `L_z z`, `[..., D] -> [..., m]`: linear."""
        return self.context_projection(context)

    def logits(
        self,
        hidden: tf.Tensor,
        projected_context: tf.Tensor,
        embeddings: tf.Tensor,
        seed: tf.Tensor | None = None,
        shared_axis: int | None = None,
    ) -> tf.Tensor:
        """Computes eq. 7 from a projected context.

        Args:
            hidden: `[..., N]`.
            projected_context: From `project_context`.
            embeddings: `[..., m]`.
            seed: int32 `[2]` of dropout; None applies none.
            shared_axis: Axis along which all have one dropout mask; None for no axis.

        Returns:
            Logits, float32 `[..., K]`.
        """
        hidden = dropout(hidden, self.hidden_dropout, seed, 3, shared_axis)
        outputs = self.hidden_projection(hidden) + projected_context
        outputs = tf.tanh(outputs + tf.cast(embeddings, outputs.dtype))
        outputs = dropout(outputs, self.dropout, seed, 4, shared_axis)
        return tf.cast(self.word_projection(outputs), tf.float32)

    def get_config(self) -> dict:
        names = ("vocabulary_size", "embedding_dim", "hidden_dropout", "dropout")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}
