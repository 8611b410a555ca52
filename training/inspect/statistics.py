"""Statistics of a split: its captions' count, lengths and words, and one pass over its images."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from sat_tf.config import EncoderConfig
from sat_tf.progress import progress_bar
from sat_tf.vocabulary import UNK, Unit, Vocabulary, tokenize
from training.data.examples import Example, Split
from training.data.extraction import ImageLoader
from training.inspect.duplicates import Prints

_LETTERS = 100_000  # enough to recognise the script


def caption_figures(split: Split, vocabulary: Vocabulary, max_length: int) -> dict[str, Any]:
    """Counts captions and measures them in words (or characters), as training sees them.

    Returns:
        `captions`, their number; `captions_per_image` and `length`, distributions; `blank`, the
        number of empty captions in the file (None if the data set does not count them);
        `without_words`, the number of captions of punctuation alone; `cut_share` and
        `unknown_share`, the shares in [0, 1] of captions that are cut and of unknown words.
    """
    lengths, unknown = [], 0
    for caption in captions_of(split):
        ids = vocabulary.encode(caption)
        lengths.append(len(ids))
        unknown += ids.count(UNK)
    counts = np.array([len(example.captions) for example in split.examples])
    spoken = np.array([length for length in lengths if length])
    return {
        "captions": len(lengths),
        "captions_per_image": _distribution(counts),
        "blank": split.blank_captions,
        "without_words": len(lengths) - len(spoken),
        "length": _distribution(spoken),
        "cut_share": float(np.mean(spoken > max_length)) if spoken.size else 0.0,
        "unknown_share": unknown / max(int(spoken.sum()), 1),
    }


def captions_of(split: Split) -> Iterator[str]:
    """All captions of a split, as written."""
    return (caption for example in split.examples for caption in example.captions)


def spoken_captions(split: Split, unit: Unit) -> list[str]:
    """The captions in a form that is equal for captions that training cannot tell apart."""
    spoken = ("\0".join(tokenize(caption, unit)) for caption in captions_of(split))
    return [caption for caption in spoken if caption]


def scripts(captions: Iterable[str]) -> dict[str, float]:
    """Shares of the scripts among the letters, by the first word of their Unicode names.

    Args:
        captions: Any texts; the first hundred thousand letters count.

    Returns:
        For example `{"LATIN": 0.98, "CYRILLIC": 0.02}`, the most frequent first.
    """
    letters = (char for caption in captions for char in caption if char.isalpha())
    counts = Counter(unicodedata.name(c, "?").split()[0] for c in islice(letters, _LETTERS))
    return {name: count / counts.total() for name, count in counts.most_common()}


def _distribution(values: np.ndarray) -> dict[str, float]:
    """Minimum, median, 95th percentile and maximum; zeros if there are no values."""
    values = values if values.size else np.zeros(1)
    names, shares = ("min", "median", "p95", "max"), (0, 50, 95, 100)
    return dict(zip(names, np.percentile(values, shares).tolist(), strict=True))


_BATCH = 8


@dataclass(frozen=True, eq=False)
class ImageScan:
    """Results of the pass.

    Attributes:
        skipped: Index -> reason of each image that cannot be decoded.
        rotated: Indices of the images that were turned upright according to their EXIF.
        prints: Fingerprints by which duplicates are found.
    """

    skipped: dict[int, str]
    rotated: list[int]
    prints: Prints


def scan_images(split: Split, config: EncoderConfig, verbose: bool = True) -> ImageScan:
    """Decodes every image of a split, with a few batches in memory at a time."""
    loader = ImageLoader(split.examples, config.image_size, config.resize)
    everything, prints, index = range(len(split)), Prints.empty(len(split)), 0
    with progress_bar(len(split), f"Images of {split.name}", "images", verbose) as bar:
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
