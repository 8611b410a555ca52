"""A model's inputs by example: images read from wherever they are stored, or why they cannot be."""

from __future__ import annotations

import functools
import hashlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import tensorflow as tf

from sat_tf.images import decoding, pillow
from sat_tf.util.files import read_content
from training.data.examples import AnyImage, DataError, Example, Split

READERS = 2
"""Threads that decode while the model computes."""
UNREADABLE = (OSError, tf.errors.OpError, ValueError, TypeError)
"""Exceptions of `read_image` for an image that is to be skipped."""

_LOOK_AHEAD = 3  # batches


class ImageChangedError(ValueError):
    """The content of an image is not the one that was read at first."""


def read_image(
    image: AnyImage, resize: Callable[[tf.Tensor], tf.Tensor], sha256: str | None = None
) -> tuple[np.ndarray, bool]:
    """Reads, decodes, turns upright and resizes an image; returns also if EXIF asked for a turn.

    Raises:
        ImageChangedError: Its content has another SHA-256.
        UNREADABLE: It cannot be read; `unreadable_reason` says why.
    """
    with tf.device("/cpu:0"):
        if isinstance(image, np.ndarray):
            return resize(image).numpy(), False
        content = read_content(image) if isinstance(image, Path) else image.read_bytes()
        if sha256 is not None and hashlib.sha256(content).hexdigest() != sha256:
            raise ImageChangedError("its content has changed since it was first read")
        if not content:
            raise ValueError("the file is empty")
        upright = pillow.read_upright(content)
        turned = upright is not content and content.startswith((b"\xff\xd8", b"\x89PNG"))
        return resize(decoding.decode(upright)).numpy(), turned


def unreadable_reason(error: Exception) -> str:
    """Describes in one line why an image is skipped, from an exception of `read_image`."""
    if isinstance(error, ImageChangedError):
        return str(error)
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
        skipped: Index -> why an image could not be read.
        rotated: Indices of the images that EXIF turned.
        changed: Indices of those that `Example.sha256` is not of any more.
    """

    def __init__(self, examples: Sequence[Example], size: int, policy: str) -> None:
        self._examples, self._size = examples, size
        self._resize = _compile_resize(size, policy)
        self.skipped: dict[int, str] = {}
        self.rotated: set[int] = set()
        self.changed: set[int] = set()

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

    def _gather(self, futures: list, batch_size: int) -> tuple[np.ndarray, np.ndarray]:
        loaded = [future.result() for future in futures]
        valid = np.array([image is not None for image in loaded])
        pixels = np.zeros((batch_size, self._size, self._size, 3), np.float32)
        for row in np.flatnonzero(valid):
            pixels[row] = loaded[row]
        return pixels, valid

    def _load(self, index: int) -> np.ndarray | None:
        example = self._examples[index]
        try:
            pixels, rotated = read_image(example.image, self._resize, example.sha256)
        except UNREADABLE as error:
            self.skipped[index] = unreadable_reason(error)
            if example.sha256 is not None and isinstance(error, OSError | ImageChangedError):
                self.changed.add(index)
            return None
        if rotated:
            self.rotated.add(index)
        return pixels


@dataclass(frozen=True, eq=False)
class Views:
    """Views of the images of `n` captions."""

    mirrored: np.ndarray  # bool `[n]`, True if flipped left to right
    corners: np.ndarray  # `[n, 2]` in [0, 1): top and left of a crop, shares of its room

    @classmethod
    def draw(cls, count: int, seed: int, epoch: int) -> Views:
        """Draws the views of an epoch for `count` captions."""
        return cls(
            np.random.default_rng([seed, epoch, 1]).random(count) < 0.5,
            np.random.default_rng([seed, epoch, 2]).random((count, 2)),
        )

    def __getitem__(self, rows: np.ndarray | slice) -> Views:
        return Views(self.mirrored[rows], self.corners[rows])


class InputSource(Protocol):
    """Model inputs for the examples of a split, by index."""

    key: str  # name of the input in a batch: `annotations` or `images`
    mirrored: bool  # views may be mirrored
    random_crop: float  # share of height and width that views leave out
    known: Mapping[int, str]  # index -> reason of images unreadable when the source was opened
    found: Mapping[int, str]  # the same of those found so far, by reading
    rotated: Sequence[int]  # indices of files turned upright by EXIF, among those read so far
    spec: tf.TensorSpec  # shape and dtype of a batch of inputs

    @property
    def skipped(self) -> Mapping[int, str]:
        """Index -> reason of each unreadable image; reads those that were not read yet."""
        ...

    def read(self, indices: np.ndarray, views: Views | None = None) -> np.ndarray:
        """Reads inputs `[n, ...]` of examples `[n]`; applies the views that the source supports.

        Zeros for an unreadable image, which `found` then has.
        """
        ...


class ImageSource:
    """Images for a trained encoder; files are read again each time, so memory stays bounded.

    Drawn images of the right size are kept in memory. Whether a file can be decoded shows when it
    is first read; in training, another caption then takes the place of its captions.

    Args:
        examples: The examples of a split.
        size: Side of the images that are read, pixels.
        resize: `crop` or `squash`.
        mirrored: Whether views may be mirrored.
        random_crop: Share of height and width that a view leaves out; it is cropped from an image
            that is enlarged accordingly.
    """

    key = "images"

    def __init__(
        self,
        examples: Sequence[Example],
        size: int,
        resize: str,
        mirrored: bool = False,
        random_crop: float = 0.0,
    ) -> None:
        self._examples, self._size, self._resize = examples, size, resize
        self.mirrored, self.random_crop = mirrored, random_crop
        self._uncropped_size = round(size / (1.0 - random_crop))
        self.known: dict[int, str] = {}
        self.found: dict[int, str] = {}
        self.spec = tf.TensorSpec([None, size, size, 3], tf.uint8)
        self._rotated: set[int] = set()
        self._read = np.zeros(len(examples), bool)
        self._pool = ThreadPoolExecutor(READERS)
        self._drawn = None
        if all(getattr(one.image, "shape", None) == (size, size, 3) for one in examples):
            self._drawn = np.stack([example.image for example in examples])
            self._read[:] = True

    @property
    def rotated(self) -> list[int]:
        """See `InputSource`."""
        return sorted(self._rotated)

    @property
    def skipped(self) -> dict[int, str]:
        """See `InputSource`."""
        list(self._pool.map(self._load, np.flatnonzero(~self._read)))
        return self.found

    def read(self, indices: np.ndarray, views: Views | None = None) -> np.ndarray:
        """Reads uint8 `[n, size, size, 3]`."""
        if not len(indices):
            return np.zeros([0, self._size, self._size, 3], np.uint8)
        if views is not None and self._uncropped_size > self._size:
            pixels = np.stack(list(self._pool.map(self._load_crop, indices, views.corners)))
        elif self._drawn is not None:
            pixels = self._drawn[indices]
        else:
            pixels = np.stack(list(self._pool.map(self._load, indices)))
        if views is not None and self.mirrored:
            pixels = np.where(views.mirrored[:, None, None, None], pixels[:, :, ::-1], pixels)
        return pixels

    def _load_crop(self, index: int, corner: np.ndarray) -> np.ndarray:
        pixels = self._load(index, self._uncropped_size)
        top, left = (corner * (len(pixels) - self._size + 1)).astype(int)
        return pixels[top : top + self._size, left : left + self._size]

    def _load(self, index: int, size: int | None = None) -> np.ndarray:
        size, index = size or self._size, int(index)
        resize = functools.partial(decoding.resize, size=size, policy=self._resize)
        example = self._examples[index]
        try:
            pixels, rotated = read_image(example.image, resize, example.sha256)
        except UNREADABLE as error:
            self.found[index] = unreadable_reason(error)
            pixels, rotated = np.zeros([size, size, 3], np.float32), False
        self._read[index] = True
        if rotated:
            self._rotated.add(index)
        return np.round(pixels).astype(np.uint8)


def readable_images(split: Split, source: InputSource, count: int | None = None) -> np.ndarray:
    """Returns the indices of the images that can be read, or of the first `count` of them."""
    return np.setdiff1d(np.arange(len(split)), list(source.skipped))[:count]


def check_readable(split: Split, unreadable: Mapping[int, str]) -> None:
    """Checks that at least one image of a split can be read.

    Raises:
        DataError: None can be read.
    """
    if len(unreadable) == len(split):
        reason = next(iter(unreadable.values()))
        raise DataError(f"No image of the {split.name} split can be read; the first one: {reason}.")


def check_first_readable(split: Split, source: InputSource) -> None:
    """Checks the same by reading images until one can be read."""
    for index in np.setdiff1d(np.arange(len(split)), list(source.known)):
        source.read(np.array([index]))
        if index not in source.found:
            return
    check_readable(split, source.skipped)
