"""The first frame of a GIF, cut out in the graph."""

from __future__ import annotations

import tensorflow as tf

from sat_tf.images.byte_ops import change_byte, head_of, number, padded_bytes

MAX_RUNS = 2**9
"""Runs of equally long data blocks before the end of the first frame; writers leave a few."""

_BLOCKS_AT_ONCE = 2**10
_TRANSPARENT = 0x01  # flag of the graphic control extension
_GRAPHIC_CONTROL = 0xF9  # label of the extension that may make a colour of the frame transparent
# What the byte at the current position belongs to.
_BETWEEN, _EXTENSION, _FRAME, _DONE = range(4)


def first_frame(image_bytes: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Cuts a GIF after its first frame.

    The decoder unpacks every frame before it returns the first, and an animation of a few
    megabytes can hold thousands. No colour stays transparent: the decoder would paint it black,
    where other formats, and Pillow, show the colour of the file.

    Returns:
        Scalar string, a GIF of one frame; int64 `[2]`, `(height, width)`, zeros if no frame was
        found within `MAX_RUNS`.
    """
    length = tf.strings.length(image_bytes)
    data = padded_bytes(image_bytes)

    def body(position, state, frame, control):
        here = tf.cast(tf.ensure_shape(data[position : position + 10], [10]), tf.int32)
        begins_frame = (state == _BETWEEN) & (here[0] == 0x2C)
        begins_extension = (state == _BETWEEN) & (here[0] == 0x21)
        # Inside an extension or a frame: blocks that begin with their length, the last is 0.
        in_blocks = state != _BETWEEN
        step = tf.where(begins_extension, 2, 0)
        step = tf.where(begins_frame, 11 + _colour_table(here[9]), step)
        step = tf.where(in_blocks, _run_of_blocks(data, position, here[0]), step)
        after = tf.where(state == _EXTENSION, _BETWEEN, _DONE)
        after = tf.where(in_blocks & (here[0] > 0), state, after)
        after = tf.where(begins_extension, _EXTENSION, tf.where(begins_frame, _FRAME, after))
        controls = begins_extension & (here[1] == _GRAPHIC_CONTROL)
        frame = tf.where(begins_frame, position, frame)
        return position + step, after, frame, tf.where(controls, position, control)

    screen = head_of(image_bytes)
    nowhere = tf.constant(-1)
    start = (13 + _colour_table(screen[10]), tf.constant(_BETWEEN), nowhere, nowhere)
    end, state, frame, control = tf.while_loop(
        lambda position, state, *_: (state != _DONE) & (position < length),
        body,
        start,
        maximum_iterations=MAX_RUNS,
    )
    sides = tf.ensure_shape(data[frame + 5 : frame + 9], [4])
    declared = tf.stack([number(sides[2:]), number(sides[:2])])
    canvas = tf.stack([number(screen[8:10]), number(screen[6:8])])
    found = (frame > 0) & (tf.reduce_min(declared) > 0) & ((state == _DONE) | (end >= length))
    size = tf.where(found, tf.maximum(declared, canvas), tf.zeros([2], tf.int64))
    kept = tf.strings.substr(image_bytes, 0, tf.minimum(end, length))
    return tf.strings.join([_opaque(kept, control), b";"]), size


def _opaque(image_bytes: tf.Tensor, control: tf.Tensor) -> tf.Tensor:
    """Clears the flag of a transparent colour in the extension at `control`; none if below 0."""
    flags = control + 3
    return tf.cond(
        (control > 0) & (flags < tf.strings.length(image_bytes)),
        lambda: change_byte(image_bytes, flags, lambda value: value & ~_TRANSPARENT),
        lambda: image_bytes,
    )


def _run_of_blocks(data: tf.Tensor, position: tf.Tensor, length: tf.Tensor) -> tf.Tensor:
    """Bytes of a run of blocks of one length, 1 if that length is 0.

    A step of the loop costs as much as a thousand comparisons, and writers fill their blocks.
    """
    step = length + 1
    heads = data[position : position + _BLOCKS_AT_ONCE * step : step]
    differs = tf.ensure_shape(tf.cast(tf.cast(heads, tf.int32) != length, tf.int32), [None])
    run = tf.where(
        tf.reduce_any(differs > 0), tf.argmax(differs, output_type=tf.int32), tf.size(heads)
    )
    return tf.where(length > 0, run * step, 1)


def _colour_table(flags: tf.Tensor) -> tf.Tensor:
    """Bytes of the colour table that a GIF's flags announce."""
    size = 3 * tf.bitwise.left_shift(2, tf.bitwise.bitwise_and(flags, 7))
    return tf.where(flags >= 128, size, 0)
