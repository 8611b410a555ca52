"""Baselines with state: a moving average, and a learned one."""

from __future__ import annotations

import keras
import tensorflow as tf

from sat_tf.config import AttentionConfig


@keras.saving.register_keras_serializable(package="sat_tf")
class MovingAverageBaseline(keras.layers.Layer):
    """`b_k = decay b_{k-1} + (1 - decay) mean(return)`, the paper's baseline.

    It starts at the first batch's mean return, so that no advantage is a whole return.

    Args:
        decay: Share of the old value that is kept.

    Call arguments:
        mean_return: Scalar, the mean return of the present batch over all replicas.

    Output:
        The baseline of the present batch, a float32 scalar: the average over earlier batches, or
        `mean_return` in the first.

    References:
        Weaver & Tao (2001); Xu et al. (2015), Sec. 4.1, arXiv:1502.03044.
    """

    def __init__(self, decay: float = 0.9, **kwargs) -> None:
        super().__init__(**{**kwargs, "dtype": "float32"})
        self.decay = decay
        self.average = self._scalar("average")
        self.started = self._scalar("started")
        self.built = True

    def _scalar(self, name: str):
        # Each replica updates with the mean over all of them, so "mean" keeps them equal.
        return self.add_weight(
            name=name, shape=(), initializer="zeros", trainable=False, aggregation="mean"
        )

    @property
    def value(self) -> tf.Tensor:
        """The average so far, a float32 scalar; 0 before the first update."""
        return tf.convert_to_tensor(self.average)

    def call(self, mean_return: tf.Tensor) -> tf.Tensor:
        """Returns the baseline of the present batch."""
        return tf.where(tf.convert_to_tensor(self.started) > 0.0, self.value, mean_return)

    def update(self, mean_return: tf.Tensor) -> None:
        """Moves towards the mean return of the global batch, a scalar."""
        decay = self.decay * self.started
        self.average.assign(decay * self.average + (1.0 - decay) * mean_return)
        self.started.assign(tf.ones([]))

    def get_config(self) -> dict:
        """Constructor arguments."""
        return {**super().get_config(), "decay": self.decay}


@keras.saving.register_keras_serializable(package="sat_tf")
class LearnedBaseline(keras.layers.Layer):
    """`scale f(stop_gradient(h))`, f an MLP with one hidden layer (NVIL); zero before training.

    Args:
        state_dim: Width N of the state.
        hidden_dim: Width of the hidden layer.

    Call arguments:
        hidden: `[..., N]`, the state each action was drawn from; no gradient flows to it.
        scale: Broadcasts to `[...]`. Known size of a return, such as the number of words that it
            sums over; must not depend on the actions.

    Output:
        float32 `[...]`, the expected return.

    References:
        Mnih & Gregor (2014), arXiv:1402.0030.
    """

    def __init__(self, state_dim: int, hidden_dim: int = 100, **kwargs) -> None:
        super().__init__(**{**kwargs, "dtype": "float32"})
        self.state_dim, self.hidden_dim = state_dim, hidden_dim
        self.hidden_layer = keras.layers.Dense(hidden_dim, "tanh", dtype="float32", name="hidden")
        self.output_layer = keras.layers.Dense(
            1, kernel_initializer="zeros", dtype="float32", name="output"
        )
        self.hidden_layer.build((None, state_dim))
        self.output_layer.build((None, hidden_dim))
        self.built = True

    def call(self, hidden: tf.Tensor, scale: tf.Tensor | float = 1.0) -> tf.Tensor:
        """Predicts the return from the state."""
        outputs = self.output_layer(self.hidden_layer(tf.stop_gradient(hidden)))
        return scale * outputs[..., 0]

    def get_config(self) -> dict:
        """Constructor arguments."""
        config = {"state_dim": self.state_dim, "hidden_dim": self.hidden_dim}
        return {**super().get_config(), **config}


def make_baseline(attention: AttentionConfig, state_dim: int) -> keras.layers.Layer | None:
    """Makes the baseline that has state, if any; `state_dim` is the width of the LSTM."""
    if attention.kind == "hard" and attention.estimator.baseline == "moving_average":
        return MovingAverageBaseline(attention.baseline_decay)
    if attention.kind == "hard" and attention.estimator.baseline == "learned":
        return LearnedBaseline(state_dim, name="baseline")
    return None
