"""Additive attention and its two uses: soft and hard `phi`.

Shapes: B images, G rows per image, L locations, D annotation width, A attention width, N LSTM
width.
"""

from __future__ import annotations

import functools
import math
from typing import Literal, NamedTuple, get_args

import keras
import tensorflow as tf

from sat_tf.util.errors import invalid_value
from sat_tf.util.fields import PositiveInt, checked

Selection = Literal["expectation", "sample", "argmax", "uniform"]


@keras.saving.register_keras_serializable(package="sat_tf")
class BahdanauAttention(keras.layers.Layer):
    """Scores every location for the current state (eq. 4).

    `e[t,i] = v . tanh(W_a a_i + W_h h[t-1] + b)`

    The hidden state is inside the tanh, so the weights over locations change with it; added
    outside, it would cancel in the softmax.

    Args:
        attention_dim: Width A of the hidden layer.
        **kwargs: For `keras.layers.Layer`.

    Call arguments:
        hidden: `[B, N]`, h[t-1]; or `[B * G, N]`, the G rows of an image side by side, as in beam
            search.
        annotations: `[B, L, D]`.
        keys: float32 `[B, L, A]`, `layer.keys(annotations)` if it is at hand: it does not depend on
            the state. None computes it.

    Output:
        Alignment scores, float32 `[B, L]` or `[B * G, L]`; their softmax is alpha (eq. 5).

    Example:
        >>> scores = BahdanauAttention(8)(np.zeros([2, 16]), np.zeros([2, 49, 32]))
        >>> scores.shape
        TensorShape([2, 49])

    References:
        Bahdanau et al. (2014), arXiv:1409.0473; Xu et al. (2015), eq. 4, arXiv:1502.03044.
    """

    @checked
    def __init__(self, attention_dim: PositiveInt = 512, **kwargs) -> None:
        # Keys are float32 under every policy; the projections cast their inputs.
        super().__init__(autocast=False, **kwargs)
        self.attention_dim = attention_dim
        dense = functools.partial(keras.layers.Dense, attention_dim, dtype=self.dtype_policy)
        self.key_projection = dense(name="key_projection")
        self.query_projection = dense(use_bias=False, name="query_projection")

    def build(self, hidden_shape: tuple, annotations_shape: tuple | None) -> None:
        self.query_projection.build(hidden_shape)
        # `keys` may have been called before, or keys of another layer be given.
        if not self.key_projection.built and annotations_shape is not None:
            self.key_projection.build(annotations_shape)
        self.score_vector = self.add_weight(
            name="score_vector", shape=(self.attention_dim,), initializer=_fan_in_uniform
        )

    def keys(self, annotations: tf.Tensor) -> tf.Tensor:
        """Computes `W_a a_i + b` of annotations `[B, L, D]`: float32 `[B, L, A]`."""
        return tf.cast(self.key_projection(annotations), tf.float32)

    def call(
        self, hidden: tf.Tensor, annotations: tf.Tensor, keys: tf.Tensor | None = None
    ) -> tf.Tensor:
        return self.scores(hidden, self.keys(annotations) if keys is None else keys)

    def scores(self, hidden: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
        """Computes eq. 4 from keys, in float32 after the projections.

        Half as many bytes would not pay: tanh and its gradient are slower in bfloat16, and the
        product with `v` has to be summed in float32.
        """
        if not self.built:
            self.build(hidden.shape, None)
        queries = tf.cast(by_image(self.query_projection(hidden), keys), tf.float32)
        return additive_scores(queries, keys, tf.cast(self.score_vector, tf.float32))

    def get_config(self) -> dict:
        return {**super().get_config(), "attention_dim": self.attention_dim}


def additive_scores(queries: tf.Tensor, keys: tf.Tensor, score_vector: tf.Tensor) -> tf.Tensor:
    """Scores every location for every query: `e[g,i] = v . tanh(key_i + query_g)`.

    Args:
        queries: float32 `[B, G, A]`.
        keys: float32 `[B, L, A]`.
        score_vector: float32 `[A]`, v.

    Returns:
        float32 `[B * G, L]`.
    """
    # expand_dims is a reshape: the gradient of an index would fill the whole tensor anew.
    activation = tf.tanh(tf.expand_dims(keys, 1) + tf.expand_dims(queries, 2))
    # As one matrix: TensorFlow 2.21's oneDNN product of a tensor of four axes, one of them of size
    # 1, with a vector writes past its end (tensorflow issue 117700).
    rows = tf.reshape(activation, [-1, activation.shape[-1]])
    return tf.reshape(tf.linalg.matvec(rows, score_vector), [-1, tf.shape(keys)[1]])


def _fan_in_uniform(shape, dtype=None):
    """Uniform with the variance of a fan-in of `shape[0]`: `v` has no second axis."""
    limit = (3.0 / shape[0]) ** 0.5
    if tf.executing_eagerly():
        return keras.random.uniform(shape, -limit, limit, dtype=dtype)
    # Keras' own generator, if it is first needed while `fit` builds a model, is never usable again.
    return keras.initializers.RandomUniform(-limit, limit)(shape, dtype=dtype)


class AttentionWeights(NamedTuple):
    """Weights of one step of attention over the locations."""

    weights: tf.Tensor
    """float32 `[B, L]` of the context: alpha, or one-hot for a chosen location."""
    log_prob: tf.Tensor
    """float32 `[B]`, log p of the location drawn, nats; differentiable; 0 if none was drawn."""


def attention_weights(
    alignment_scores: tf.Tensor,
    selection: Selection = "expectation",
    seed: tf.Tensor | None = None,
    use_expectation: tf.Tensor | None = None,
) -> AttentionWeights:
    """Turns alignment scores into the weights of a context (eq. 5, 8, 13).

    Args:
        alignment_scores: float32 `[B, L]`.
        selection: `expectation` (soft attention, and hard attention read as its mean), `sample`
            (one location per row, from the multinoulli), `argmax`, or `uniform`: all have the same
            weight, a control.
        seed: int32 `[2]`, stateless, of `sample`.
        use_expectation: bool `[B]`, rows that take the expectation although `selection` is
            `sample` (the paper's 0.5 switch); None for no row.

    Returns:
        `AttentionWeights`. No gradient flows through a one-hot choice.

    Raises:
        ValueError: `selection` is none of these, or `sample` has no seed.
    """
    alpha = tf.nn.softmax(alignment_scores)
    if selection in ("expectation", "argmax", "uniform"):
        weights, locations = alpha, tf.shape(alpha)[-1]
        if selection == "argmax":
            weights = tf.one_hot(tf.argmax(alignment_scores, axis=-1), locations)
        elif selection == "uniform":
            weights = tf.ones_like(alpha) / tf.cast(locations, alpha.dtype)
        return AttentionWeights(weights, tf.zeros_like(alpha[:, 0]))
    if selection != "sample":
        expected = f"one of {', '.join(get_args(Selection))}"
        raise invalid_value("selection", expected, repr(selection))
    if seed is None:
        raise invalid_value("seed", "int32 [2] with `selection='sample'`", seed)
    drawn = tf.stop_gradient(multinoulli(alignment_scores).sample(seed=seed))
    # Equal to the distribution's, whose gradient XLA cannot compile for a batch of unknown size,
    # and which is NaN where a score is -inf.
    log_alpha = tf.nn.log_softmax(alignment_scores)
    log_prob = tf.reduce_sum(tf.where(drawn > 0.0, log_alpha, 0.0), axis=-1)
    if use_expectation is None:
        return AttentionWeights(drawn, log_prob)
    return AttentionWeights(
        tf.where(use_expectation[:, tf.newaxis], alpha, drawn),
        tf.where(use_expectation, tf.zeros_like(log_prob), log_prob),
    )


def multinoulli(alignment_scores: tf.Tensor):
    """Distribution of the location `s_t` (eq. 8), a `tfp.distributions.OneHotCategorical`."""
    # TensorFlow Probability takes over a second to load, and only hard attention needs it.
    import tensorflow_probability as tfp

    return tfp.distributions.OneHotCategorical(logits=alignment_scores, dtype=tf.float32)


def context_vector(annotations: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Computes `phi`: `z = sum_i weights_i a_i` (eq. 9 with a one-hot, eq. 13 with alpha).

    Args:
        annotations: `[B, L, D]`.
        weights: `[B, L]`, or `[B * G, L]` for G rows per image.

    Returns:
        `[B, D]` or `[B * G, D]`, in the dtype of the annotations.
    """
    weights = by_image(tf.cast(weights, annotations.dtype), annotations)
    return tf.reshape(tf.matmul(weights, annotations), [-1, annotations.shape[-1]])


def by_image(rows: tf.Tensor, images: tf.Tensor) -> tf.Tensor:
    """Groups rows by image: `[B * G, X] -> [B, G, X]`, with B the first axis of `images`."""
    width = tf.shape(rows)[-1] if rows.shape[-1] is None else rows.shape[-1]
    return tf.reshape(rows, [tf.shape(images)[0], -1, width])


def attention_entropy(alignment_scores: tf.Tensor) -> tf.Tensor:
    """Entropy of alpha, nats: `[..., L] -> [...]`; differentiable, also where alpha is 0.

    A score of -inf takes a location out.
    """
    log_alpha = tf.nn.log_softmax(alignment_scores)
    known = tf.where(log_alpha > -math.inf, log_alpha, 0.0)
    return -tf.reduce_sum(tf.exp(log_alpha) * known, axis=-1)


def entropy_share(alignment_scores: tf.Tensor) -> tf.Tensor:
    """Entropy of alpha over its maximum, log L: `[..., L] -> [...]`.

    1 is uniform; 0 is one location for certain, as of a single one.
    """
    locations = tf.cast(tf.shape(alignment_scores)[-1], alignment_scores.dtype)
    return tf.math.divide_no_nan(attention_entropy(alignment_scores), tf.math.log(locations))
