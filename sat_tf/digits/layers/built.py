"""Keras layers that have their weights as soon as they are made."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from sat_tf.ops.replicas import at_least_one_row


def dense(inputs: int, units: int, activation: str | None = None, **kwargs) -> keras.layers.Dense:
    """Makes a dense layer from `inputs` to `units` features; `**kwargs` are for Keras."""
    layer = keras.layers.Dense(units, activation, **kwargs)
    layer.build((None, inputs))
    return layer


class _Stack(keras.Sequential):
    """A stack that a replica without images may call."""

    def call(self, inputs: tf.Tensor, training: bool | None = None, mask: Any = None) -> tf.Tensor:
        call = functools.partial(super().call, training=training, mask=mask)
        return at_least_one_row(call, inputs)


def sequential(
    layers: Sequence[keras.layers.Layer], shape: Sequence[int], name: str
) -> keras.Sequential:
    """Stacks layers over inputs of a shape, given without the batch."""
    stack = _Stack(list(layers), name=name)
    stack.build((None, *shape))
    return stack


def convolution(filters: int, size: int, **kwargs) -> keras.layers.Conv2D:
    """Makes a convolution of `size` x `size` with ReLU that keeps the sides; not built."""
    return keras.layers.Conv2D(filters, size, padding="same", activation="relu", **kwargs)
