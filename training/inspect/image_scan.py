"""One pass over the images of a split, before training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sat_tf.config import EncoderConfig
from sat_tf.progress import progress_bar
from training.data.examples import Example, Split
from training.data.image_loader import ImageLoader
from training.inspect.duplicates import Prints

_BATCH = 8


@dataclass(frozen=True, eq=False)
class ImageScan:
    """Results of a pass over the images of a split.

    Attributes:
        skipped: Index -> reason of each image that cannot be decoded.
        rotated: Indices of the images that were turned upright according to their EXIF.
        prints: Fingerprints by which duplicates are found.
    """

    skipped: dict[int, str]
    rotated: list[int]
    prints: Prints


def scan_images(split: Split, config: EncoderConfig) -> ImageScan:
    """Decodes every image of a split, with a few batches in memory at a time."""
    loader = ImageLoader(split.examples, config.image_size, config.resize)
    everything, prints, index = range(len(split)), Prints.empty(len(split)), 0
    with progress_bar(len(split), f"Images of {split.name}", "images") as bar:
        for pixels, valid in loader.batches(everything, _BATCH):
            for row in np.flatnonzero(valid):
                prints.take(index + int(row), pixels[row])
            index += len(valid)
            bar.update(len(valid))
    notes = loader.notes(everything)
    skipped = {int(index): reason for index, reason in notes["skipped"].items()}
    return ImageScan(skipped, notes["rotated"], prints)


def sample_images(
    split: Split, scan: ImageScan, config: EncoderConfig, count: int
) -> Iterator[tuple[Example, np.ndarray, bool]]:
    """Reads a few images, evenly spread over a split, as the encoder sees them.

    Yields:
        The example, uint8 `[S, S, 3]`, and whether the image was turned upright.
    """
    usable = np.flatnonzero(scan.prints.readable)
    chosen = usable[np.linspace(0, len(usable) - 1, min(count, len(usable))).round().astype(int)]
    examples = [split.examples[index] for index in chosen]
    loader = ImageLoader(examples, config.image_size, config.resize)
    batches = loader.batches(range(len(examples)), 1)
    for example, index, (pixels, _) in zip(examples, chosen, batches, strict=True):
        yield example, np.round(pixels[0]).astype(np.uint8), int(index) in scan.rotated
