"""A classifier that finds the places of words in images, learned from captions alone.

No image comes with the place of a word, but its captions say which words it has. The locator scores
every location for every word, `s[w,i] = u_w . a_i + r_i`, and an image for a word by its best
locations:

    p(w | a) = sigmoid(log mean_i exp s[w,i] + b_w)

`r` is the same for all words: how much a location tells, whatever the image.

Trained to tell the images whose captions have the word from the others, `softmax_i s[w,i]` is
high at the locations that only images with the word have. Locations whose annotations are alike
share it, and a power makes it sharper: the word's map. The maps can supervise attention as boxes
do (`training.data.attention_targets`).

References:
    Fang et al. (2015), "From Captions to Visual Concepts and Back", arXiv:1411.4952 (words by
    multiple-instance learning); Pinheiro and Collobert (2015), arXiv:1411.6228 (log-mean-exp).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sat_tf.layers.encoder import Encoder
from sat_tf.vocabulary import tokenize
from training.data.archives import open_archive, save_archive
from training.data.attention_targets import AttentionTargets
from training.data.examples import DataError, Example
from training.data.input_source import InputSource

_FORMAT = 3
_TEMPERATURE = 0.2
"""Of the softmax over cosines by which locations share a map."""
_SHARPNESS = 6.0
"""Power of a map: as they come, maps are nearly flat, and so is attention that matches them."""
_BATCH = 32


@dataclass(frozen=True, eq=False)
class WordLocator:
    """Scores of words at locations, for the annotations of one encoder.

    Attributes:
        words: The words it locates, `[V]`.
        kernel: float32 `[D, V]`, u.
        prior: float32 `[L]`, r.
        encoder: Identity of the encoder, see `encoder_identity`.
    """

    words: tuple[str, ...]
    kernel: np.ndarray
    prior: np.ndarray
    encoder: str

    def maps(self, annotations: np.ndarray, words: Sequence[str]) -> np.ndarray:
        """Returns the map of each word in an image.

        Args:
            annotations: `[L, D]`.
            words: `[n]`, all among `self.words`.

        Returns:
            float32 `[n, L]`, each of sum 1.
        """
        found = annotations.astype(np.float32)
        columns = [self.words.index(word) for word in words]
        scores = (found @ self.kernel[:, columns]).T + self.prior
        maps = np.exp(scores - scores.max(axis=1, keepdims=True))
        maps = (maps / maps.sum(axis=1, keepdims=True)) @ _likeness(found).T
        maps = (maps / maps.max(axis=1, keepdims=True)) ** _SHARPNESS
        return maps / maps.sum(axis=1, keepdims=True)

    def save(self, path: Path) -> None:
        """Writes the locator as an `.npz`, whole or not at all."""
        about = {"format": _FORMAT, "words": self.words, "encoder": self.encoder}
        save_archive(path, about, {"kernel": self.kernel, "prior": self.prior})

    @classmethod
    def load(cls, path: Path) -> WordLocator:
        """Reads a locator.

        Raises:
            DataError: The file is not one.
        """
        otherwise = "is not a word locator, as `python -m training.locate` writes it"
        with open_archive(path, _FORMAT, otherwise) as (about, arrays):
            kernel, prior = arrays["kernel"], arrays["prior"]
            words, encoder = tuple(about["words"]), str(about["encoder"])
            if kernel.ndim != 2 or prior.ndim != 1 or kernel.shape[1] != len(words):
                raise ValueError("its scores are of other words")
            if not (np.isfinite(kernel).all() and np.isfinite(prior).all()):
                raise ValueError("its scores are not finite")
        return cls(words, kernel, prior, encoder)

    def fingerprint(self) -> str:
        """Returns the SHA-256 (hexadecimal) of words, kernel and prior."""
        digest = hashlib.sha256(json.dumps([_FORMAT, self.words]).encode())
        for array in (self.kernel, self.prior):
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()


def encoder_identity(encoder: Encoder) -> str:
    """Describes an encoder by what its annotations depend on, its weights by a digest."""
    height, width = encoder.grid
    grid = f"{height} x {width} x {encoder.annotation_dim}"
    digest = hashlib.sha256()
    for weight in encoder.weights:
        digest.update(np.ascontiguousarray(weight, np.float32).data)
    return f"{encoder.backbone}, {encoder.tap}, {grid}, weights {digest.hexdigest()[:12]}"


def check_encoder(locator: WordLocator, encoder: Encoder) -> None:
    """Checks that a locator is for the annotations of an encoder.

    Raises:
        DataError: It is for those of another one.
    """
    if locator.encoder != encoder_identity(encoder):
        raise DataError(
            f"The word locator is for the annotations of {locator.encoder}; the encoder is "
            f"{encoder_identity(encoder)}. Run `python -m training.locate` with the settings of "
            "the training."
        )


def _likeness(annotations: np.ndarray) -> np.ndarray:
    """Returns how much of each other location's map a location takes, `[L, L]`, rows of sum 1."""
    norms = np.linalg.norm(annotations, axis=1, keepdims=True)
    directions = annotations / np.maximum(norms, 1e-6)
    shares = np.exp((directions @ directions.T - 1.0) / _TEMPERATURE)
    return shares / shares.sum(axis=1, keepdims=True)


def words_of(example: Example) -> set[str]:
    """Returns the words of an image's captions."""
    return {word for caption in example.captions for word in tokenize(caption)}


def located_targets(
    locator: WordLocator, encoder: Encoder, examples: Sequence[Example], source: InputSource
) -> AttentionTargets:
    """Makes the maps that attention is to match at the words that a locator knows.

    Args:
        locator: The locator, of the encoder's annotations (`check_encoder`).
        encoder: The encoder of the captioner.
        examples: The training images with their captions.
        source: Their annotations.

    Raises:
        DataError: The locator knows no word of the captions.
    """
    known, maps, places = set(locator.words), [], {}
    for start in range(0, len(examples), _BATCH):
        numbers = np.arange(start, min(start + _BATCH, len(examples)))
        for number, of_image in zip(numbers.tolist(), source.read(numbers), strict=True):
            words = sorted(words_of(examples[number]) & known)
            if number in source.skipped or not words:
                continue
            of_word = {word: len(maps) + n for n, word in enumerate(words)}
            maps.extend(locator.maps(of_image, words).astype(np.float16))
            for caption, text in enumerate(examples[number].captions):
                places[number, caption] = [
                    (place, place, of_word[word])
                    for place, word in enumerate(tokenize(text))
                    if word in known
                ]
    if not maps:
        raise DataError("The word locator knows no word of the training captions.")
    grid = np.stack(maps).reshape(-1, *encoder.grid)
    return AttentionTargets(grid, places, locator.fingerprint())
