"""Decodes image files to RGB, in TensorFlow operations, and reads their headers before.

A file of some kilobytes can ask for gigabytes of pixels or minutes of work; its header tells. Each
`check_...` takes a file of its format, a scalar string, and returns two: the content to decode,
changed where TensorFlow's decoders do not bear it, and the reason why the file must not be decoded,
empty if it may be.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

import tensorflow as tf

from sat_tf.images import MAX_PIXELS, MAX_SIDE
from sat_tf.images.pillow import FEW_SCANS, MANY_SCANS, MAX_SCANNED_PIXELS, MAX_SCANS, MAX_SEGMENTS
from sat_tf.images.resizing import resize

FORMATS = ("JPEG", "PNG", "WebP")
"""Formats that are decoded here; `sat_tf.images.pillow.to_decodable` converts others to them."""
UNKNOWN = len(FORMATS)
SIZE_LIMITS = f"has no pixels, or more than {MAX_SIDE} per side or {MAX_PIXELS} in all"
NO_IMAGE = f"the bytes are not a {', '.join(FORMATS[:-1])} or {FORMATS[-1]} image"

Checked = tuple[tf.Tensor, tf.Tensor]

_WRONG_SIZE = f"the image {SIZE_LIMITS}"

_HEAD = 32  # bytes that hold the sizes of every format but JPEG
_WEBP_ANIMATION, _WEBP_ALPHA = 0x02, 0x10  # flags of the extended header, byte 20
_START_OF_SCAN, _START, _END = 0xDA, 0xD8, 0xD9  # of a JPEG
# Beginnings of the lines that TensorFlow puts around a message.
_TRACE = ("Graph execution error", "Detected at node", 'File "', "<stack traces", "[[")


def load(image_bytes: tf.Tensor | bytes, size: int, policy: str) -> tf.Tensor:
    """Decodes and resizes: float32 `[size, size, 3]`, values 0 to 255."""
    return resize(decode(image_bytes), size, policy)


def decode(image_bytes: tf.Tensor | bytes) -> tf.Tensor:
    """Decodes an encoded image to RGB.

    Reads JPEG (grey and CMYK too), PNG (palette and 16 bit too) and WebP (first frame). What is
    transparent lies over white, see `sat_tf.images.pillow.to_rgb`; EXIF orientation is ignored.

    Args:
        image_bytes: Scalar string, the content of an image file.

    Returns:
        uint8 `[height, width, 3]`.

    Raises:
        tf.errors.InvalidArgumentError: The bytes are not an image that can be read, or its header
            asks for more than the limits allow.
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
    readers = [  # in the order of `FORMATS`
        (check_jpeg, _decode_jpeg),
        (check_png, _decode_png),
        (check_webp, _decode_webp),
    ]

    def branch(check: Callable, decode: Callable) -> tuple[tf.Tensor, tf.Tensor]:
        content, problem = check(image_bytes)
        return tf.cond(tf.equal(problem, ""), lambda: decode(content), _no_pixels), problem

    branches = [functools.partial(branch, *reader) for reader in readers]
    branches.append(lambda: (_no_pixels(), tf.constant(NO_IMAGE)))
    image, problem = tf.switch_case(read_format(image_bytes), branches)
    return tf.ensure_shape(image, [None, None, 3]), problem


def _no_pixels() -> tf.Tensor:
    return tf.zeros([0, 0, 3], tf.uint8)


def _decode_jpeg(content: tf.Tensor) -> tf.Tensor:
    # The default transform is a little quicker and off by up to six grey levels, which moved
    # MobileNetV2's annotations by 6.5 % of their mean; this one gives Pillow's pixels.
    return tf.io.decode_jpeg(content, channels=3, dct_method="INTEGER_ACCURATE")


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


# --- headers ---


def read_format(image_bytes: tf.Tensor) -> tf.Tensor:
    """Recognises a file by its first bytes.

    Returns:
        Scalar int32, an index into `FORMATS`; `UNKNOWN` for anything else.
    """
    head = _head_of(image_bytes)
    is_format = [
        _starts_with(head, b"\xff\xd8"),
        # The decoder also takes a PNG whose IHDR comes late; its size would not be known here.
        _starts_with(head, b"\x89PNG\r\n\x1a\n") & _starts_with(head[12:], b"IHDR"),
        _starts_with(head, b"RIFF") & _starts_with(head[8:], b"WEBP"),
        tf.constant(True),
    ]
    return tf.argmax(tf.cast(tf.stack(is_format), tf.int32), output_type=tf.int32)


def size_fits(size: tf.Tensor) -> tf.Tensor:
    """Returns whether an image of `(height, width)`, int64 `[2]`, may be decoded: scalar bool."""
    sides = (tf.reduce_min(size) > 0) & (tf.reduce_max(size) <= MAX_SIDE)
    return sides & (tf.reduce_prod(size) <= MAX_PIXELS)


def _problem(size: tf.Tensor, plain: tf.Tensor | bool = True, otherwise: str = "") -> tf.Tensor:
    return tf.where(size_fits(size), tf.where(plain, "", otherwise), _WRONG_SIZE)


def check_jpeg(image_bytes: tf.Tensor) -> Checked:
    """Checks size and scans; raises `InvalidArgumentError` on a damaged header."""
    size = tf.cast(tf.image.extract_jpeg_shape(image_bytes)[:2], tf.int64)
    scans = count_scans(image_bytes)
    few = (scans <= MAX_SCANS) & (scans * tf.reduce_prod(size) <= MAX_SCANNED_PIXELS)
    return image_bytes, _problem(size, few, MANY_SCANS)


def check_png(image_bytes: tf.Tensor) -> Checked:
    """Checks the size."""
    head = _head_of(image_bytes)
    size = tf.stack([_number(head[20:24][::-1]), _number(head[16:20][::-1])])
    return image_bytes, _problem(size)


def check_webp(image_bytes: tf.Tensor) -> Checked:
    """Checks the size, and marks every animation as having an alpha channel.

    Frames of an animation are always decoded to RGBA, but TensorFlow 2.20 and 2.21 take the number
    of channels from the header: for an animation whose alpha flag is off they allocate three
    channels and write four, past the end of the buffer. The flag changes nothing else.
    """
    head = _head_of(image_bytes)
    lossless = _number(head[21:25])
    sizes = {
        b"VP8 ": [_number(head[28:30]) % 2**14, _number(head[26:28]) % 2**14],
        b"VP8L": [lossless // 2**14 % 2**14 + 1, lossless % 2**14 + 1],
        b"VP8X": [_number(head[27:30]) + 1, _number(head[24:27]) + 1],
    }
    size = tf.zeros([2], tf.int64)  # of an unknown kind
    for kind, of_kind in sizes.items():
        size = tf.where(_starts_with(head[12:], kind), tf.stack(of_kind), size)
    # A file too short for the flags reads as zeros there, so it is never marked.
    flags = tf.ensure_shape(head[20], [])
    animated = tf.bitwise.bitwise_and(flags, _WEBP_ANIMATION) > 0

    def marked() -> tf.Tensor:
        byte = tf.gather([bytes([value | _WEBP_ALPHA]) for value in range(256)], flags)
        rest = tf.strings.substr(image_bytes, 21, tf.strings.length(image_bytes))
        return tf.strings.join([tf.strings.substr(image_bytes, 0, 20), byte, rest])

    is_marked = _starts_with(head[12:], b"VP8X") & animated
    return tf.cond(is_marked, marked, lambda: image_bytes), _problem(size)


def count_scans(image_bytes: tf.Tensor) -> tf.Tensor:
    """Counts the scans of a JPEG, or bounds them from above; as `pillow.check_scans`.

    Returns:
        Scalar int64; more than `MAX_SCANS` if the file has too many segments to follow.
    """
    data = tf.io.decode_raw(image_bytes, tf.uint8)
    marked = (data[:-1] == 0xFF) & (data[1:] == _START_OF_SCAN)
    count = tf.size(tf.where(marked), tf.int64)
    # Thumbnails and what follows the end may hold the same two bytes: then look closer.
    return tf.cond(count <= FEW_SCANS, lambda: count, lambda: _follow_segments(data))


def _follow_segments(data: tf.Tensor) -> tf.Tensor:
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


def _head_of(image_bytes: tf.Tensor) -> tf.Tensor:
    """Returns the first bytes, int32 `[32]`, zeros after the end of a shorter file."""
    head = tf.strings.join([tf.strings.substr(image_bytes, 0, _HEAD), b"\0" * _HEAD])
    head = tf.io.decode_raw(tf.strings.substr(head, 0, _HEAD), tf.uint8)
    return tf.ensure_shape(tf.cast(head, tf.int32), [_HEAD])


def _starts_with(head: tf.Tensor, prefix: bytes) -> tf.Tensor:
    return tf.reduce_all(head[: len(prefix)] == list(prefix))


def _number(digits: tf.Tensor) -> tf.Tensor:
    """Reads an unsigned number of up to four bytes, the lowest first; int64, so it never wraps."""
    weights = [256**place for place in range(digits.shape[0])]
    return tf.reduce_sum(tf.cast(digits, tf.int64) * tf.constant(weights, tf.int64))
