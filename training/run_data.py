"""The data of a run: its folders, splits, words, pictures and batches."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import tensorflow as tf

from sat_tf.files import write_atomically
from sat_tf.models.captioner import Captioner
from sat_tf.vocabulary import Vocabulary
from training.datasets import Split, load_split
from training.datasets.batches import CaptionTable, Share, caption_table
from training.datasets.sources import Source, open_source, training_batches
from training.recipes import DataConfig, RunConfig
from training.run_folder import Contents


@dataclass(frozen=True)
class Places:
    """Folders a run reads and writes; no part of what the run is.

    Attributes:
        run_dir: Everything the run leaves behind.
        cache_dir: Feature stores, shared by runs.
        data_dir: The user's copy of the data set; None for drawn ones.
    """

    run_dir: Path
    cache_dir: Path
    data_dir: Path | None = None


@dataclass(frozen=True, eq=False)
class Data:
    """The data of a run: splits, and the training captions' words and ids."""

    train: Split
    dev: Split
    vocabulary: Vocabulary
    table: CaptionTable


def load_data(config: RunConfig, places: Places) -> Data:
    """Train and dev splits and the vocabulary, which sees training captions only."""
    options = config.data.options()
    train = load_split(config.data.name, "train", places.data_dir, **options)
    dev = load_split(config.data.name, "dev", places.data_dir, **options)
    vocabulary = training_vocabulary(config.data, train)
    table = caption_table(train, vocabulary, config.data.max_length)
    return Data(train, dev, vocabulary, table)


def training_vocabulary(config: DataConfig, train: Split) -> Vocabulary:
    """The words of the training captions that the configuration keeps."""
    return Vocabulary.from_captions(
        (caption for example in train.examples for caption in example.captions),
        min_count=config.min_count,
        max_size=config.vocabulary_size,
        unit=config.tokens,
    )


def open_sources(
    config: RunConfig, model: Captioner, data: Data, cache_dir: Path
) -> tuple[Source, Source]:
    """Training pictures, augmented where asked for, and plain dev pictures; or annotations."""
    encoder, resize = model.encoder, config.encoder.resize
    views = (config.data.mirror, config.data.random_crop)
    train = open_source(encoder, resize, data.train, cache_dir, *views)
    return train, open_source(encoder, resize, data.dev, cache_dir)


def contents(data: Data, train: Source, dev: Source) -> dict[str, Contents]:
    """What of each split a run is trained and scored on."""
    pairs = ((data.train, train), (data.dev, dev))
    return {
        split.name: Contents(split.fingerprint(), _unreadable(split, source))
        for split, source in pairs
    }


def _unreadable(split: Split, source: Source) -> tuple[str, ...]:
    return tuple(sorted(split.examples[index].image_id for index in source.set_aside))


def report_pictures(
    split: Split, source: Source, run_dir: Path, say: Callable[[str], None]
) -> None:
    """Name the pictures that cannot be used in a file, and count them; count the rotated ones."""
    if reasons := split.unusable(source.set_aside):
        path = run_dir / f"set_aside_{split.name}.json"
        write_atomically(path, json.dumps(reasons, indent=1, ensure_ascii=False) + "\n")
        say(f"Warning: {len(reasons)} pictures of the {split.name} split set aside, see {path}.")
    if source.rotated:
        say(
            f"{len(source.rotated)} pictures of the {split.name} split are turned upright, as "
            "their EXIF asks."
        )


def batches_from(
    config: RunConfig,
    source: Source,
    table: CaptionTable,
    epoch: int,
    step: int = 0,
    share: Share | None = None,
) -> tuple[tf.data.Dataset, int]:
    """Training batches from this step of this epoch on, and how many an epoch has."""
    by_picture = config.fit.batch_by == "picture"
    if config.reward.metric != "none":
        # Their own captions are what it draws: a row a picture, with its number.
        table, by_picture = table.one_a_picture(), True
    size = config.fit.batch_size
    share = share or Share()
    return training_batches(source, table, size, config.seed, epoch, step, by_picture, share)
