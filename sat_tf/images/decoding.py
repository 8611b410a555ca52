"""Decodes and scales JPEG and PNG files in TensorFlow operations.

They run eagerly, in a `tf.data` pipeline and inside a SavedModel alike. `sat_tf.images.pillow`
converts files of other formats.
"""

from __future__ import annotations

import functools
import re

import tensorflow as tf

from sat_tf.images import MAX_PIXELS, MAX_SCANS, MAX_SIDE
from sat_tf.util.errors import invalid_value

POLICIES = ("crop", "squash")
SIZE_LIMITS = f"has no pixels, or more than {MAX_SIDE} per side or {MAX_PIXELS} in all"
NO_IMAGE = "the bytes are not a JPEG or PNG image; convert others (Pillow: `image.save`)"
_WRONG_SIZE = f"the image {SIZE_LIMITS}"
_MANY_SCANS = f"the JPEG has more than {MAX_SCANS} scans"
# Beginnings of the lines that TensorFlow puts around a message.
_TRACE = ("Graph execution error", "Detected at node", 'File "', "<stack traces", "[[")


def decode(image_bytes: tf.Tensor | bytes) -> tf.Tensor:
    """Decodes a JPEG (grey and CMYK too) or a PNG (palette and 16 bit too) to RGB.

    Transparent areas are composited onto white, see `sat_tf.images.pillow.to_rgb`; EXIF
    orientation is ignored.

    Args:
        image_bytes: Scalar string, the content of an image file.

    Returns:
        uint8 `[height, width, 3]`.

    Raises:
        tf.errors.InvalidArgumentError: The bytes are not an image that can be read, or its header
            asks for more than the limits allow.
    """
    return _decode(tf.convert_to_tensor(image_bytes, tf.string))


@functools.partial(tf.function, autograph=False, input_signature=[tf.TensorSpec([], tf.string)])
def _decode(image_bytes: tf.Tensor) -> tf.Tensor:
    image, problem = read(image_bytes)
    with tf.control_dependencies([tf.debugging.Assert(tf.equal(problem, ""), [problem])]):
        return tf.identity(image)


def read(image_bytes: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Decodes an image file, or says why it must not be decoded.

    A file of some kilobytes can ask for gigabytes of pixels or minutes of work, so its header is
    read before.

    Returns:
        uint8 `[height, width, 3]`, see `decode`, without pixels if there is a reason; scalar
        string, the reason, empty if the image was decoded.

    Raises:
        tf.errors.InvalidArgumentError: The file is damaged.
    """
    empty = tf.zeros([0, 0, 3], tf.uint8)

    def jpeg() -> tuple[tf.Tensor, tf.Tensor]:
        size = tf.cast(tf.image.extract_jpeg_shape(image_bytes)[:2], tf.int64)
        data = tf.io.decode_raw(image_bytes, tf.uint8)
        # Each scan of a progressive JPEG makes the decoder go over the whole image again.
        scans = tf.math.count_nonzero((data[:-1] == 0xFF) & (data[1:] == 0xDA))
        problem = tf.where(scans > MAX_SCANS, _MANY_SCANS, _size_problem(size))
        # The default transform is a little quicker and off by up to six grey levels, which moved
        # MobileNetV2's annotations by 6.5 % of their mean; this one gives Pillow's pixels.
        image = tf.cond(
            tf.equal(problem, ""),
            lambda: tf.io.decode_jpeg(image_bytes, channels=3, dct_method="INTEGER_ACCURATE"),
            lambda: empty,
        )
        return image, problem

    def png() -> tuple[tf.Tensor, tf.Tensor]:
        head = tf.cast(tf.io.decode_raw(tf.strings.substr(padded, 16, 8), tf.uint8), tf.int64)
        bytes_of = tf.reshape(head, [2, 4])  # width and height
        size = tf.reduce_sum(bytes_of * [2**24, 2**16, 2**8, 1], axis=1)
        problem = _size_problem(size)
        return tf.cond(
            tf.equal(problem, ""), lambda: _decode_png(image_bytes), lambda: empty
        ), problem

    def begins(start: bytes, at: int = 0) -> tf.Tensor:
        return tf.equal(tf.strings.substr(padded, at, len(start)), start)

    padded = tf.strings.join([image_bytes, b"\0" * 24])  # of a file that is too short
    is_jpeg = begins(b"\xff\xd8")
    # The decoder also takes a PNG whose IHDR comes late; its size would not be known here.
    is_png = begins(b"\x89PNG\r\n\x1a\n") & begins(b"IHDR", 12)
    image, problem = tf.case(
        [(is_jpeg, jpeg), (is_png, png)], default=lambda: (empty, tf.constant(NO_IMAGE))
    )
    return tf.ensure_shape(image, [None, None, 3]), problem


def _decode_png(content: tf.Tensor) -> tf.Tensor:
    """Decodes a PNG and lays it over white, unless it is opaque everywhere."""
    image = tf.io.decode_png(content, channels=4)
    colour, alpha = image[..., :3], image[..., 3:]
    # The alpha that a file lacks is filled in as 2^bits - 1 even where it has less than 8 bits.
    bits = tf.cast(tf.io.decode_raw(tf.strings.substr(content, 24, 1), tf.uint8)[0], tf.int32)
    opaque = tf.cast(tf.bitwise.left_shift(1, tf.minimum(bits, 8)) - 1, tf.uint8)

    def blend() -> tf.Tensor:
        wide, share = tf.cast(colour, tf.uint16), tf.cast(alpha, tf.uint16)
        return tf.cast((wide * share + 127) // 255 + 255 - share, tf.uint8)

    return tf.cond(tf.reduce_all(tf.equal(alpha, opaque)), lambda: colour, blend)


def size_fits(size: tf.Tensor) -> tf.Tensor:
    """Returns whether an image of `(height, width)`, int64 `[2]`, may be decoded: scalar bool."""
    sides = (tf.reduce_min(size) > 0) & (tf.reduce_max(size) <= MAX_SIDE)
    return sides & (tf.reduce_prod(size) <= MAX_PIXELS)


def _size_problem(size: tf.Tensor) -> tf.Tensor:
    return tf.where(size_fits(size), "", _WRONG_SIZE)


def resize(image: tf.Tensor, size: int, policy: str) -> tf.Tensor:
    """Scales an image to a square (bilinear, antialiased).

    Args:
        image: `[height, width, 3]`, values 0 to 255.
        size: Side of the result, pixels.
        policy: "crop" scales the centred square of the image's short side;
            "squash" scales the whole image and so changes its proportions.

    Returns:
        float32 `[size, size, 3]`, values 0 to 255.

    Raises:
        ValueError: `size` or `policy` is invalid.
    """
    if policy not in POLICIES:
        raise invalid_value("resize", f"one of {', '.join(POLICIES)}", repr(policy))
    if size < 1:
        raise invalid_value("size", "at least 1", size)
    if policy == "crop":
        # Cropped before scaling: a strip of 1 x 5000 pixels would become 224 x 1120000. The square
        # is `pillow.centred_square`, of a size that a graph does not know.
        shape = tf.shape(image)
        side = tf.minimum(shape[0], shape[1])
        top, left = (shape[0] - side) // 2, (shape[1] - side) // 2
        image = image[top : top + side, left : left + side]
    # No float copy before scaling: a large photograph would take four times its memory.
    image = tf.cast(tf.image.resize(image, (size, size), "bilinear", antialias=True), tf.float32)
    return tf.ensure_shape(tf.clip_by_value(image, 0.0, 255.0), [size, size, 3])


def read_error(error: Exception) -> str:
    """Returns in one line why an image cannot be read, from the exception that `decode` raised."""
    message = getattr(error, "message", None) or str(error)
    message = re.sub(r"\{\{.*?\}\}|\[Op:.*|name: ?$", "", message)
    lines = [line.strip() for line in message.splitlines()]
    lines = [line for line in lines if line and not line.startswith(_TRACE)]
    found = lines[0] if lines else type(error).__name__
    return re.sub(r"^assertion failed: \[(.*?)\].*", r"\1", found)[:200]
