"""A verdict in words on the captions of a run, for those to whom scores say little."""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence

import numpy as np

from sat_tf.vocabulary import Unit, tokenize

_FEW_IMAGES, _SAME = 10, 0.5
_ERRORS = 2.0  # standard errors by which captions have to fit their own images better


def verdict(
    captions: Mapping[str, str], references: Mapping[str, Sequence[str]], unit: Unit = "words"
) -> tuple[str, ...]:
    """Returns a sentence on whether captions fit their own images; none for under ten images.

    Compares the share of a caption's words that the references of its image have with the share
    that those of the next image have.

    Args:
        captions: Image id -> caption.
        references: Image id -> reference captions.
        unit: Unit of the tokens that are compared.
    """
    if len(captions) < _FEW_IMAGES:
        return ()
    ((text, count),) = collections.Counter(captions.values()).most_common(1)
    if count > _SAME * len(captions):
        same = f"{100 * count / len(captions):.0f} % of the images get the same caption, {text!r}"
        return (f"{same}: train longer or add data.",)
    known = [set().union(*(tokenize(text, unit) for text in references[i])) for i in captions]
    used = [set(tokenize(text, unit)) for text in captions.values()]
    own, other = _shares(used, known), _shares(used, known[1:] + known[:1])
    gain = own - other
    shares = (
        f"{100 * own.mean():.0f} % of the {unit} of a caption are in the references of its image, "
        f"{100 * other.mean():.0f} % in those of another"
    )
    if gain.mean() <= _ERRORS * gain.std() / len(gain) ** 0.5:
        return (f"The captions fit other images as well: {shares}. Train longer or add data.",)
    return (f"The captions fit their own images: {shares}.",)


def _shares(used: Sequence[set[str]], known: Sequence[set[str]]) -> np.ndarray:
    """Share of each caption's words that are known; 0 of an empty caption."""
    return np.array([len(a & b) / max(1, len(a)) for a, b in zip(used, known, strict=True)])
