"""Headers of image files, read in the graph before anything is decoded.

A file of some kilobytes can ask for gigabytes of pixels or minutes of work; its header tells. Plain
TensorFlow operations, as in `sat_tf.images.decoding`.
"""

from __future__ import annotations

import functools

import tensorflow as tf

from sat_tf.images import gif, jpeg
from sat_tf.images.byte_ops import change_byte, head_of, number, starts_with
from sat_tf.images.limits import (
    MANY_SCANS,
    MAX_PIXELS,
    MAX_SCANNED_PIXELS,
    MAX_SCANS,
    MAX_SIDE,
)

FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WebP")
UNKNOWN = len(FORMATS)

_BMP_HEAD = 66  # bytes: up to the masks of the channels
_WEBP_ANIMATION, _WEBP_ALPHA = 0x02, 0x10  # flags of the extended header, byte 20

_NO_IMAGE = f"the bytes are no {', '.join(FORMATS)} image"
SIZE_LIMITS = f"has no pixels, or more than {MAX_SIDE} per side or {MAX_PIXELS} in all"
_WRONG_SIZE = f"the image {SIZE_LIMITS}"
_NO_FRAME = "the GIF has no whole first frame, or one of too many blocks"
_WRONG_BMP = "the BMP is compressed, or its channels are not blue, green, red"


def prepare(image_bytes: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Checks an image file, and changes what TensorFlow's decoders do not bear.

    Returns:
        Scalar string for `decoding.decode_prepared`; scalar string, the reason why the file must
        not be decoded, empty if it may be.

    Raises:
        tf.errors.InvalidArgumentError: The header of a JPEG is damaged.
    """
    checks = [_prepare_jpeg, _prepare_png, _prepare_gif, _prepare_bmp, _prepare_webp, _refuse]
    branches = [functools.partial(check, image_bytes) for check in checks]
    return tf.switch_case(read_format(image_bytes), branches)


def read_format(image_bytes: tf.Tensor) -> tf.Tensor:
    """Recognises a file by its first bytes.

    Returns:
        Scalar int32, an index into `FORMATS`; `UNKNOWN` for anything else.
    """
    head = head_of(image_bytes)
    is_format = [
        starts_with(head, b"\xff\xd8"),
        # The decoder also takes a PNG whose IHDR comes late; its size would not be known here.
        starts_with(head, b"\x89PNG\r\n\x1a\n") & starts_with(head[12:], b"IHDR"),
        starts_with(head, b"GIF8"),
        starts_with(head, b"BM"),
        starts_with(head, b"RIFF") & starts_with(head[8:], b"WEBP"),
        tf.constant(True),
    ]
    return tf.argmax(tf.cast(tf.stack(is_format), tf.int32), output_type=tf.int32)


def size_fits(size: tf.Tensor) -> tf.Tensor:
    """Says if an image of `(height, width)`, int64 `[2]`, may be decoded: scalar bool."""
    sides = (tf.reduce_min(size) > 0) & (tf.reduce_max(size) <= MAX_SIDE)
    return sides & (tf.reduce_prod(size) <= MAX_PIXELS)


def png_size(image_bytes: tf.Tensor) -> tf.Tensor:
    """Reads `(height, width)` of a PNG, int64 `[2]`."""
    head = head_of(image_bytes)
    return tf.stack([number(head[20:24][::-1]), number(head[16:20][::-1])])


def bmp_size(image_bytes: tf.Tensor) -> tf.Tensor:
    """Reads `(height, width)` of a BMP, int64 `[2]`."""
    head = head_of(image_bytes)
    height = number(head[22:26])
    # A negative height says that the rows come from the top.
    return tf.stack([tf.minimum(height, 2**32 - height), number(head[18:22])])


def bmp_palette(image_bytes: tf.Tensor) -> tf.Tensor:
    """Reads the colours of a BMP of 8 bits per pixel.

    Returns:
        uint8 `[256, 3]`; black where the file names no colour.
    """
    head = head_of(image_bytes, _BMP_HEAD)
    count = (number(head[46:50]) - 1) % 2**32 + 1  # 0 stands for all
    start = 14 + number(head[14:18])
    stored = tf.strings.substr(image_bytes, start, 4 * tf.minimum(count, 256))
    stored = tf.strings.substr(tf.strings.join([stored, b"\0" * 1024]), 0, 1024)
    colours = tf.reshape(tf.io.decode_raw(stored, tf.uint8), [256, 4])
    return colours[:, 2::-1]  # stored as blue, green, red and an unused byte


def webp_size(image_bytes: tf.Tensor) -> tf.Tensor:
    """Reads `(height, width)` of a WebP of any kind, int64 `[2]`; zeros for an unknown kind."""
    head = head_of(image_bytes)
    lossless = number(head[21:25])
    sizes = {
        b"VP8 ": [number(head[28:30]) % 2**14, number(head[26:28]) % 2**14],
        b"VP8L": [lossless // 2**14 % 2**14 + 1, lossless % 2**14 + 1],
        b"VP8X": [number(head[27:30]) + 1, number(head[24:27]) + 1],
    }
    found = tf.zeros([2], tf.int64)
    for kind, size in sizes.items():
        found = tf.where(starts_with(head[12:], kind), tf.stack(size), found)
    return found


def webp_decodable(image_bytes: tf.Tensor) -> tf.Tensor:
    """Marks every WebP animation as having an alpha channel.

    Frames of an animation are always decoded to RGBA, but TensorFlow 2.20 and 2.21 take the number
    of channels from the header: for an animation whose alpha flag is off they allocate three
    channels and write four, past the end of the buffer. The flag changes nothing else.

    Returns:
        Scalar string.
    """
    head = head_of(image_bytes)
    flags = tf.ensure_shape(head[20], [])
    animated = tf.bitwise.bitwise_and(flags, _WEBP_ANIMATION) > 0
    # A file too short for the flags reads as zeros there, so it is never marked.
    is_extended = starts_with(head[12:], b"VP8X")
    return tf.cond(
        is_extended & animated,
        lambda: change_byte(image_bytes, 20, lambda value: value | _WEBP_ALPHA),
        lambda: image_bytes,
    )


def _unless(fits: tf.Tensor, problem: str) -> tf.Tensor:
    return tf.where(fits, "", problem)


def _prepare_jpeg(image_bytes: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    size, scans = jpeg.size(image_bytes), jpeg.scans(image_bytes)
    scanned = scans * tf.reduce_prod(size)
    few = (scans <= MAX_SCANS) & (scanned <= MAX_SCANNED_PIXELS)
    problem = tf.where(size_fits(size), _unless(few, MANY_SCANS), _WRONG_SIZE)
    return image_bytes, problem


def _prepare_png(image_bytes: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    return image_bytes, _unless(size_fits(png_size(image_bytes)), _WRONG_SIZE)


def _prepare_gif(image_bytes: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    frame, size = gif.first_frame(image_bytes)
    problem = _unless(size_fits(size), _WRONG_SIZE)
    return frame, tf.where(tf.reduce_max(size) > 0, problem, _NO_FRAME)


def _prepare_bmp(image_bytes: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    # The decoder takes every file for plain bytes, in the order blue, green, red.
    head = head_of(image_bytes, _BMP_HEAD)
    compression = number(head[30:34])
    masks = tf.stack([number(head[start : start + 4]) for start in (54, 58, 62)])
    usual = tf.reduce_all(masks == [0xFF0000, 0xFF00, 0xFF])
    plain = (compression == 0) | ((compression == 3) & usual)
    fits = size_fits(bmp_size(image_bytes))
    return image_bytes, tf.where(fits, _unless(plain, _WRONG_BMP), _WRONG_SIZE)


def _prepare_webp(image_bytes: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    fits = size_fits(webp_size(image_bytes))
    return webp_decodable(image_bytes), _unless(fits, _WRONG_SIZE)


def _refuse(image_bytes: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    return image_bytes, tf.constant(_NO_IMAGE)
