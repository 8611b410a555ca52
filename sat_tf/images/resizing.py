"""Scales images to the encoder's square, in TensorFlow operations."""

from __future__ import annotations

import tensorflow as tf

from sat_tf.util.errors import invalid_value

POLICIES = ("crop", "squash")


def resize(image: tf.Tensor, size: int, policy: str) -> tf.Tensor:
    """Scales an image to a square (bilinear, antialiased).

    Args:
        image: `[height, width, 3]`, values 0 to 255.
        size: Side of the result, pixels.
        policy: "crop" scales the centred square whose side is the image's short side;
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
