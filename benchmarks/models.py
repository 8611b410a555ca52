"""Captioners of a shape, with the settings of Flickr8k's recipes for VGG19 and random weights."""

from __future__ import annotations

import dataclasses
from typing import Literal

import keras
import tensorflow as tf

from benchmarks.shapes import Shape
from sat_tf.config import EncoderConfig
from sat_tf.models.captioner import Captioner
from sat_tf.runs import TrainedCaptioner
from sat_tf.vocabulary import END, SPECIAL_TOKENS, Vocabulary
from training.config import RunConfig
from training.recipes.captioning import RECIPES
from training.tasks.captioning.task import compile_model

Kind = Literal["soft", "hard"]
Precision = Literal["float32", "bfloat16"]
PRECISIONS: tuple[Precision, ...] = ("float32", "bfloat16")
STEPS = 469
"""Steps of an epoch of Flickr8k in batches of 64, for the learning rate schedule."""


def run_config(
    shape: Shape, kind: Kind = "soft", precision: Precision = "float32", xla: bool = False
) -> RunConfig:
    """Returns the Flickr8k recipe in this shape, whose decoder has no narrow layer."""
    base = RECIPES[f"flickr8k_vgg19_{kind}"]
    widths = {name: getattr(shape, name) for name in ("embedding_dim", "attention_dim")}
    return dataclasses.replace(
        base,
        encoder=EncoderConfig(shape.backbone, image_size=shape.image_size),
        decoder=dataclasses.replace(base.decoder, hidden_dim=shape.hidden_dim, **widths),
        fit=dataclasses.replace(base.fit, precision=precision, jit_compile=xla),
    )


def captioner(shape: Shape, config: RunConfig) -> Captioner:
    """Makes a compiled captioner with random weights, the same in every precision."""
    keras.utils.set_random_seed(config.seed)
    policy = "mixed_bfloat16" if config.fit.precision == "bfloat16" else "float32"
    words = shape.vocabulary_size
    model = Captioner(config.captioner, words, load_encoder_weights=False, dtype=policy)
    height, width = model.encoder.grid
    if (height * width, model.encoder.annotation_dim) != (shape.locations, shape.annotation_dim):
        raise ValueError(
            f"Received an invalid value for argument `shape`: expected L {height * width} and D "
            f"{model.encoder.annotation_dim}, which {shape.backbone} gives, got {shape}."
        )
    compile_model(model, config, STEPS)
    return model


def train_function(
    model: Captioner, shape: Shape, xla: bool
) -> tf.types.experimental.PolymorphicFunction:
    """Compiles the train step as `fit` does, for batches of any size and length."""
    batch = {
        "annotations": tf.TensorSpec([None, shape.locations, shape.annotation_dim], tf.float16),
        "tokens": tf.TensorSpec([None, None], tf.int32),
    }
    return tf.function(model.train_step, input_signature=[batch], autograph=False, jit_compile=xla)


def talkative(model: Captioner) -> TrainedCaptioner:
    """Adds a vocabulary and forbids the end: captions are as long as they may be."""
    bias = model.decoder.deep_output.word_projection.bias
    bias.assign(tf.one_hot(END, model.vocabulary_size, on_value=-100.0))
    words = (f"word{n}" for n in range(len(SPECIAL_TOKENS), model.vocabulary_size))
    return TrainedCaptioner(model, Vocabulary((*SPECIAL_TOKENS, *words)))
