"""Many images: found in folders, read ahead of their turn, and captioned."""

from __future__ import annotations

import itertools
import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import numpy as np
from PIL import Image

from sat_tf.images import SUFFIXES
from sat_tf.images.pillow import ImageInput, decode, read_content
from sat_tf.inference.captions import Caption

Item, Read = TypeVar("Item"), TypeVar("Read")

_AHEAD = 2
_LOG = logging.getLogger(__name__)


def read_ahead(items: Iterable[Item], read: Callable[[Item], Read]) -> Iterator[Read]:
    """Yields `read(item)` of each item in turn; another thread reads up to two items more.

    Items are taken one by one, in the caller's thread. What `read` raises comes in its turn.
    """
    reader = ThreadPoolExecutor(1)
    waiting: deque[Future[Read]] = deque()
    try:
        for item in items:
            waiting.append(reader.submit(read, item))
            if len(waiting) > _AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        reader.shutdown(wait=False, cancel_futures=True)


def image_files(paths: Iterable[Path]) -> list[Path]:
    """Replaces each folder by the image files in it and in folders below, sorted by name.

    Hidden ones and figures of earlier captions are left out.

    Raises:
        ValueError: A folder has none.
    """
    from sat_tf.inference.figures import is_figure

    files = []
    for path in paths:
        if not path.is_dir():
            files.append(path)
            continue
        found = []
        for folder, folders, names in os.walk(path):
            folders[:] = sorted(name for name in folders if name[0] != ".")
            shown = (n for n in sorted(names) if n.lower().endswith(SUFFIXES) and n[0] != ".")
            found += [file for name in shown if not is_figure(file := Path(folder, name))]
        if not found:
            raise ValueError(f"The folder {path} has no images ({', '.join(SUFFIXES)}).")
        files += found
    return files


def try_decode(path: Path) -> Image.Image | ValueError:
    """Decodes an image file, upright; or returns what is wrong with it."""
    try:
        return decode(read_content(path))
    except ValueError as error:
        return error


def caption_each(
    images: Iterable[ImageInput],
    read: Callable[[ImageInput], np.ndarray],
    caption: Callable[[list[np.ndarray]], Iterable[Caption]],
    size: int,
) -> Iterator[tuple[ImageInput, Caption | None]]:
    """Yields each image with its caption; None if it has none, which is logged and counted.

    Args:
        images: The images.
        read: Reads an image as the encoder sees it; another thread is ahead with it.
        caption: Captions what was read of several images.
        size: Most images that are captioned at once.

    Raises:
        ValueError: Something is no image at all; unlike a file that cannot be read.
    """

    def attempt(image: ImageInput) -> tuple[ImageInput, np.ndarray | ValueError]:
        try:
            return image, read(image)
        except ValueError as error:
            if isinstance(image, str | Path | bytes | Image.Image):
                return image, error
            raise

    ahead, count, skipped = read_ahead(images, attempt), 0, 0
    while batch := list(itertools.islice(ahead, size)):
        captions = iter(caption([found for _, found in batch if isinstance(found, np.ndarray)]))
        for image, found in batch:
            count += 1
            try:
                if isinstance(found, ValueError):
                    raise found
                made = next(captions)
            except ValueError as error:
                made, skipped = None, skipped + 1
                name = image if isinstance(image, str | Path) else f"image {count}"
                _LOG.warning("Skipped %s: %s", name, error)
            yield image, made
    if skipped:
        _LOG.warning("%d of %d images have no caption.", skipped, count)
