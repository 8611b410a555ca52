"""The part of an image that the policy `crop` keeps."""

from __future__ import annotations


def centred_square(height: int, width: int) -> tuple[int, int, int]:
    """Returns the centred square whose side is the image's short side.

    `resizing.resize` has the same arithmetic on tensors, for sizes that a graph does not know.

    Args:
        height: Of the image, pixels.
        width: Of the image, pixels.

    Returns:
        Its top, left and side, pixels; an odd pixel is left over at the bottom or right.
    """
    side = min(height, width)
    return (height - side) // 2, (width - side) // 2, side
