"""Bytes and numbers of a file's header as tensors."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

HEAD = 32
"""Bytes that hold the sizes of every format but JPEG and GIF."""


def head_of(image_bytes: tf.Tensor, size: int = HEAD) -> tf.Tensor:
    """Returns the first bytes, int32 `[size]`, zeros after the end of a shorter file."""
    head = tf.strings.join([tf.strings.substr(image_bytes, 0, size), b"\0" * size])
    head = tf.io.decode_raw(tf.strings.substr(head, 0, size), tf.uint8)
    return tf.ensure_shape(tf.cast(head, tf.int32), [size])


def padded_bytes(image_bytes: tf.Tensor) -> tf.Tensor:
    """Returns all bytes, uint8 `[N + HEAD]`, the last ones zero."""
    return tf.io.decode_raw(tf.strings.join([image_bytes, b"\0" * HEAD]), tf.uint8)


def starts_with(head: tf.Tensor, prefix: bytes) -> tf.Tensor:
    """Says if the bytes begin so: scalar bool."""
    return tf.reduce_all(head[: len(prefix)] == list(prefix))


def change_byte(
    image_bytes: tf.Tensor, place: tf.Tensor | int, change: Callable[[int], int]
) -> tf.Tensor:
    """Returns the file with the byte at `place`, which it must have, replaced by `change` of it."""
    changed = tf.constant([bytes([change(value)]) for value in range(256)])
    byte = tf.io.decode_raw(tf.strings.substr(image_bytes, place, 1), tf.uint8)[0]
    before = tf.strings.substr(image_bytes, 0, place)
    after = tf.strings.substr(image_bytes, place + 1, tf.strings.length(image_bytes))
    return tf.strings.join([before, changed[tf.cast(byte, tf.int32)], after])


def number(digits: tf.Tensor) -> tf.Tensor:
    """Reads an unsigned number of up to four bytes, the lowest first; int64, so it never wraps."""
    weights = [256**place for place in range(digits.shape[0])]
    return tf.reduce_sum(tf.cast(digits, tf.int64) * tf.constant(weights, tf.int64))
