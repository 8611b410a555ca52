"""Locations of glimpses that the policy does not choose: random, central, or on the digits."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from sat_tf.digits.config import GlimpseConfig

_SCAN_RADIUS = 6.0  # pixels from a digit's centre: half of its stroke, drawn in 20 x 20


def given_locations(
    config: GlimpseConfig,
    batch: Mapping[str, tf.Tensor],
    samples: int,
    seed: tf.Tensor,
    random_share: tf.Tensor | float = 0.0,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Places glimpses that are given, and says which they are.

    Args:
        config: Of the model.
        batch: `images` `[B, S, S, 1]`; for oracle locations `centres` `[B, D, 2]`, normalised.
        samples: M.
        seed: int32 `[2]`.
        random_share: Share of the rows whose glimpses are in random places, except a first one at
            the centre.

    Returns:
        Normalised locations `[T, B M, 2]`, and bool `[T, B M]`, true where they are used.
    """
    steps, rows = config.glimpses, tf.shape(batch["images"])[0] * samples
    places, shares = tf.unstack(tf.random.experimental.stateless_split(seed, 2))
    given = tf.random.stateless_uniform([steps, rows, 2], places, -1.0, 1.0)
    if config.locations == "oracle":
        scan = scan_locations(batch["centres"], steps, batch["images"].shape[1])
        given = tf.repeat(scan, samples, axis=1)
    if config.locations != "learned":
        return given, tf.ones([steps, rows], tf.bool)
    warm_up = tf.random.stateless_uniform([rows], shares) < random_share
    used = tf.tile(warm_up[tf.newaxis], [steps, 1])
    if config.first_location == "centre":
        given = tf.concat([tf.zeros([1, rows, 2]), given[1:]], axis=0)
    if config.first_location != "learned":
        used = tf.concat([tf.ones([1, rows], tf.bool), used[1:]], axis=0)
    return given, used


def scan_locations(centres: tf.Tensor, glimpses: int, image_size: int) -> tf.Tensor:
    """Locations of an oracle that knows the digits: their centres, then around them.

    Glimpses are divided among the digits of an image, one digit after another. The first on a
    digit is at its centre, the others on a circle around it.

    Args:
        centres: `[B, D, 2]`, normalised.
        glimpses: T.
        image_size: Side of the images, pixels.

    Returns:
        `[T, B, 2]`, normalised, in [-1, 1].
    """
    digit, offsets = [], []
    for number, part in enumerate(np.array_split(np.arange(glimpses), centres.shape[1])):
        for n in range(len(part)):
            angle = 2.0 * math.pi * (n - 1) / max(len(part) - 1, 1)
            radius = _SCAN_RADIUS if n else 0.0
            digit.append(number)
            offsets.append((radius * math.cos(angle), radius * math.sin(angle)))
    shifts = 2.0 / (image_size - 1) * np.array(offsets, np.float32)
    locations = tf.gather(centres, digit, axis=1) + shifts
    return tf.transpose(tf.clip_by_value(locations, -1.0, 1.0), [1, 0, 2])
