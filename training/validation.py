"""Captioning after each epoch: dev scores, attention figures, and a warning about collapse."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable

import keras
import numpy as np

from sat_tf.config import SearchConfig
from sat_tf.runs import TrainedCaptioner
from training.config import RunConfig
from training.data.batches import scoring_batches
from training.data.bucketing import caption_table
from training.data.examples import Split
from training.data.input_source import InputSource, annotations_of, readable_images
from training.distributed.workers import distribute, on_chief
from training.evaluate.evaluation import caption_split
from training.evaluate.likelihood import Bounds
from training.evaluate.page import figure_of
from training.inputs import Data, Inputs
from training.metrics.captions import quick_bleu, quick_cider

UNIFORM_ENTROPY = 0.98
"""Attention counts as uniform if its entropy exceeds this share of log L."""
CONSTANT_VARIATION = 0.005
"""Attention counts as constant if `alpha_variation` is below this."""
_BOUND_IMAGES, _BOUND_SAMPLES = 16, 5  # Few enough to be measured in seconds.


class Validator:
    """Scores the captioner in training on the dev split.

    Of several workers the chief captions; all of them measure the likelihood of their part.

    Args:
        captioner: The captioner.
        config: The run's configuration.
        data: The splits.
        inputs: Their inputs.
    """

    def __init__(
        self, captioner: TrainedCaptioner, config: RunConfig, data: Data, inputs: Inputs
    ) -> None:
        self._captioner, self._dev, self._source = captioner, data.dev, inputs.dev
        self._images = config.fit.validation_images
        self._search = dataclasses.replace(config.search, beam=config.fit.validation_beam)
        table = caption_table(data.dev, data.vocabulary, config.data.max_length)
        size = config.fit.batch_size
        _, self._steps = scoring_batches(self._source, table, size)
        self._batches = distribute(
            lambda shard: scoring_batches(self._source, table, size, shard)[0]
        )
        self._bounds: Callable[[], dict[str, float]] = dict
        if config.attention.kind == "hard":
            bounds = Bounds(captioner, data.dev, self._source, _BOUND_IMAGES, _BOUND_SAMPLES)
            self._bounds = bounds.measure

    def __call__(self) -> dict[str, float]:
        """Returns `bleu_4`, `cider`, `distinct`, `nll` and, of hard attention, the bounds."""
        captions = on_chief(caption_scores)(
            self._captioner, self._dev, self._source, self._search, self._images
        )
        evaluate = self._captioner.model.evaluate
        nll = evaluate(self._batches, steps=self._steps, verbose=0, return_dict=True)["nll"]
        return {**(captions or {}), "nll": nll, **(on_chief(self._bounds)() or {})}


def caption_scores(
    captioner: TrainedCaptioner,
    split: Split,
    source: InputSource,
    search: SearchConfig,
    images: int | None,
) -> dict[str, float]:
    """Captions images and scores the captions.

    Returns:
        `bleu_4`, `cider` and `distinct`, the percentage of captions that differ.
    """
    captions = caption_split(captioner, split, source, search, count=images)
    texts = {image_id: caption.text for image_id, caption in captions.items()}
    references = split.references(of=texts)
    unit = captioner.vocabulary.unit
    return {
        "bleu_4": quick_bleu(texts, references, unit)["bleu_4"],
        "cider": quick_cider(texts, references, unit),
        "distinct": 100.0 * len(set(texts.values())) / len(texts),
    }


def dev_figures(
    captioner: TrainedCaptioner, split: Split, source: InputSource, count: int
) -> Callable[[], dict[str, np.ndarray | str]]:
    """Returns a function that draws the attention under each word of the first images."""
    indices = readable_images(split, source, count)
    examples = [split.examples[index] for index in indices]

    def draw() -> dict[str, np.ndarray | str]:
        if not examples:
            return {}
        found = captioner.describe(annotations_of(captioner, source, indices))
        figures: dict[str, np.ndarray | str] = {}
        for example, caption in zip(examples, found, strict=True):
            name = example.image_id
            figures[f"attention/{name}"] = figure_of(captioner, example.image, caption)
            figures[f"caption/{name}"] = caption.text
        return figures

    return draw


class AttentionCollapseWarning(keras.callbacks.Callback):
    """Warns if attention is uniform, or the same at every word.

    Uniform: the entropy of alpha exceeds `UNIFORM_ENTROPY` of log L. Constant: `alpha_variation` is
    below `CONSTANT_VARIATION`. Both are means over the training captions of the epoch.
    """

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        entropy, variation = logs.get("alpha_entropy"), logs.get("alpha_variation")
        if entropy is None:
            return
        if entropy > UNIFORM_ENTROPY:
            self._warn(epoch, "uniform", f"entropy is {entropy:.3f} of log L")
        elif variation < CONSTANT_VARIATION:
            self._warn(epoch, "constant over time", f"alpha_variation is {variation:.4f}")

    def _warn(self, epoch: int, collapse: str, evidence: str) -> None:
        warnings.warn(
            f"Epoch {epoch + 1}: attention has collapsed, it is {collapse} ({evidence}).",
            stacklevel=2,
        )
