"""Captioning after each epoch: dev scores and attention figures."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from sat_tf.inference.captioning import TrainedCaptioner
from sat_tf.scores.ngrams import CiderD, bleu_scores, bleu_statistics, count_grams
from sat_tf.scores.tokens import ScoreTokens, default_tokens, split_captions, split_lines
from training.data.examples import StoredImage
from training.data.image_loader import InputSource, readable_images
from training.data.inputs import Data
from training.evaluation.reading import Reading
from training.run.config import FitConfig
from training.run.strategy import on_chief

Measure = Callable[[], dict[str, float]]

MOST_DOCUMENTS = 30_000
"""Images for document frequencies: more would take a gigabyte for the same."""


class Validation:
    """The dev split in training: its scores after each epoch, and figures of attention.

    Of several workers the chief alone has them.

    Args:
        captioner: The captioner in training.
        data: The splits.
        source: Inputs of the dev images.
        fit: How often and how wide is searched, and how many figures are drawn.
    """

    def __init__(
        self, captioner: TrainedCaptioner, data: Data, source: InputSource, fit: FitConfig
    ) -> None:
        self._captioning = Reading(captioner, data.dev, source)
        self._data, self._fit = data, fit

    def scores(self) -> dict[str, float]:
        """Returns `bleu_4`, `cider`, `distinct`, `nll` and, of hard attention, the bounds."""
        return on_chief(self._scores)() or {}

    def _scores(self) -> dict[str, float]:
        likelihood, _ = self._captioning.likelihood(self._data.dev_table)
        return {**self.caption_scores(), "nll": likelihood["nll"], **self._measure_bounds()}

    def caption_scores(self) -> dict[str, float]:
        """Captions images and scores the captions.

        Returns:
            `bleu_4`, `cider` and `distinct`, the percentage of captions that differ. The document
            frequencies of `cider` are those of the training captions, so that it does not depend
            on how many images are captioned; that of a report has those of its images.
        """
        search = self._captioning.captioner.config.search
        search = dataclasses.replace(search, beam=self._fit.validation_beam)
        captions = self._captioning.captions(search, count=self._fit.validation_images)
        texts = {image_id: caption.text for image_id, caption in captions.items()}
        references = self._captioning.split.references(of=texts)
        scores = quick_scores(texts, references, self._frequencies, self._tokens)
        return scores | {"distinct": 100.0 * len(set(texts.values())) / len(texts)}

    def figures(self) -> dict[str, np.ndarray | str]:
        """Draws the attention under each word of the first images, by TensorBoard's tag."""
        from sat_tf.inference.figures import MissingFontError

        split, captioner = self._captioning.split, self._captioning.captioner
        indices = readable_images(split, self._captioning.source, self._fit.figures)
        figures: dict[str, np.ndarray | str] = {}
        if not len(indices):
            return figures
        captions = captioner.describe(self._captioning.annotations(indices))
        for index, caption in zip(indices, captions, strict=True):
            example = split.examples[index]
            figures[f"caption/{example.image_id}"] = caption.text
            image = example.image
            image = image.read_bytes() if isinstance(image, StoredImage) else image
            pixels = np.round(captioner.pixels(image)).astype(np.uint8)
            shown = {"image": pixels, "language": self._data.config.language}
            try:
                figure = dataclasses.replace(caption, **shown).figure()
            except MissingFontError as error:
                # Python shows the same warning of the same line once.
                warnings.warn(f"Figures are left out of TensorBoard. {error}", stacklevel=2)
                break
            figures[f"attention/{example.image_id}"] = figure
        return figures

    @functools.cached_property
    def _frequencies(self) -> CiderD:
        captions = [example.captions for example in self._data.train.examples]
        return caption_frequencies(captions, self._tokens)

    @property
    def _tokens(self) -> ScoreTokens:
        found = default_tokens(**self._data.config.splitting)
        return "simple" if found == "ptb" else found

    @functools.cached_property
    def _measure_bounds(self) -> Measure:
        read = self._captioning
        if read.captioner.config.attention.kind != "hard":
            return dict
        from training.evaluation.bounds import quick_bounds

        return quick_bounds(read.captioner, read.split, read.source)


def quick_scores(
    candidates: Mapping[str, str],
    references: Mapping[str, Sequence[str]],
    frequencies: CiderD,
    tokens: ScoreTokens = "simple",
) -> dict[str, float]:
    """Computes `bleu_4` and `cider` (0-100 or NaN), for every epoch.

    Args:
        candidates: Image id -> caption.
        references: Image id -> raw reference captions.
        frequencies: See `caption_frequencies`; a report has those of its references.
        tokens: Tokeniser of all captions.
    """
    ours = [references[image] for image in candidates]
    texts = split_captions(tokens, [*candidates.values()], ours)
    bleu = bleu_scores(bleu_statistics(*texts).sum(axis=0))
    cider = [
        frequencies.score(*_vectors(frequencies, [caption]), _vectors(frequencies, others))
        for caption, others in zip(*texts, strict=True)
    ]
    return {"bleu_4": float(bleu["bleu_4"]), "cider": 100.0 * float(np.mean(cider))}


def _vectors(frequencies: CiderD, captions: Sequence[str]) -> list[Any]:
    return [frequencies.vectors(count_grams(caption.split())) for caption in captions]


def caption_frequencies(
    captions: Sequence[Sequence[str]], tokens: ScoreTokens = "simple"
) -> CiderD:
    """Returns the document frequencies of each image's captions, evenly chosen if they are many."""
    every = -(-len(captions) // MOST_DOCUMENTS) or 1
    split = (split_lines(tokens, own) for own in captions[::every])
    return CiderD([count_grams(text.split()) for text in lines] for lines in split)
