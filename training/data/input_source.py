"""Model inputs by example index: stored annotations (frozen encoder) or images (trained one).

`FeatureStore` is the source of the first, `ImageSource` of the second.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import tensorflow as tf

from sat_tf.images import decoding
from sat_tf.layers.encoder import Encoder
from training.data.examples import DataError, Example, Split
from training.data.feature_store import FeatureStore
from training.data.image_loader import READERS, UNREADABLE, read_image, unreadable_reason

if TYPE_CHECKING:
    from training.data.batches import Views


class InputSource(Protocol):
    """Model inputs for the examples of a split, by their index."""

    key: str
    """Name of the input in a batch: `annotations` or `images`."""
    mirrored: bool
    """True if views may be mirrored."""
    skipped: dict[int, str]
    """Index -> reason of each example whose image cannot be read."""
    rotated: list[int]
    """Indices of the files that are turned upright according to their EXIF."""
    spec: tf.TensorSpec
    """Shape and dtype of a batch of inputs."""

    def read(self, indices: np.ndarray, views: Views | None = None) -> np.ndarray:
        """Reads inputs `[n, ...]` of examples `[n]`; applies the views that the source supports."""
        ...


class ImageSource:
    """Images for a trained encoder; files are read again each time, so memory stays bounded.

    Drawn images of the right size are kept in memory. Files are decoded once when the source is
    made, so that unreadable ones are skipped before training starts.

    Args:
        examples: The examples of a split.
        size: Side of the images that are read, pixels.
        resize: `crop` or `squash`.
        mirrored: Whether views may be mirrored.
        random_crop: Share of height and width that a view leaves out. A view has the same size as
            the plain image: it is cropped from one that is enlarged accordingly.
    """

    key = "images"

    def __init__(
        self,
        examples: tuple[Example, ...],
        size: int,
        resize: str,
        mirrored: bool = False,
        random_crop: float = 0.0,
    ) -> None:
        self._examples, self._size, self._resize = examples, size, resize
        self.mirrored = mirrored
        self._uncropped_size = round(size / (1.0 - random_crop))
        self.skipped: dict[int, str] = {}
        self.rotated: list[int] = []
        self.spec = tf.TensorSpec([None, size, size, 3], tf.uint8)
        self._pool = ThreadPoolExecutor(READERS)
        self._drawn = None
        shapes = {e.image.shape if isinstance(e.image, np.ndarray) else None for e in examples}
        if shapes <= {(size, size, 3)}:
            self._drawn = np.stack([example.image for example in examples])
        else:
            list(self._pool.map(self._check, range(len(examples))))

    def read(self, indices: np.ndarray, views: Views | None = None) -> np.ndarray:
        """Reads uint8 `[n, size, size, 3]`."""
        if not len(indices):
            return np.zeros([0, self._size, self._size, 3], np.uint8)
        if views is not None and self._uncropped_size > self._size:
            pixels = np.stack(list(self._pool.map(self._load_crop, indices, views.corners)))
        elif self._drawn is not None:
            pixels = self._drawn[indices]
        else:
            pixels = np.stack([loaded for loaded, _ in self._pool.map(self._load, indices)])
        if views is not None and self.mirrored:
            pixels = np.where(views.mirrored[:, None, None, None], pixels[:, :, ::-1], pixels)
        return pixels

    def _load_crop(self, index: int, corner: np.ndarray) -> np.ndarray:
        pixels, _ = self._load(index, self._uncropped_size)
        top, left = (corner * (len(pixels) - self._size + 1)).astype(int)
        return pixels[top : top + self._size, left : left + self._size]

    def _load(self, index: int, size: int | None = None) -> tuple[np.ndarray, bool]:
        resize = functools.partial(decoding.resize, size=size or self._size, policy=self._resize)
        pixels, rotated = read_image(self._examples[index].image, resize)
        return np.round(pixels).astype(np.uint8), rotated

    def _check(self, index: int) -> None:
        try:
            _, rotated = self._load(index)
        except UNREADABLE as error:
            self.skipped[index] = unreadable_reason(error)
            return
        if rotated:
            self.rotated.append(index)


def open_input_source(
    encoder: Encoder,
    resize: str,
    split: Split,
    cache_dir: Path,
    mirrored: bool = False,
    random_crop: float = 0.0,
) -> InputSource:
    """Opens stored annotations if the encoder is frozen, otherwise images.

    Raises:
        DataError: No image of the split can be read.
    """
    if encoder.trainable:
        size = encoder.image_size
        source: InputSource = ImageSource(split.examples, size, resize, mirrored, random_crop)
    else:
        source = FeatureStore.open(
            cache_dir, encoder, split.examples, resize=resize, mirrored=mirrored
        )
    check_readable(split, source.skipped)
    return source


def readable_images(split: Split, source: InputSource, count: int | None = None) -> np.ndarray:
    """Returns the indices of the images that can be read, or of the first `count` of them."""
    return np.setdiff1d(np.arange(len(split)), list(source.skipped))[:count]


def check_readable(split: Split, skipped: Mapping[int, str]) -> None:
    """Checks that at least one image of a split can be read.

    Raises:
        DataError: None can be read.
    """
    if len(skipped) == len(split):
        reason = next(iter(skipped.values()))
        raise DataError(f"No image of the {split.name} split can be read; the first one: {reason}.")
