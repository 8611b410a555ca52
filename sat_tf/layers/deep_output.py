"""The deep output: distributions over the next word from state, context and previous word.

Shapes: N LSTM width, D annotation width, m embedding width, K vocabulary.
"""

from __future__ import annotations

import keras
import tensorflow as tf

from sat_tf.fields import Fraction, PositiveInt, checked
from sat_tf.ops import DefaultSeeds, dropout


@keras.saving.register_keras_serializable(package="sat_tf")
class DeepOutput(keras.layers.Layer):
    """Logits of the next word (eq. 7), for one step or all at once.

    `p(y_t) ~ exp(L_o tanh(E y[t-1] + L_h h[t] + L_z z[t]))`

    Args:
        vocabulary_size: K.
        embedding_dim: Width m.
        previous_word: Add `E y[t-1]`.
        context: Add `L_z z[t]`.
        tanh: Apply the tanh, which the released code has and eq. 7 has not.
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

    compute_output_spec = keras.Operation.compute_output_spec  # as in `BahdanauAttention`

    @checked
    def __init__(
        self,
        vocabulary_size: PositiveInt,
        embedding_dim: PositiveInt = 512,
        previous_word: bool = True,
        context: bool = True,
        tanh: bool = True,
        hidden_dropout: Fraction = 0.0,
        dropout: Fraction = 0.0,
        **kwargs,
    ) -> None:
        super().__init__(**kwargs)
        self.vocabulary_size, self.embedding_dim = vocabulary_size, embedding_dim
        self.previous_word, self.context, self.tanh = previous_word, context, tanh
        self.hidden_dropout, self.dropout = hidden_dropout, dropout
        self.default_seeds = DefaultSeeds()
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

    def build(self, hidden_shape: tuple, context_shape: tuple) -> None:
        self.hidden_projection.build(hidden_shape)
        if self.context:
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

    def compute_output_shape(
        self, hidden_shape: tuple, context_shape: tuple, embeddings_shape: tuple
    ) -> tuple:
        del context_shape, embeddings_shape
        return (*hidden_shape[:-1], self.vocabulary_size)

    def project_context(self, context: tf.Tensor) -> tf.Tensor:
        """Computes `L_z z`, `[..., D] -> [..., m]`: linear. `[..., 0]` if it is not read."""
        return self.context_projection(context) if self.context else context[..., :0]

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
        outputs = self.hidden_projection(hidden)
        if self.context:
            outputs += projected_context
        if self.previous_word:
            outputs += tf.cast(embeddings, outputs.dtype)
        if self.tanh:
            outputs = tf.tanh(outputs)
        outputs = dropout(outputs, self.dropout, seed, 4, shared_axis)
        return tf.cast(self.word_projection(outputs), tf.float32)

    def get_config(self) -> dict:
        names = ("vocabulary_size", "embedding_dim", "previous_word", "context", "tanh")
        names += ("hidden_dropout", "dropout")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}
