"""Files that teach a captioner beside its captions: boxes, word locators, predictions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sat_tf.layers.encoder import Encoder
from training.config import RunConfig
from training.data.attention_targets import AttentionTargets, attention_targets
from training.data.box_files import read_boxes
from training.data.input_source import InputSource
from training.data.sources import Split
from training.data.word_locator import WordLocator, check_encoder, located_targets
from training.data.word_predictions import WordPredictions
from training.tasks.captioning.run_data import Data

MakeTargets = Callable[[InputSource], AttentionTargets]
"""Makes the maps that supervise attention, once there are annotations."""


def read_supervision(config: RunConfig, encoder: Encoder, train: Split) -> MakeTargets | None:
    """Reads the boxes or the locator that attention is supervised by; None if it is not.

    Raises:
        DataError: The file cannot be read, or has nothing for the captions of the training split.
    """
    if not config.attention.supervision_weight:
        return None
    teacher = config.attention.teacher
    if config.attention.located:
        locator = WordLocator.load(Path(teacher))
        check_encoder(locator, encoder)
        return lambda source: located_targets(locator, encoder, train.examples, source)
    boxes, outside = (None, None) if teacher is None else read_boxes(teacher)
    targets = attention_targets(train, boxes, encoder.grid, config.encoder.resize, outside)
    return lambda source: targets


def read_predictions(config: RunConfig, data: Data) -> WordPredictions | None:
    """Reads what other captioners predict for the training captions; None unless that is learned.

    Raises:
        DataError: The file cannot be read, or is of other captions.
    """
    if not config.fit.distillation_weight:
        return None
    return WordPredictions.load(Path(config.fit.predictions), data.table, data.vocabulary)
