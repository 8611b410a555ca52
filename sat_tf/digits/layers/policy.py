"""The Gaussian policy that aims glimpses."""

from __future__ import annotations

import functools
from typing import NamedTuple

import keras
import tensorflow as tf

from sat_tf.digits.layers.built import dense
from sat_tf.ops.replicas import at_least_one_row


class Aim(NamedTuple):
    """A location chosen from a state."""

    activation: tf.Tensor
    """`[B, 2]`, whose tanh is the mean; its gradient does not saturate."""
    mean: tf.Tensor
    """`[B, 2]`, mean of the policy, in (-1, 1)."""
    location: tf.Tensor
    """`[B, 2]`, in [-1, 1]; no gradient flows through it."""
    log_prob: tf.Tensor
    """`[B]`, log-density of the sample before clipping; differentiable in the mean."""


class LocationNetwork(keras.layers.Layer):
    """The policy over locations: a Gaussian around an MLP of the state.

    `mean = tanh(f_l(h))`, `l' ~ N(mean, std^2 I)`, `l = clip(l', -1, 1)`. The log-probability is
    that of l', since l has no density at the border, where many samples end.

    Args:
        state_dim: Width of the state.
        hidden_dim: Width of the hidden layer.
        std: Standard deviation along each axis; 1 is half the image.

    Call arguments:
        hidden: `[B, state_dim]`. The gradient of `log_prob` flows to it unless it is given as
            `stop_gradient`.
        seed: int32 `[2]`, stateless; None takes the mean.

    Output:
        `Aim`.

    References:
        Mnih et al. (2014), Sec. 3.1-3.2, arXiv:1406.6247.
    """

    def __init__(self, state_dim: int, hidden_dim: int, std: float, **kwargs) -> None:
        super().__init__(**kwargs)
        self.state_dim, self.std = state_dim, std
        self.hidden_layer = dense(state_dim, hidden_dim, "relu", name="hidden")
        # Small, because tanh saturates.
        small = keras.initializers.RandomNormal(stddev=0.01)
        self.mean_layer = dense(hidden_dim, 2, kernel_initializer=small, name="mean")
        self.built = True

    def call(self, hidden: tf.Tensor, seed: tf.Tensor | None = None) -> Aim:
        """Aims the next glimpse."""
        activation = self.mean_layer(self.hidden_layer(hidden))
        mean = tf.tanh(activation)
        drawn = mean
        if seed is not None:
            drawn = at_least_one_row(functools.partial(self._draw, seed), mean)
        drawn = tf.stop_gradient(drawn)
        log_prob = gaussian(mean, self.std).log_prob(drawn)
        return Aim(activation, mean, tf.clip_by_value(drawn, -1.0, 1.0), log_prob)

    def _draw(self, seed: tf.Tensor, mean: tf.Tensor) -> tf.Tensor:
        return gaussian(mean, self.std).sample(seed=seed)


def gaussian(mean: tf.Tensor, std: float):
    """`N(mean, std^2 I)` over the last axis: `tfp.distributions.MultivariateNormalDiag`."""
    # TensorFlow Probability takes over a second to import.
    import tensorflow_probability as tfp

    return tfp.distributions.MultivariateNormalDiag(mean, std * tf.ones_like(mean))
