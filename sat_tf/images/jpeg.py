"""Size and scans of a JPEG, read in the graph.

Each scan of a progressive JPEG makes the decoder go over the whole image again, and an empty scan
takes a dozen bytes: a small file can ask for minutes. `sat_tf.images.scans` does the same without
TensorFlow.
"""

from __future__ import annotations

import tensorflow as tf

from sat_tf.images.limits import FEW_SCANS, MAX_SCANS, MAX_SEGMENTS

_START_OF_SCAN, _START, _END = 0xDA, 0xD8, 0xD9


def size(image_bytes: tf.Tensor) -> tf.Tensor:
    """Reads `(height, width)`, int64 `[2]`; raises `InvalidArgumentError` on a damaged header."""
    return tf.cast(tf.image.extract_jpeg_shape(image_bytes)[:2], tf.int64)


def scans(image_bytes: tf.Tensor) -> tf.Tensor:
    """Counts the scans of a JPEG, or bounds them from above.

    Returns:
        Scalar int64; more than `MAX_SCANS` if the file has too many segments to follow.
    """
    data = tf.io.decode_raw(image_bytes, tf.uint8)
    escaped, codes = data[:-1] == 0xFF, data[1:]
    marked = tf.size(tf.where(escaped & (codes == _START_OF_SCAN)), tf.int64)
    # Thumbnails and what follows the end may hold the same two bytes: then look closer.
    return tf.cond(marked <= FEW_SCANS, lambda: marked, lambda: _follow(data))


def _follow(data: tf.Tensor) -> tf.Tensor:
    """Counts scans by going from segment to segment, as the decoder does."""
    codes = data[1:]
    restart = (codes >= 0xD0) & (codes <= 0xD7)
    is_marker = (data[:-1] == 0xFF) & (codes > 0x01) & (codes < 0xFF) & ~restart
    end = tf.size(data)
    markers = tf.concat([tf.cast(tf.where(is_marker)[:, 0], tf.int32), [end]], 0)
    data = tf.pad(data, [[0, 4]])

    def body(position, count):
        code, high, low = tf.unstack(tf.cast(data[position + 1 : position + 4], tf.int32), 3)
        segment = tf.where(code == _START, 0, 256 * high + low)
        following = tf.searchsorted(markers, [position + 2 + segment])[0]
        following = markers[tf.minimum(following, tf.size(markers) - 1)]
        count += tf.cast(code == _START_OF_SCAN, tf.int64)
        return tf.where(code == _END, end, following), count

    position, count = tf.while_loop(
        lambda position, count: (position < end) & (count <= MAX_SCANS),
        body,
        (markers[0], tf.constant(0, tf.int64)),
        maximum_iterations=MAX_SEGMENTS,
    )
    return tf.where(position < end, tf.constant(MAX_SCANS + 1, tf.int64), count)
