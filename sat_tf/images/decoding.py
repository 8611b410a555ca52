"""Decodes image files to RGB, in TensorFlow operations."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

import tensorflow as tf

from sat_tf.images import headers
from sat_tf.images.resizing import resize

# Beginnings of the lines that TensorFlow puts around a message.
_TRACE = ("Graph execution error", "Detected at node", 'File "', "<stack traces", "[[")


def load(image_bytes: tf.Tensor | bytes, size: int, policy: str) -> tf.Tensor:
    """Decodes and resizes: float32 `[size, size, 3]`, values 0 to 255."""
    return resize(decode(image_bytes), size, policy)


def decode(image_bytes: tf.Tensor | bytes) -> tf.Tensor:
    """Decodes an encoded image to RGB.

    Reads JPEG (grey and CMYK too), PNG (palette and 16 bit too), GIF (first frame), BMP (of 8,
    24 or 32 bits per pixel, not compressed) and WebP (first frame). What is transparent
    lies over white, see `sat_tf.images.pillow.to_rgb`; EXIF orientation is ignored.

    Args:
        image_bytes: Scalar string, the content of an image file.

    Returns:
        uint8 `[height, width, 3]`.

    Raises:
        tf.errors.InvalidArgumentError: The bytes are not an image that can be read, or its header
            asks for more than `sat_tf.images.headers` allows.
    """
    return _decode(tf.convert_to_tensor(image_bytes, tf.string))


# Compiled, since the headers take some dozens of small operations, slow one by one.
@functools.partial(tf.function, autograph=False, input_signature=[tf.TensorSpec([], tf.string)])
def _decode(image_bytes: tf.Tensor) -> tf.Tensor:
    image, problem = read(image_bytes)
    with tf.control_dependencies([tf.debugging.Assert(tf.equal(problem, ""), [problem])]):
        return tf.identity(image)


def read(image_bytes: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Decodes an image file, or says why it must not be decoded.

    Returns:
        uint8 `[height, width, 3]`, see `decode`, without pixels if there is a reason; scalar
        string, the reason, empty if the image was decoded.

    Raises:
        tf.errors.InvalidArgumentError: The file is damaged.
    """
    readers = [  # in the order of `headers.FORMATS`
        (headers.check_jpeg, _decode_jpeg),
        (headers.check_png, _decode_png),
        (headers.check_gif, _decode_gif),
        (headers.check_bmp, _decode_bmp),
        (headers.check_webp, _decode_webp),
    ]

    def branch(check: Callable, decode: Callable) -> tuple[tf.Tensor, tf.Tensor]:
        content, problem = check(image_bytes)
        return tf.cond(tf.equal(problem, ""), lambda: decode(content), _no_pixels), problem

    branches = [functools.partial(branch, *reader) for reader in readers]
    branches.append(lambda: (_no_pixels(), tf.constant(headers.NO_IMAGE)))
    image, problem = tf.switch_case(headers.read_format(image_bytes), branches)
    return tf.ensure_shape(image, [None, None, 3]), problem


def _no_pixels() -> tf.Tensor:
    return tf.zeros([0, 0, 3], tf.uint8)


def _decode_jpeg(content: tf.Tensor) -> tf.Tensor:
    # The default transform is a little quicker and off by up to six grey levels, which moved
    # MobileNetV2's annotations by 6.5 % of their mean; this one gives Pillow's pixels.
    return tf.io.decode_jpeg(content, channels=3, dct_method="INTEGER_ACCURATE")


def _decode_gif(content: tf.Tensor) -> tf.Tensor:
    return tf.io.decode_image(content, channels=3, expand_animations=False)


def _decode_bmp(content: tf.Tensor) -> tf.Tensor:
    # decode_image refuses a BMP whose number of channels is not the one asked for.
    image = tf.io.decode_bmp(content)
    # The decoder returns palette indices for 8 bits per pixel and the fourth byte for 32.
    return tf.cond(
        tf.shape(image)[-1] == 1,
        lambda: tf.gather(headers.bmp_palette(content), tf.cast(image[..., 0], tf.int32)),
        lambda: image[..., :3],
    )


def _decode_webp(content: tf.Tensor) -> tf.Tensor:
    # With channels=3 the decoder refuses a file that has alpha, as every animation does.
    return _over_white(tf.io.decode_image(content, expand_animations=False))


def _decode_png(content: tf.Tensor) -> tf.Tensor:
    # The alpha that a file lacks is filled in as 2^bits - 1 even where it has less than 8 bits.
    bits = tf.cast(tf.io.decode_raw(tf.strings.substr(content, 24, 1), tf.uint8)[0], tf.int32)
    opaque = tf.bitwise.left_shift(1, tf.minimum(bits, 8)) - 1
    return _over_white(tf.io.decode_png(content, channels=4), tf.cast(opaque, tf.uint8))


def _over_white(image: tf.Tensor, opaque: tf.Tensor | int = 255) -> tf.Tensor:
    """Lays a uint8 image, `[h, w, 3 or 4]`, over white, unless its alpha is `opaque` everywhere."""
    colour, alpha = image[..., :3], image[..., 3:]

    def blend() -> tf.Tensor:
        wide, share = tf.cast(colour, tf.uint16), tf.cast(alpha, tf.uint16)
        return tf.cast((wide * share + 127) // 255 + 255 - share, tf.uint8)

    return tf.cond(tf.reduce_all(tf.equal(alpha, opaque)), lambda: colour, blend)


def read_error(error: Exception) -> str:
    """Returns in one line what is wrong with an image, from the exception that `load` raised."""
    message = getattr(error, "message", None) or str(error)
    message = re.sub(r"\{\{.*?\}\}|\[Op:.*|name: ?$", "", message)
    lines = [line.strip() for line in message.splitlines()]
    lines = [line for line in lines if line and not line.startswith(_TRACE)]
    found = lines[0] if lines else type(error).__name__
    return re.sub(r"^assertion failed: \[(.*?)\].*", r"\1", found)[:200]
