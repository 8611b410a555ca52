"""Captioning as a task of the training loop."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from sat_tf import published, runs
from sat_tf.fields import to_dict
from sat_tf.models.captioner import Captioner
from sat_tf.objectives import make_objective
from sat_tf.objectives.terms import Objective
from sat_tf.runs import TrainedCaptioner
from sat_tf.vocabulary import SPECIAL_TOKENS, Vocabulary
from training.config import DataConfig, RunConfig, read_run_config
from training.data.attention_targets import AttentionTargets
from training.data.boxes import skipped_note
from training.data.bucketing import CaptionTable, Shard, caption_table
from training.data.examples import DataError
from training.data.input_pipeline import training_batches
from training.data.input_source import InputSource, open_input_source
from training.data.sources import Split, load_split
from training.data.word_predictions import WordPredictions
from training.distributed.collectives import SingleProcess
from training.evaluate.run_evaluation import evaluate_run
from training.loop.optimizers import make_optimizer
from training.messages import counted
from training.rewards import check_programs, reward_objective
from training.run_state.completion import unfinished_note
from training.tasks.base import Places, Task
from training.tasks.captioning import comparison, run_data
from training.tasks.captioning.run_data import Data
from training.tasks.captioning.teaching import read_predictions, read_supervision
from training.tasks.captioning.validation import AttentionCollapseWarning, Validator, dev_figures
from training.tasks.captioning.warm_start import start_from


class CaptioningTask(Task[RunConfig, Data]):
    """Training of a captioner."""

    name = "captioners"
    read_config = staticmethod(read_run_config)
    compare = staticmethod(comparison.compare)

    def config_text(self) -> str:
        return json.dumps(to_dict(self.config), indent=2)

    def load_data(self) -> Data:
        return load_data(self.config, self.places)

    def fingerprint(self, data: Data) -> str:
        parts = [to_dict(self.config.without_files()), data.vocabulary.words]
        parts += [split.fingerprint() for split in (data.train, data.dev)]
        parts += [part.fingerprint() for part in (data.targets, data.predictions) if part]
        return json.dumps([*parts, *(sorted(source.skipped) for _, source in data.inputs)])

    def make_model(self, data: Data, resumed: bool = False) -> Captioner:
        new = self.config.init_from is None and not resumed
        return new_model(self.config, len(data.vocabulary), load_encoder_weights=new)

    def initialize(self, model: Captioner, data: Data) -> str:
        origin = self.config.init_from
        start_from(origin, model, data.vocabulary)
        folder = published.locate(origin)
        notes = unfinished_note(folder, read_run_config(folder).fit)
        return "\nNote: ".join([f"Initialized with the weights of {origin}.", *notes])

    def frozen_layers(self, model: Captioner) -> Sequence[keras.layers.Layer]:
        return () if model.encoder.trainable else (model.encoder,)

    def open_inputs(self, data: Data, model: Captioner) -> Data:
        # Before annotations are computed, which takes minutes: a program or a file may be missing.
        check_programs(self.config.reward)
        predictions = read_predictions(self.config, data)
        supervision = read_supervision(self.config, model.encoder, data.train)
        sources = open_sources(self.config, model, data, self.places)
        targets = supervision and supervision(sources[0])
        found = {"sources": sources, "targets": targets, "predictions": predictions}
        return dataclasses.replace(data, **found)

    def check_data(self, data: Data) -> None:
        run_data.check_data(self.places.folder, data.vocabulary, run_data.contents(data))

    def write_data(self, data: Data) -> None:
        folder = self.places.folder
        run_data.write_data(folder, data.vocabulary, run_data.contents(data))
        run_data.write_skipped(folder, data)
        run_data.write_data_dir(folder, self.places.data_dir)

    def steps(self, data: Data) -> int:
        return batches_from(self.config, data.sources[0], data.table, epoch=0)[1]

    def compile(self, model: Captioner, data: Data, steps: int) -> None:
        reward = reward_objective(self.config, data.table, data.vocabulary)
        compile_model(model, self.config, steps, reward)

    def describe(self, model: Captioner, data: Data) -> Iterator[str]:
        names, table = self.config.data, data.table
        # As training.inspect counts them: without unreadable images and special tokens.
        train, dev = (len(split) - len(source.skipped) for split, source in data.inputs)
        yield (
            f"Data: {names.name}, {train} images with {len(table)} captions to train on, {dev} dev "
            f"images, {len(data.vocabulary) - len(SPECIAL_TOKENS)} {names.tokens}."
        )
        if table.dropped:
            yield f"Warning: {counted(table.dropped, 'caption')} without a word dropped."
        if table.truncated:
            limit = f"{names.max_length} {names.tokens}"
            yield f"Warning: {counted(table.truncated, 'caption')} cut to {limit}."
        for split, source in data.inputs:
            if reasons := split.unusable(source.skipped):
                path = self.places.folder.skipped(split.name)
                images = counted(len(reasons), "image")
                yield f"Warning: skipped {images} of the {split.name} split, see {path}."
            if source.rotated:
                images = counted(len(source.rotated), "image")
                yield f"Turned {images} of the {split.name} split upright, by their EXIF."
        if data.targets is not None:
            what = "phrases with boxes" if data.targets.locator is None else "words by a locator"
            skipped = skipped_note(data.targets.skipped)
            yield f"Attention is supervised at {len(data.targets):,} {what}{skipped}."
        if data.predictions is not None:
            share = f"{100 * self.config.fit.distillation_weight:.0f} %"
            yield f"Other captioners' predictions are {share} of each word's target."
        yield describe_model(model)
        for name, value in model.objective.describe(self.config.fit.batch_size).items():
            yield f"  {name}: {value}"

    def batches(self, data: Data, epoch: int, step: int, shard: Shard) -> tf.data.Dataset:
        inputs = data.sources[0], data.table
        teaching = data.targets, data.predictions
        return batches_from(self.config, *inputs, epoch, step, shard, *teaching)[0]

    def validator(self, model: Captioner, data: Data, group: SingleProcess) -> Validator:
        return Validator(self.config, TrainedCaptioner(model, data.vocabulary), data, group)

    def figures(self, model: Captioner, data: Data) -> Callable[[], Mapping[str, np.ndarray | str]]:
        captioner = TrainedCaptioner(model, data.vocabulary)
        return dev_figures(captioner, data.dev, data.sources[1], self.config.fit.figures)

    def callbacks(self) -> list[keras.callbacks.Callback]:
        return [AttentionCollapseWarning()]

    def load_model(self) -> TrainedCaptioner:
        return runs.load(self.places.run_dir)

    def evaluate(self, trained: TrainedCaptioner) -> dict:
        return evaluate_run(trained, self.config, self.places)

    def load_weights(self, run_dir: Path, trained: TrainedCaptioner) -> Captioner:
        start_from(run_dir, trained.model, trained.vocabulary, "runs", "argument")
        return trained.model


def load_data(config: RunConfig, places: Places) -> Data:
    """Loads the training and dev splits; the vocabulary sees training captions only."""
    options = config.data.options()
    train = load_split(config.data.name, "train", places.data_dir, **options)
    dev = load_split(config.data.name, "dev", places.data_dir, **options)
    vocabulary = training_vocabulary(config.data, train)
    table = caption_table(train, vocabulary, config.data.max_length)
    check_vocabulary(config.data, vocabulary)
    return Data(train, dev, vocabulary, table)


def training_vocabulary(config: DataConfig, train: Split) -> Vocabulary:
    """Returns the words of the training captions that the configuration keeps."""
    return Vocabulary.from_captions(
        (caption for example in train.examples for caption in example.captions),
        min_count=config.min_count,
        max_size=config.vocabulary_size,
        unit=config.tokens,
    )


def check_vocabulary(config: DataConfig, vocabulary: Vocabulary) -> None:
    """Checks that there is a word to learn.

    Raises:
        DataError: There is none; the message names the key.
    """
    if len(vocabulary) == len(SPECIAL_TOKENS):
        unit = config.tokens.removesuffix("s")
        raise DataError(
            f"No {unit} occurs {config.min_count} times in the training captions: lower "
            "`--data.min_count`, or add captions."
        )


def open_sources(
    config: RunConfig, model: Captioner, data: Data, places: Places
) -> tuple[InputSource, InputSource]:
    """Opens images or stored annotations: augmented ones to train on, plain dev ones."""
    encoder, resize, cache_dir = model.encoder, config.encoder.resize, places.cache_dir
    views = (config.data.mirror, config.data.random_crop)
    train = open_input_source(encoder, resize, data.train, cache_dir, *views)
    return train, open_input_source(encoder, resize, data.dev, cache_dir)


def batches_from(
    config: RunConfig,
    source: InputSource,
    table: CaptionTable,
    epoch: int,
    step: int = 0,
    shard: Shard | None = None,
    targets: AttentionTargets | None = None,
    predictions: WordPredictions | None = None,
) -> tuple[tf.data.Dataset, int]:
    """Returns the training batches from a step of an epoch on, and the batches per epoch."""
    by_image = config.fit.batch_by == "image"
    if config.reward.metric != "none":
        # Captions are sampled from the model: one row per image, with its number.
        table, by_image = table.first_captions(), True
    order = config.fit.batch_size, config.seed, epoch, step, by_image, shard or Shard()
    return training_batches(source, table, *order, targets, predictions)


def new_model(
    config: RunConfig, vocabulary_size: int, load_encoder_weights: bool = True
) -> Captioner:
    """Builds the model with an untrained decoder, not compiled."""
    policy = "mixed_bfloat16" if config.fit.precision == "bfloat16" else "float32"
    return Captioner(config.captioner, vocabulary_size, load_encoder_weights, dtype=policy)


def compile_model(
    model: Captioner, config: RunConfig, steps: int, objective: Objective | None = None
) -> None:
    """Gives the model its optimizer and its objective.

    Args:
        model: The captioner.
        config: The run's configuration.
        steps: Steps per epoch, for the schedule.
        objective: What to minimise; None learns the captions of the batch.
    """
    optimizer = config.optimizer
    model.compile(
        optimizer=make_optimizer(
            optimizer,
            steps,
            config.fit.epochs,
            model.encoder.trainable_variables,
            optimizer.encoder_learning_rate,
        ),
        objective=objective or given_objective(config),
        clip_norm=optimizer.clip_norm,
        seed=config.seed,
        jit_compile=config.fit.jit_compile,
    )


def given_objective(config: RunConfig) -> Objective:
    """Returns the objective of training on given captions."""
    fit = config.fit
    return make_objective(config.attention, fit.label_smoothing, fit.distillation_weight)


def describe_model(model: Captioner) -> str:
    """Describes encoder and decoder in a line."""
    encoder, (height, width) = model.encoder, model.encoder.grid
    weights = sum(int(tf.size(v)) for v in model.decoder.trainable_variables)
    return (
        f"Encoder: {model.config.encoder.name}, {encoder.tap}, {height} x {width} x "
        f"{encoder.annotation_dim}, {_trained_part(model)}. "
        f"Decoder: {model.config.attention.kind} attention, {weights / 1e6:.2f} M weights."
    )


def _trained_part(model: Captioner) -> str:
    encoder, first = model.config.encoder, model.config.encoder.trainable_from
    if not encoder.trainable:
        return "frozen"
    weights = sum(int(tf.size(v)) for v in model.encoder.trainable_variables)
    return f"trained{f' from {first}' if first else ''} ({weights / 1e6:.2f} M weights)"
