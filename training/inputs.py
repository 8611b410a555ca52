"""Inputs of a run: captions as ids, images or stored annotations, and what teaches beside them.

In the order of a run: `load_data`; with the encoder at hand `open_inputs`; then `batches_of`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from sat_tf.layers.encoder import Encoder
from sat_tf.run_folder import RunFolder
from sat_tf.vocabulary import SPECIAL_TOKENS, Vocabulary
from training.config import DataConfig, RunConfig
from training.data.batches import training_batches
from training.data.captions import (
    CaptionTable,
    Rows,
    check_vocabulary,
    learn_vocabulary,
    split_captions,
)
from training.data.dataset import Dataset
from training.data.examples import Split, line_of
from training.data.feature_store import open_input_source
from training.data.image_loader import InputSource
from training.data.seen_images import SeenImages
from training.data.sources import Source
from training.distributed import distribute
from training.tables import counted

if TYPE_CHECKING:
    from training.teach.attention_targets import AttentionTargets
    from training.teach.word_predictions import WordPredictions

BOXES, LOCATOR, PREDICTIONS = "boxes", "locator", "predictions"
"""Names of what teaches beside the captions, among the contents of the splits."""

_NONE: Mapping[str, str] = {}

Batches = tf.data.Dataset | tf.distribute.DistributedDataset


@dataclass(frozen=True, eq=False)
class Data:
    """The data of a run.

    Attributes:
        train: The training split.
        dev: The dev split.
        vocabulary: Words of the training captions.
        words: The training captions as numbers of different words.
        table: The training captions as ids.
        dev_table: The dev captions as ids.
    """

    train: Split
    dev: Split
    vocabulary: Vocabulary
    words: Rows
    table: CaptionTable
    dev_table: CaptionTable

    def fingerprint(self) -> str:
        """Describes splits and vocabulary: equal ones are the same."""
        splits = [split.fingerprint() for split in (self.train, self.dev)]
        return json.dumps([self.vocabulary.words, splits])


@dataclass(frozen=True)
class Contents:
    """Contents of a split, or of what teaches beside the captions, as a run uses it.

    Attributes:
        fingerprint: `Split.fingerprint`.
        unreadable: Ids of the images that cannot be read, sorted.
        teachers: Of predictions, the teachers of the captioners that made them.
    """

    fingerprint: str
    unreadable: tuple[str, ...] = ()
    teachers: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Inputs:
    """The inputs of a run's images, and what teaches beside the captions.

    Attributes:
        train: Inputs of the training images, in the views that training asks for.
        dev: Inputs of the dev images.
        targets: Maps for supervised attention on the training images; None without.
        predictions: What other captioners predict for the training captions; None without.
        contents: Split or teacher -> its contents, for the run's records.
        unusable: Split -> the images that are left out, with reasons.
        seen: Name of each file that teaches, and the images that it was learned from, if it says.
    """

    train: InputSource
    dev: InputSource
    targets: AttentionTargets | None = None
    predictions: WordPredictions | None = None
    contents: Mapping[str, Contents] = field(default_factory=dict)
    unusable: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    seen: Sequence[tuple[str, SeenImages | None]] = ()

    def of(self, data: Data) -> Mapping[Split, InputSource]:
        """Returns each split with its inputs."""
        return {data.train: self.train, data.dev: self.dev}


def load_data(
    config: DataConfig,
    data_dir: Path | None = None,
    more_words: Mapping[str, str] = _NONE,
    dataset: Dataset | None = None,
) -> Data:
    """Loads the training and dev splits; the vocabulary sees training captions only.

    Args:
        config: The configuration.
        data_dir: The user's copy of the data set; None for drawn data.
        more_words: Words that the vocabulary has in any case, after those of the captions, each
            with its form in captions that are written.
        dataset: The data set, if it is open already.

    Raises:
        DataError: The data cannot be used, or the captions have no word to learn.
    """
    source = dataset or Source(config, data_dir)
    train, dev = (source.split(name) for name in ("train", "dev"))
    words, dev_words = (split_captions(config, split) for split in (train, dev))
    vocabulary = learn_vocabulary(config, words).with_more(more_words)
    table, dev_table = (
        found.table(vocabulary).cut(config.max_length) for found in (words, dev_words)
    )
    check_vocabulary(config, vocabulary)
    return Data(train, dev, vocabulary, words.rows, table, dev_table)


def open_inputs(config: RunConfig, encoder: Encoder, data: Data, cache_dir: Path) -> Inputs:
    """Opens the inputs of training, augmented, and of dev, plain; reads what teaches beside.

    Files that teach are read first: annotations that are not stored yet take minutes.

    Args:
        config: The run's configuration.
        encoder: The model's. If it is frozen, its annotations are computed and stored.
        data: The splits.
        cache_dir: Feature stores, shared by runs.

    Raises:
        DataError: No image of a split can be read; or a file that teaches cannot be, has nothing
            for the training captions, or is of others.
    """
    predictions, locator, targets, seen = None, None, None, []
    attention, resize = config.attention, config.encoder.resize
    teacher = Path(attention.teacher) if attention.teacher else None
    if attention.located:
        from training.teach.word_locator import WordLocator, located_targets

        locator = WordLocator.load(teacher, encoder)
        seen.append((teacher.name, locator.seen))
    elif attention.supervision_weight:
        from training.data.boxes import place_boxes
        from training.teach.attention_targets import attention_targets

        boxes = place_boxes(teacher, data.train, resize, data.vocabulary)
        targets = attention_targets(boxes, encoder.grid)
    if config.fit.distillation_weight:
        from training.teach.word_predictions import WordPredictions

        path = Path(config.fit.predictions)
        predictions = WordPredictions.load(path, data.table, data.vocabulary)
        seen.append((path.name, predictions.seen))
    views = (config.data.mirror, config.data.random_crop)
    train, dev = (
        open_input_source(encoder, resize, split, cache_dir, *augmented)
        for split, augmented in ((data.train, views), (data.dev, ()))
    )
    if locator is not None:
        captions = [example.captions for example in data.train.examples]
        words = [[data.vocabulary.places(text) for text in texts] for texts in captions]
        targets = located_targets(locator, encoder.grid, words, train)
    contents, unusable = {}, {}
    for split, source in ((data.train, train), (data.dev, dev)):
        unreadable = sorted(split.examples[index].image_id for index in source.known)
        contents[split.name] = Contents(split.fingerprint(), tuple(unreadable))
        unusable[split.name] = split.unusable(source.known)
    if targets is not None:
        contents[BOXES if locator is None else LOCATOR] = Contents(targets.fingerprint())
    if predictions is not None:
        own, teachers = predictions.fingerprint(), predictions.teachers
        contents[PREDICTIONS] = Contents(own, teachers=teachers)
    return Inputs(train, dev, targets, predictions, contents, unusable, seen)


def describe_inputs(
    config: RunConfig, data: Data, inputs: Inputs, folder: RunFolder
) -> Iterator[str]:
    """Yields a line per fact about the data that the user should know before training starts."""
    names, table = config.data, data.table
    # As training.inspect counts them: without unreadable images and special tokens.
    train, dev = (len(split) - len(source.known) for split, source in inputs.of(data).items())
    yield (
        f"Data: {names.name}, {train} images with {len(table)} captions to train on, {dev} dev "
        f"images, {len(data.vocabulary) - len(SPECIAL_TOKENS)} {names.unit}."
    )
    yield from map(line_of, data.train.notes)
    if folder.contact_sheet.exists():
        yield f"As read: {folder.dataset}; a few images with captions: {folder.contact_sheet}"
    if table.dropped:
        yield f"Warning: {counted(table.dropped, 'caption')} without a word dropped."
    if table.truncated:
        limit = f"{names.max_length} {names.unit}"
        longer = "`--data.max_length` and `--search.max_length` allow longer ones"
        yield f"Warning: {counted(table.truncated, 'caption')} cut to {limit}: {longer}."
    for split, source in inputs.of(data).items():
        if reasons := inputs.unusable[split.name]:
            images, path = counted(len(reasons), "image"), folder.skipped(split.name)
            yield f"Warning: skipped {images} of the {split.name} split, see {path}."
        if source.rotated:
            images = counted(len(source.rotated), "image")
            yield f"Turned {images} of the {split.name} split upright, by their EXIF."
    if inputs.targets is not None:
        yield f"Attention is supervised at {len(inputs.targets):,} {inputs.targets.what}."
    if inputs.predictions is not None:
        share = f"{100 * config.fit.distillation_weight:.0f} %"
        yield f"Other captioners' predictions are {share} of each word's target."


def batches_of(
    config: RunConfig, table: CaptionTable, inputs: Inputs
) -> tuple[int, Callable[[int, int], Batches]]:
    """Plans the training batches.

    Returns:
        The batches per epoch; and a function that returns those from an epoch and a step of it on,
        endless, in the form that `fit` takes.
    """
    by_image = config.fit.batch_by == "image" and len(np.unique(table.image_index)) < len(table)
    if config.reward.metric != "none":
        # Captions are sampled from the model: one row per image, with its number.
        table, by_image = table.first_captions(), True
    read = inputs.train, table, config.fit.batch_size, config.seed
    teaching = inputs.targets, inputs.predictions

    def batches(epoch: int, step: int) -> Batches:
        return distribute(
            lambda shard: training_batches(*read, epoch, step, by_image, shard, *teaching)[0]
        )

    return training_batches(*read, 0, by_image=by_image)[1], batches
