"""Checks of the decoder's inputs by what is known of their shapes: none is left in a graph.

Shapes: B images, C captions per image, T words, L locations, D annotation width.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from sat_tf.errors import invalid_value


def check_annotations(shape: tuple) -> None:
    """Checks that a shape is `[B, L, D]`; raises `ValueError` otherwise."""
    if tf.TensorShape(shape).rank not in (None, 3):
        raise invalid_value("annotations", "shape [B, L, D]", f"shape {tuple(shape)}")


def check_words(shape: tuple, annotations_shape: tuple, captions: int) -> None:
    """Checks that a shape is `[B C, T]`, for annotations `[B, L, D]`, and T is not 0.

    Raises:
        ValueError: It is not.
    """
    shape, annotations_shape = tf.TensorShape(shape), tf.TensorShape(annotations_shape)
    images = None if annotations_shape.rank is None else annotations_shape[0]
    rows = None if images is None else images * captions
    if not shape.is_compatible_with([rows, None]):
        expected = f"shape [{'B' if rows is None else rows}, T], captions={captions} per image"
        raise invalid_value("words", expected, f"shape {tuple(shape)}")
    if shape.rank is not None and shape[1] == 0:
        raise invalid_value("words", "at least one word per caption", f"shape {tuple(shape)}")


def check_seed(seed: object) -> None:
    """Checks that a seed is int32 `[2]`; raises `ValueError` otherwise."""
    shape = tf.TensorShape(np.shape(seed))
    if not shape.is_compatible_with([2]):
        raise invalid_value("seed", "two integers, int32 [2]", f"shape {tuple(shape)}")
