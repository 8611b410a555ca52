"""Which devices share the work."""

from __future__ import annotations

import functools

import tensorflow as tf


def make_strategy(name: str) -> tf.distribute.Strategy | None:
    """The strategy of this name.

    Args:
        name: `auto` (mirrored when there is more than one GPU), `mirrored` (over all GPUs, or
            over the logical CPUs where there is no GPU) or `none`.

    Returns:
        A strategy, the same one each time it is asked for; None for one device.
    """
    gpus = tf.config.list_logical_devices("GPU")
    if name == "none" or (name == "auto" and len(gpus) < 2):
        return None
    devices = gpus or tf.config.list_logical_devices("CPU")
    return mirrored(tuple(device.name for device in devices))


@functools.cache
def mirrored(devices: tuple[str, ...]) -> tf.distribute.MirroredStrategy:
    """The one strategy of this process over these devices.

    A second one would number its collective operations from the start again, and TensorFlow
    refuses a number that has been used with another shape ("shape mismatch in the collective
    instance").
    """
    return tf.distribute.MirroredStrategy(list(devices))
