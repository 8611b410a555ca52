"""Statistics of the captions of a split: their number, lengths and words."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np

from sat_tf.vocabulary import UNK, Unit, Vocabulary, tokenize
from training.data.examples import Split

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
