"""Inputs of a run: captions as ids, images or stored annotations, and other teachers.

In the order of a run: `load_data`; with the encoder at hand `open_inputs`; then `batches_of`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from sat_tf.captioner import Captioner
from sat_tf.inference.run_folder import RunFolder
from sat_tf.layers.encoder import Encoder
from sat_tf.text.vocabulary import SPECIAL_TOKENS, Vocabulary
from sat_tf.util.commands import counted
from training.data.batches import Shard, Teaching, training_batches
from training.data.captions import CaptionTable, check_vocabulary, learn_vocabulary, split_captions
from training.data.config import DataConfig
from training.data.dataset import Dataset
from training.data.examples import Split, line_of
from training.data.image_loader import ImageSource, InputSource, check_first_readable
from training.data.readers import Source

BOXES, PREDICTIONS = "boxes", "predictions"
"""Names of other teachers than the captions, among the contents of the splits."""


@dataclass(frozen=True, eq=False)
class Data:
    """The data of a run."""

    config: DataConfig  # which data set it is, and how captions become words
    train: Split
    dev: Split
    vocabulary: Vocabulary  # words of the training captions
    table: CaptionTable  # the training captions as ids
    dev_table: CaptionTable

    def fingerprint(self) -> str:
        """Describes splits and vocabulary: equal ones are the same."""
        splits = [split.fingerprint() for split in (self.train, self.dev)]
        return json.dumps([self.vocabulary.words, splits])


@dataclass(frozen=True)
class Contents:
    """Contents of a split, or of another teacher than the captions, as a run uses it."""

    fingerprint: str  # `Split.fingerprint`
    unreadable: tuple[str, ...] = ()  # ids of the images that cannot be read, sorted


class Lesson(NamedTuple):
    """A further lesson: of boxes or predictions."""

    name: str  # `BOXES` or `PREDICTIONS`
    teaching: Teaching  # what it teaches the training captions
    contents: Contents  # what the run's records say of it
    line: str  # about it


Teacher = Callable[[Data, Encoder, str], Callable[[InputSource], Lesson]]
"""Reads a teacher of captions, for an encoder and its `resize`; a `DataError` if it is for others.

Then teaches the training captions, from their inputs.
"""


@dataclass(frozen=True, eq=False)
class Inputs:
    """The inputs of a run's images, and other teachers than the captions."""

    train: InputSource  # in the views that training asks for
    dev: InputSource
    teaching: Sequence[Teaching] = ()  # beside the captions, word by word
    contents: Mapping[str, Contents] = field(default_factory=dict)  # of splits and teachers
    unusable: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # split -> id -> reason
    lines: Sequence[str] = ()  # about each teacher

    def of(self, data: Data) -> Mapping[Split, InputSource]:
        """Returns each split with its inputs."""
        return {data.train: self.train, data.dev: self.dev}


def load_data(
    config: DataConfig, source: Dataset | Source, more_words: Mapping[str, str] | None = None
) -> Data:
    """Loads the training and dev splits; the vocabulary sees training captions only.

    `more_words` are words that it has in any case, after those of the captions.

    Raises:
        DataError: The data cannot be used, or the captions have no word to learn.
    """
    train, dev = (source.split(name) for name in ("train", "dev"))
    words, dev_words = (split_captions(config, split) for split in (train, dev))
    vocabulary = learn_vocabulary(config, words).with_more(more_words or {})
    table, dev_table = (
        found.table(vocabulary).cut(config.max_length) for found in (words, dev_words)
    )
    check_vocabulary(config, vocabulary)
    return Data(config, train, dev, vocabulary, table, dev_table)


def open_inputs(
    model: Captioner, data: Data, cache_dir: Path, teachers: Sequence[Teacher] = ()
) -> Inputs:
    """Opens the inputs of training, augmented, and of dev, plain; reads other teachers.

    Files that teach are read first: annotations that are not stored yet take minutes. Those of a
    frozen encoder are stored in `cache_dir`, for all runs.

    Raises:
        DataError: No image of a split can be read; or a file that teaches cannot be, has nothing
            for the training captions, or is of others.
    """
    encoder, resize = model.encoder, model.config.encoder.resize
    taught = [read(data, encoder, resize) for read in teachers]
    views = (data.config.mirror, data.config.random_crop)
    train, dev = (
        open_input_source(encoder, resize, split, cache_dir, *augmented)
        for split, augmented in ((data.train, views), (data.dev, ()))
    )
    lessons = [teach(train) for teach in taught]
    contents, unusable = {}, {}
    for split, source in ((data.train, train), (data.dev, dev)):
        unreadable = sorted(split.examples[index].image_id for index in source.known)
        contents[split.name] = Contents(split.fingerprint(), tuple(unreadable))
        unusable[split.name] = split.unusable(source.known)
    contents |= {one.name: one.contents for one in lessons}
    teaching, lines = [one.teaching for one in lessons], [one.line for one in lessons]
    return Inputs(train, dev, teaching, contents, unusable, lines)


def open_input_source(
    encoder: Encoder,
    resize: str,
    split: Split,
    cache_dir: Path,
    mirrored: bool = False,
    random_crop: float = 0.0,
) -> InputSource:
    """Opens stored annotations if the encoder is frozen, otherwise images.

    Raises:
        DataError: No image of the split can be read.
    """
    examples = split.examples
    if not encoder.trainable:
        from training.data.feature_store import FeatureStore

        source = FeatureStore.open(cache_dir, encoder, examples, resize=resize, mirrored=mirrored)
    else:
        source = ImageSource(examples, encoder.image_size, resize, mirrored, random_crop)
    check_first_readable(split, source)
    return source


def describe_inputs(data: Data, inputs: Inputs, folder: RunFolder) -> Iterator[str]:
    """Yields a line per fact about the data that the user should know before training starts."""
    names, table = data.config, data.table
    # As training.inspect counts them: without unreadable images and special tokens.
    train, dev = (len(split) - len(source.known) for split, source in inputs.of(data).items())
    yield (
        f"Data: {names.name}, {train} images with {len(table)} captions to train on, {dev} dev "
        f"images, {len(data.vocabulary) - len(SPECIAL_TOKENS)} {names.unit}."
    )
    yield from map(line_of, data.train.notes)
    if names.name != "scenes":
        drawn = folder.contact_sheet.exists()
        sheet = f"; a few images with captions: {folder.contact_sheet}" if drawn else ""
        yield f"As read: {folder.dataset}{sheet}"
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
            yield f"Turned {images} of the {split.name} split upright, by EXIF."
    yield from inputs.lines


def batches_of(
    table: CaptionTable,
    inputs: Inputs,
    batch_size: int,
    seed: int,
    by_image: bool = False,
    sampled: bool = False,
) -> tuple[int, Callable[[int, int, Shard], tf.data.Dataset]]:
    """Plans the training batches.

    With `sampled`, captions are sampled from the model: there is one row per image, with its
    number, and `batch_size` counts images. The rest is as in `training_batches`.
    """
    by_image = by_image and len(np.unique(table.image_index)) < len(table)
    if sampled:
        table, by_image = table.first_captions(), True
    return training_batches(inputs.train, table, batch_size, seed, by_image, inputs.teaching)
