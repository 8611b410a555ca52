"""Additive attention and the two ways of using it: soft and hard `phi`.

Shapes: B batch, L locations, D annotation width, A attention width, N LSTM width.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import keras
import tensorflow as tf

Selection = Literal["expectation", "sample", "argmax"]

_CACHE = 2**23  # float32 numbers that a processor's cache may hold
_PARTS = 8  # of more numbers than that


@keras.saving.register_keras_serializable(package="sat_tf")
class BahdanauAttention(keras.layers.Layer):
    """Alignment scores of every location for the present state (eq. 4).

    `e[t,i] = v . tanh(W_a a_i + W_h h[t-1] + b)`

    The hidden state is inside the tanh, so the weights over locations change with it; added
    outside, it would cancel in the softmax.

    Args:
        attention_dim: Width A of the hidden layer.

    Call arguments:
        hidden: `[B, N]`, h[t-1]; or `[B * G, N]`, G rows a picture side by side, as beam search
            has them.
        keys: `[B, L, A]`, from `keys(annotations)`; they do not depend on the state, so they are
            computed once.

    Output:
        `alignment_scores`, float32 `[B, L]` or `[B * G, L]`.

    References:
        Bahdanau et al. (2014), arXiv:1409.0473; Xu et al. (2015), eq. 4, arXiv:1502.03044.
    """

    def __init__(self, attention_dim: int, **kwargs) -> None:
        # Keys come back in float32 under every policy; the projections cast for themselves.
        super().__init__(autocast=False, **kwargs)
        if attention_dim < 1:
            raise ValueError(
                "Received an invalid value for argument `attention_dim`: expected a positive "
                f"integer, got {attention_dim}."
            )
        self.attention_dim = attention_dim
        policy = self.dtype_policy
        self.key_projection = keras.layers.Dense(attention_dim, dtype=policy, name="key_projection")
        self.query_projection = keras.layers.Dense(
            attention_dim, use_bias=False, dtype=policy, name="query_projection"
        )

    def build(self, hidden_dim: int, annotation_dim: int) -> None:
        """Make the weights for states of width N and annotations of width D."""
        self.query_projection.build((None, hidden_dim))
        self.key_projection.build((None, annotation_dim))
        self.score_vector = self.add_weight(
            name="score_vector", shape=(self.attention_dim,), initializer=_fan_in_uniform
        )
        self.built = True

    def keys(self, annotations: tf.Tensor) -> tf.Tensor:
        """`W_a a_i + b` for annotations `[B, L, D]`: float32 `[B, L, A]`."""
        return tf.cast(self.key_projection(annotations), tf.float32)

    def call(self, hidden: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
        """Equation 4, in float32 after the projections.

        Half as many bytes would not pay: tanh and its gradient are slower in bfloat16, and the
        product with `v` has to be summed in float32.
        """
        return self._scores(self._queries(hidden, keys), keys)

    def for_search(self, hidden: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
        """As the call, quicker on a processor where rows are many; its gradient would be slow.

        Keys plus queries of many rows are more than a cache holds: they are added, and multiplied
        with `v`, for a part of the pictures after another.
        """
        queries = self._queries(hidden, keys)
        if tf.config.list_physical_devices("GPU"):
            return self._scores(queries, keys)

        def in_parts() -> tf.Tensor:
            ends = tf.shape(keys)[0] * tf.range(_PARTS + 1) // _PARTS
            sizes = ends[1:] - ends[:-1]
            pairs = zip(tf.split(queries, sizes), tf.split(keys, sizes), strict=True)
            return tf.concat([self._scores(*pair) for pair in pairs], axis=0)

        floats = tf.size(queries, tf.int64) * tf.shape(keys, tf.int64)[1]
        return tf.cond(floats > _CACHE, in_parts, lambda: self._scores(queries, keys))

    def _queries(self, hidden: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
        """`W_h h`, by picture: float32 `[B, G, A]`."""
        return tf.cast(by_picture(self.query_projection(hidden), keys), tf.float32)

    def _scores(self, queries: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
        """`[B * G, L]`, of queries `[B, G, A]` and keys `[B, L, A]`."""
        # Axes are added by reshaping: the gradient of an index fills the whole tensor anew.
        activation = tf.tanh(tf.expand_dims(keys, 1) + tf.expand_dims(queries, 2))
        # As one matrix: TensorFlow 2.21's oneDNN product of a tensor of four axes, one of them
        # of size 1, with a vector writes past its end (tensorflow issue 117700).
        rows = tf.reshape(activation, [-1, self.attention_dim])
        scores = tf.linalg.matvec(rows, tf.cast(self.score_vector, tf.float32))
        return tf.reshape(scores, [-1, tf.shape(keys)[1]])

    def get_config(self) -> dict:
        """Constructor arguments."""
        return {**super().get_config(), "attention_dim": self.attention_dim}


def _fan_in_uniform(shape, dtype=None):
    """Uniform with the variance of a fan-in of `shape[0]`: `v` has no second axis."""
    limit = (3.0 / shape[0]) ** 0.5
    return keras.random.uniform(shape, -limit, limit, dtype=dtype)


class Glance(NamedTuple):
    """What one step of attention did."""

    alpha: tf.Tensor
    """float32 `[B, L]`, eq. 5."""
    weights: tf.Tensor
    """float32 `[B, L]` the context is taken with: alpha, or a one-hot location."""
    log_prob: tf.Tensor
    """float32 `[B]`, log p of the location drawn; differentiable; 0 where none was drawn."""


def glance(
    alignment_scores: tf.Tensor,
    selection: Selection = "expectation",
    seed: tf.Tensor | None = None,
    use_expectation: tf.Tensor | None = None,
) -> Glance:
    """Turn alignment scores into the weights of a context (eq. 5, 8, 13).

    Args:
        alignment_scores: float32 `[B, L]`.
        selection: `expectation` (soft attention, and hard attention read as its mean),
            `sample` (one location a row from the multinoulli) or `argmax`.
        seed: int32 `[2]`, stateless; needed by `sample`.
        use_expectation: bool `[B]`, rows which take the expectation although `selection` is
            `sample` (the paper's 0.5 switch); None for none.

    Returns:
        A `Glance`. No gradient flows through a one-hot choice.
    """
    alpha = tf.nn.softmax(alignment_scores)
    if selection == "expectation":
        return Glance(alpha, alpha, tf.zeros_like(alpha[:, 0]))
    if selection == "argmax":
        best = tf.one_hot(tf.argmax(alignment_scores, axis=-1), tf.shape(alpha)[-1])
        return Glance(alpha, best, tf.zeros_like(alpha[:, 0]))
    distribution = multinoulli(alignment_scores)
    drawn = tf.stop_gradient(distribution.sample(seed=seed))
    log_prob = distribution.log_prob(drawn)
    if use_expectation is None:
        return Glance(alpha, drawn, log_prob)
    return Glance(
        alpha,
        tf.where(use_expectation[:, tf.newaxis], alpha, drawn),
        tf.where(use_expectation, tf.zeros_like(log_prob), log_prob),
    )


def multinoulli(alignment_scores: tf.Tensor):
    """The distribution of the location `s_t` (eq. 8): `tfp.distributions.OneHotCategorical`."""
    # Imported here: TensorFlow Probability takes over a second to load and only hard
    # attention needs it.
    import tensorflow_probability as tfp

    return tfp.distributions.OneHotCategorical(logits=alignment_scores, dtype=tf.float32)


def context_vector(
    annotations: tf.Tensor, weights: tf.Tensor, columns: tf.Tensor | None = None
) -> tf.Tensor:
    """`phi`: `z = sum_i weights_i a_i` (eq. 9 with a one-hot, eq. 13 with alpha).

    Args:
        annotations: `[B, L, D]`.
        weights: `[B, L]`, or `[B * G, L]` for G rows a picture.
        columns: `[B, D, L]`, the same annotations transposed: the context is then taken from
            these, its gradient from the annotations.

    Returns:
        `[B, D]` or `[B * G, D]`, in the dtype of the annotations.
    """
    weights = by_picture(tf.cast(weights, annotations.dtype), annotations)
    if columns is None:
        context = tf.matmul(weights, annotations)
    else:
        context = _from_columns(columns)(weights, annotations)
    return tf.reshape(context, [-1, annotations.shape[-1]])


def _from_columns(columns: tf.Tensor):
    """`weights annotations` of `[B, G, L]` and `[B, L, D]`, from columns `[B, D, L]`.

    oneDNN is quickest in bfloat16 where both sides are read along their rows: forward those of the
    columns, backward those of the annotations.
    """

    @tf.custom_gradient
    def product(weights: tf.Tensor, annotations: tf.Tensor):
        def gradient(upstream: tf.Tensor):
            of_weights = tf.matmul(upstream, annotations, transpose_b=True)
            return of_weights, tf.matmul(weights, upstream, transpose_a=True)

        return tf.matmul(weights, columns, transpose_b=True), gradient

    return product


def by_picture(rows: tf.Tensor, pictures: tf.Tensor) -> tf.Tensor:
    """Group rows by the picture they belong to: `[B * G, X] -> [B, G, X]`, B from `pictures`."""
    return tf.reshape(rows, [tf.shape(pictures)[0], -1, rows.shape[-1]])


def attention_entropy(alignment_scores: tf.Tensor) -> tf.Tensor:
    """Entropy of alpha, nats: `[..., L] -> [...]`; differentiable and safe at zero."""
    log_alpha = tf.nn.log_softmax(alignment_scores)
    return -tf.reduce_sum(tf.exp(log_alpha) * log_alpha, axis=-1)


def entropy_share(alignment_scores: tf.Tensor) -> tf.Tensor:
    """Entropy of alpha over its greatest value, log L: `[..., L] -> [...]`; 1 is uniform.

    0 where there is a single location, for certain.
    """
    locations = tf.cast(tf.shape(alignment_scores)[-1], alignment_scores.dtype)
    return tf.math.divide_no_nan(attention_entropy(alignment_scores), tf.math.log(locations))
