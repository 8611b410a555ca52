"""Which devices share the work."""

from __future__ import annotations

import tensorflow as tf


def make_strategy(name: str) -> tf.distribute.Strategy | None:
    """The strategy of this name.

    Args:
        name: `auto` (mirrored when there is more than one GPU), `mirrored` (over all GPUs, or
            over the logical CPUs where there is no GPU) or `none`.

    Returns:
        A strategy; None for one device.
    """
    gpus = tf.config.list_logical_devices("GPU")
    if name == "none" or (name == "auto" and len(gpus) < 2):
        return None
    devices = gpus or tf.config.list_logical_devices("CPU")
    return tf.distribute.MirroredStrategy([device.name for device in devices])
