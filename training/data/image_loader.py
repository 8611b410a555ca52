"""Reads examples' images from wherever they are stored, or says why they cannot be read."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from sat_tf.images import decoding, pillow
from training.data.examples import Example, StoredImage

READERS = 2
"""Threads that decode while the model computes."""
UNREADABLE = (OSError, tf.errors.OpError, ValueError, TypeError)
"""Exceptions of `read_image` for an image that is to be skipped."""

_LOOK_AHEAD = 3  # batches


def read_image(
    image: Path | StoredImage | bytes | np.ndarray, resize: Callable[[tf.Tensor], tf.Tensor]
) -> tuple[np.ndarray, bool]:
    """Reads, decodes, turns upright and resizes an image; returns also if EXIF asked for a turn.

    Raises:
        UNREADABLE: It cannot be read; `unreadable_reason` says why.
    """
    with tf.device("/cpu:0"):
        if isinstance(image, np.ndarray):
            return resize(image).numpy(), False
        content = image if isinstance(image, bytes) else image.read_bytes()
        if not content:
            raise ValueError("the file is empty")
        content = pillow.to_decodable(content)
        upright = pillow.upright(content)
        return resize(decoding.decode(upright)).numpy(), upright is not content


def unreadable_reason(error: Exception) -> str:
    """Describes in one line why an image is skipped, from an exception of `read_image`."""
    if isinstance(error, OSError):
        return f"cannot be read: {error.strerror or error}"
    return decoding.read_error(error)


@functools.lru_cache(maxsize=8)
def _compile_resize(size: int, policy: str) -> Callable[[tf.Tensor], tf.Tensor]:
    return tf.function(
        lambda image: decoding.resize(image, size, policy),
        input_signature=[tf.TensorSpec([None, None, 3], tf.uint8)],
        autograph=False,
    )


class ImageLoader:
    """Reads, decodes and resizes images on a few threads, and notes the unreadable ones.

    Attributes:
        sizes: Index -> height and width, upright, of each image read so far.
    """

    def __init__(self, examples: Sequence[Example], size: int, policy: str) -> None:
        self._examples = examples
        self._size = size
        self._skipped: dict[int, str] = {}
        self._rotated: set[int] = set()
        self._lost: set[int] = set()
        self._resize = _compile_resize(size, policy)
        self.sizes: dict[int, tuple[int, int]] = {}  # a part of a data set has any indices

    def batches(self, indices: range, batch_size: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields `(pixels [batch_size, size, size, 3], valid [n])`; the last batch is padded."""
        pending: deque = deque()
        with ThreadPoolExecutor(READERS) as pool:
            for start in range(0, len(indices), batch_size):
                chunk = indices[start : start + batch_size]
                pending.append([pool.submit(self._load, index) for index in chunk])
                if len(pending) > _LOOK_AHEAD:
                    yield self._gather(pending.popleft(), batch_size)
            while pending:
                yield self._gather(pending.popleft(), batch_size)

    def notes(self, indices: range) -> dict[str, Any]:
        """Returns the notes on some images, as in the JSON file of a shard.

        `skipped`, index -> reason; `rotated`, indices of the images that EXIF turned; `lost`,
        indices of those that the drive did not give, so that their content is unknown.
        """
        return {
            "skipped": {str(i): self._skipped[i] for i in indices if i in self._skipped},
            "rotated": [i for i in indices if i in self._rotated],
            "lost": [i for i in indices if i in self._lost],
        }

    def _gather(self, futures: list, batch_size: int) -> tuple[np.ndarray, np.ndarray]:
        loaded = [future.result() for future in futures]
        pixels = np.zeros((batch_size, self._size, self._size, 3), np.float32)
        for row, image in enumerate(loaded):
            if image is not None:
                pixels[row] = image
        return pixels, np.array([image is not None for image in loaded])

    def _load(self, index: int) -> np.ndarray | None:
        def resize(image: tf.Tensor) -> tf.Tensor:
            self.sizes[int(index)] = tuple(image.shape[:2])
            return self._resize(image)

        try:
            pixels, rotated = read_image(self._examples[index].image, resize)
        except UNREADABLE as error:
            self._skipped[index] = unreadable_reason(error)
            if isinstance(error, OSError):
                self._lost.add(index)
            return None
        if rotated:
            self._rotated.add(index)
        return pixels
