"""The decoder's state before the first word.

Shapes: B batch, D annotation width, N LSTM width.
"""

from __future__ import annotations

import keras
import tensorflow as tf

from sat_tf.errors import dropout_rate, invalid_value, positive
from sat_tf.layers.attention_lstm import State
from sat_tf.layers.dropout import DefaultSeeds, dropout
from sat_tf.layers.traced import TracedOutputs


@keras.saving.register_keras_serializable(package="sat_tf")
class InitialState(TracedOutputs, keras.layers.Layer):
    """State of the LSTM from the mean annotation (Sec. 3.1.2).

    `c_0 = f_init_c(mean_i a_i)`, `h_0 = f_init_h(mean_i a_i)`

    Args:
        hidden_dim: Width N.
        layers: Layers of each MLP: ReLU layers of the annotations' width, then one tanh layer.
            0 starts from zeros, so that all that is said of an image comes through the context.
        dropout: Share dropped of the ReLU layers, in [0, 1).
        **kwargs: For `keras.layers.Layer`.

    Call arguments:
        mean_annotation: `[B, D]`.
        training: Apply dropout.
        seed: int32 `[2]` of dropout; None draws one.

    Output:
        `State`: hidden in the policy's compute dtype, memory in float32, `[B, N]` each.

    Example:
        >>> InitialState(hidden_dim=16)(np.zeros([2, 32])).hidden.shape
        TensorShape([2, 16])

    References:
        Xu et al. (2015), Sec. 3.1.2, arXiv:1502.03044.
    """

    def __init__(
        self, hidden_dim: int = 512, layers: int = 1, dropout: float = 0.0, **kwargs
    ) -> None:
        super().__init__(**kwargs)
        if layers < 0:
            raise invalid_value("layers", "an integer of at least 0", layers)
        self.hidden_dim, self.layers = positive("hidden_dim", hidden_dim), layers
        self.dropout = dropout_rate("dropout", dropout)
        self.default_seeds = DefaultSeeds()
        self.hidden_mlp = self._mlp("hidden")
        self.memory_mlp = self._mlp("memory")

    def _mlp(self, name: str) -> list[keras.layers.Layer]:
        if self.layers == 0:
            return []
        policy = self.dtype_policy
        relu = [
            _SquareDense(dtype=policy, name=f"{name}_{index}") for index in range(self.layers - 1)
        ]
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
        rate = self.dropout if training else 0.0
        if rate and seed is None:
            seed = self.default_seeds.draw()
        hidden = _apply(self.hidden_mlp, mean_annotation, rate, seed, salt=200)
        memory = _apply(self.memory_mlp, mean_annotation, rate, seed, salt=100)
        return State(hidden, tf.cast(memory, tf.float32))

    def compute_output_shape(self, mean_annotation_shape: tuple) -> State:
        shape = (mean_annotation_shape[0], self.hidden_dim)
        return State(shape, shape)

    def get_config(self) -> dict:
        config = {"hidden_dim": self.hidden_dim, "layers": self.layers, "dropout": self.dropout}
        return {**super().get_config(), **config}


def _apply(mlp, outputs, rate, seed, salt):
    """Applies the layers of an MLP, with dropout after all but the last."""
    for index, layer in enumerate(mlp):
        outputs = layer(outputs)
        if index < len(mlp) - 1:
            outputs = dropout(outputs, rate, seed, salt + index)
    return outputs


class _SquareDense(keras.layers.Layer):
    """ReLU layer as wide as its input."""

    def build(self, shape: tuple) -> None:
        self.dense = keras.layers.Dense(shape[-1], "relu", dtype=self.dtype_policy)
        self.dense.build(shape)

    def call(self, inputs):
        return self.dense(inputs)
