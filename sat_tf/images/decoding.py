"""Decodes image files to RGB in TensorFlow operations; their headers are read before.

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

FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WebP")
UNKNOWN = len(FORMATS)
SIZE_LIMITS = f"has no pixels, or more than {MAX_SIDE} per side or {MAX_PIXELS} in all"
NO_IMAGE = f"the bytes are not a {', '.join(FORMATS[:-1])} or {FORMATS[-1]} image"
MAX_RUNS = 2**9
"""Runs of equally long data blocks before the end of a GIF's first frame; writers leave a few."""

Checked = tuple[tf.Tensor, tf.Tensor]

_WRONG_SIZE = f"the image {SIZE_LIMITS}"
_NO_FRAME = "the GIF has no whole first frame, or one of too many blocks"
_WRONG_BMP = "the BMP is compressed, or its channels are not blue, green, red"

_HEAD = 32  # bytes that hold the sizes of every format but JPEG and GIF
_BMP_HEAD = 66  # bytes: up to the masks of the channels
_WEBP_ANIMATION, _WEBP_ALPHA = 0x02, 0x10  # flags of the extended header, byte 20
_START_OF_SCAN, _START, _END = 0xDA, 0xD8, 0xD9  # of a JPEG
_GIF_TRANSPARENT = 0x01  # flag of the graphic control extension
_GIF_CONTROL = 0xF9  # label of the extension that may make a colour of the frame transparent
_BLOCKS_AT_ONCE = 2**10
# What the byte at the current position of a GIF belongs to.
_BETWEEN, _EXTENSION, _FRAME, _DONE = range(4)
# Beginnings of the lines that TensorFlow puts around a message.
_TRACE = ("Graph execution error", "Detected at node", 'File "', "<stack traces", "[[")


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
        (check_gif, _decode_gif),
        (check_bmp, _decode_bmp),
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


def _decode_gif(content: tf.Tensor) -> tf.Tensor:
    return tf.io.decode_image(content, channels=3, expand_animations=False)


def _decode_bmp(content: tf.Tensor) -> tf.Tensor:
    # decode_image refuses a BMP whose number of channels is not the one asked for.
    image = tf.io.decode_bmp(content)
    # The decoder returns palette indices for 8 bits per pixel and the fourth byte for 32.
    return tf.cond(
        tf.shape(image)[-1] == 1,
        lambda: tf.gather(bmp_palette(content), tf.cast(image[..., 0], tf.int32)),
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
    """Returns in one line what is wrong with an image, from the exception that `decode` raised."""
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
        _starts_with(head, b"GIF8"),
        _starts_with(head, b"BM"),
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


def check_gif(image_bytes: tf.Tensor) -> Checked:
    """Cuts a GIF after its first frame, and checks the frame's size."""
    frame, size = first_frame(image_bytes)
    return frame, tf.where(tf.reduce_max(size) > 0, _problem(size), _NO_FRAME)


def check_bmp(image_bytes: tf.Tensor) -> Checked:
    """Checks size, compression and the order of the channels.

    The decoder takes every file for plain bytes, in the order blue, green, red.
    """
    head = _head_of(image_bytes, _BMP_HEAD)
    height, compression = _number(head[22:26]), _number(head[30:34])
    # A negative height says that the rows come from the top.
    size = tf.stack([tf.minimum(height, 2**32 - height), _number(head[18:22])])
    masks = tf.stack([_number(head[start : start + 4]) for start in (54, 58, 62)])
    usual = tf.reduce_all(masks == [0xFF0000, 0xFF00, 0xFF])
    return image_bytes, _problem(
        size, (compression == 0) | ((compression == 3) & usual), _WRONG_BMP
    )


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
    content = tf.cond(
        _starts_with(head[12:], b"VP8X") & animated,
        lambda: _change_byte(image_bytes, 20, lambda value: value | _WEBP_ALPHA),
        lambda: image_bytes,
    )
    return content, _problem(size)


def bmp_palette(image_bytes: tf.Tensor) -> tf.Tensor:
    """Reads the colours of a BMP of 8 bits per pixel.

    Returns:
        uint8 `[256, 3]`; black where the file names no colour.
    """
    head = _head_of(image_bytes, _BMP_HEAD)
    count = (_number(head[46:50]) - 1) % 2**32 + 1  # 0 stands for all
    start = 14 + _number(head[14:18])
    stored = tf.strings.substr(image_bytes, start, 4 * tf.minimum(count, 256))
    stored = tf.strings.substr(tf.strings.join([stored, b"\0" * 1024]), 0, 1024)
    colours = tf.reshape(tf.io.decode_raw(stored, tf.uint8), [256, 4])
    return colours[:, 2::-1]  # stored as blue, green, red and an unused byte


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


def first_frame(image_bytes: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Cuts a GIF after its first frame.

    The decoder unpacks every frame before it returns the first, and an animation of a few
    megabytes can hold thousands. The colour that is transparent becomes white and opaque, as in
    other formats: the decoder would paint it black.

    Returns:
        Scalar string, a GIF of one frame; int64 `[2]`, `(height, width)`, zeros if no frame was
        found within `MAX_RUNS`.
    """
    length = tf.strings.length(image_bytes)
    data = tf.io.decode_raw(tf.strings.join([image_bytes, b"\0" * _HEAD]), tf.uint8)

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
        controls = begins_extension & (here[1] == _GIF_CONTROL)
        frame = tf.where(begins_frame, position, frame)
        return position + step, after, frame, tf.where(controls, position, control)

    screen = _head_of(image_bytes)
    nowhere = tf.constant(-1)
    start = (13 + _colour_table(screen[10]), tf.constant(_BETWEEN), nowhere, nowhere)
    end, state, frame, control = tf.while_loop(
        lambda position, state, *_: (state != _DONE) & (position < length),
        body,
        start,
        maximum_iterations=MAX_RUNS,
    )
    sides = tf.ensure_shape(data[frame + 5 : frame + 9], [4])
    declared = tf.stack([_number(sides[2:]), _number(sides[:2])])
    canvas = tf.stack([_number(screen[8:10]), _number(screen[6:8])])
    found = (frame > 0) & (tf.reduce_min(declared) > 0) & ((state == _DONE) | (end >= length))
    size = tf.where(found, tf.maximum(declared, canvas), tf.zeros([2], tf.int64))
    kept, flags = tf.strings.substr(image_bytes, 0, tf.minimum(end, length)), control + 3
    opaque = tf.cond(
        (control > 0) & (flags < tf.strings.length(kept)),
        lambda: _whitened(kept, data, flags, frame),
        lambda: kept,
    )
    return tf.strings.join([opaque, b";"]), size


def _whitened(gif: tf.Tensor, data: tf.Tensor, flags: tf.Tensor, frame: tf.Tensor) -> tf.Tensor:
    """Makes white the colour that flags at a place of a GIF make transparent, and clears them."""
    own = tf.cast(data[frame + 9], tf.int32) >= 128  # the frame has a table of colours
    place = tf.where(own, frame + 10, 13) + 3 * tf.cast(data[flags + 3], tf.int32)
    used = (data[flags] & _GIF_TRANSPARENT > 0) & (place + 3 <= tf.strings.length(gif))
    rest = tf.strings.substr(gif, place + 3, tf.strings.length(gif))
    white = tf.cond(
        used,
        lambda: tf.strings.join([tf.strings.substr(gif, 0, place), b"\xff" * 3, rest]),
        lambda: gif,
    )
    return _change_byte(white, flags, lambda value: value & ~_GIF_TRANSPARENT)


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


def _head_of(image_bytes: tf.Tensor, size: int = _HEAD) -> tf.Tensor:
    """Returns the first bytes, int32 `[size]`, zeros after the end of a shorter file."""
    head = tf.strings.join([tf.strings.substr(image_bytes, 0, size), b"\0" * size])
    head = tf.io.decode_raw(tf.strings.substr(head, 0, size), tf.uint8)
    return tf.ensure_shape(tf.cast(head, tf.int32), [size])


def _starts_with(head: tf.Tensor, prefix: bytes) -> tf.Tensor:
    return tf.reduce_all(head[: len(prefix)] == list(prefix))


def _number(digits: tf.Tensor) -> tf.Tensor:
    """Reads an unsigned number of up to four bytes, the lowest first; int64, so it never wraps."""
    weights = [256**place for place in range(digits.shape[0])]
    return tf.reduce_sum(tf.cast(digits, tf.int64) * tf.constant(weights, tf.int64))


def _change_byte(
    image_bytes: tf.Tensor, place: tf.Tensor | int, change: Callable[[int], int]
) -> tf.Tensor:
    """Returns the file with the byte at `place`, which it must have, replaced by `change` of it."""
    changed = tf.constant([bytes([change(value)]) for value in range(256)])
    byte = tf.io.decode_raw(tf.strings.substr(image_bytes, place, 1), tf.uint8)[0]
    before = tf.strings.substr(image_bytes, 0, place)
    after = tf.strings.substr(image_bytes, place + 1, tf.strings.length(image_bytes))
    return tf.strings.join([before, changed[tf.cast(byte, tf.int32)], after])
