"""Optimizers: schedules, a learning rate for some variables, and gradients summed beforehand."""

from __future__ import annotations

from collections.abc import Sequence

import keras
import tensorflow as tf

from sat_tf.compat import GradientsAsGiven, variable_key
from training.run.config import BaseOptimizerConfig


class SummedGradients(GradientsAsGiven):
    """Mixin for Keras optimizers with gradients that are already summed over the replicas.

    The train step sums them before it clips them (`models.distributed_step`). Keras would sum them
    again, which doubles the communication among devices.
    """

    takes_summed_gradients = True


class _OwnRate:
    """Mixin for Keras optimizers that gives some variables a multiple of the learning rate.

    Scaling gradients would have no effect, as Adam and RMSprop normalise them. So the
    rate is scaled where it is used: in the update and in the decoupled weight decay.

    All weight decay happens here: Keras evaluates the schedule again for each variable, with a
    condition in the graph each time, which takes over a quarter of the time to trace a step.
    """

    _own: frozenset = frozenset()

    def set_own_rate(self, variables: Sequence[keras.Variable], factor: float) -> None:
        """Trains `variables` at `factor` times the learning rate; call it before `build`."""
        self._own, self._factor = frozenset(variable_key(self, v) for v in variables), factor

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """Creates the optimizer's state."""
        self.exclude_from_weight_decay(var_list=variables)
        super().build(variables)

    def update_step(
        self, gradient: tf.Tensor, variable: tf.Variable, learning_rate: tf.Tensor
    ) -> None:
        """Updates one variable."""
        if variable_key(self, variable) in self._own:
            learning_rate = learning_rate * self._factor
        if self.weight_decay:
            self.assign_sub(variable, variable * (self.weight_decay * learning_rate))
        super().update_step(gradient, variable, learning_rate)


class Adam(SummedGradients, _OwnRate, keras.optimizers.Adam):
    """Keras' Adam with `set_own_rate`, for gradients summed over the replicas."""


class AdamW(SummedGradients, _OwnRate, keras.optimizers.AdamW):
    """Keras' AdamW with `set_own_rate`, for gradients summed over the replicas."""


class RMSprop(SummedGradients, _OwnRate, keras.optimizers.RMSprop):
    """Keras' RMSprop with `set_own_rate`, for gradients summed over the replicas."""


def make_optimizer(
    config: BaseOptimizerConfig,
    steps: int,
    epochs: int,
    slow: Sequence[keras.Variable] = (),
    slow_rate: float | None = None,
) -> keras.optimizers.Optimizer:
    """Builds an optimizer with its schedule over `steps * epochs` steps.

    Args:
        config: Optimizer and schedule.
        steps: Steps per epoch.
        epochs: Epochs of the run.
        slow: Variables with their own learning rate, such as those of a trained encoder.
        slow_rate: Their peak learning rate, on the same schedule; None for that of the config.
    """
    rate = make_schedule(config, steps, epochs)
    if config.name == "adamw":
        optimizer = AdamW(rate, weight_decay=config.weight_decay)
    else:
        optimizer = {"adam": Adam, "rmsprop": RMSprop}[config.name](rate)
    if slow_rate is not None:
        optimizer.set_own_rate(slow, slow_rate / config.learning_rate)
    return optimizer


def make_schedule(
    config: BaseOptimizerConfig, steps: int, epochs: int
) -> float | keras.optimizers.schedules.LearningRateSchedule:
    """Builds the learning rate over a run: a linear warm-up, then constant or cosine to zero."""
    warmup = round(config.warmup_epochs * steps)
    rate = config.learning_rate
    if config.schedule == "cosine":
        return keras.optimizers.schedules.CosineDecay(
            0.0 if warmup else rate,
            max(steps * epochs - warmup, 1),
            warmup_target=rate if warmup else None,
            warmup_steps=warmup,
        )
    if warmup:
        return keras.optimizers.schedules.PolynomialDecay(0.0, warmup, rate)
    return rate
