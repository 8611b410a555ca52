"""Sizes that are measured, and captioners and captions of these sizes, with random content."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

import keras
import numpy as np
import tensorflow as tf

from sat_tf.captioner import Captioner
from sat_tf.config import EncoderConfig
from sat_tf.inference.keras_captioner import KerasCaptioner
from sat_tf.objectives import make_objective
from sat_tf.text.vocabulary import END, SPECIAL_TOKENS, START, UNK, Vocabulary
from training.run.build import compile_model
from training.run.config import RunConfig
from training.run.recipes import RECIPES

Kind = Literal["soft", "hard"]
Precision = Literal["float32", "bfloat16"]
PRECISIONS: tuple[Precision, ...] = ("float32", "bfloat16")
STEPS = 469
"""Steps of an epoch of Flickr8k in batches of 64, for the learning rate schedule."""

_WORDS = range(2, 31)
# Of Flickr8k's 29,995 training captions, those with so many words; the last: 30 or more.
_CAPTIONS = (15, 126, 346, 862, 1958, 2535, 2927, 3318, 3318, 3132, 2777, 2320, 1848, 1329, 977)
_CAPTIONS += (662, 513, 365, 204, 136, 110, 74, 52, 33, 20, 11, 7, 9, 11)


@dataclass(frozen=True)
class Shape:
    """Sizes of a captioner and its data.

    Attributes:
        name: Name of the shape.
        backbone: Encoder with such annotations.
        image_size: Side of its images, pixels.
        locations: L.
        annotation_dim: D.
        vocabulary_size: K.
        width: m, A and N: of embeddings, attention and LSTM.
    """

    name: str
    backbone: str
    image_size: int
    locations: int
    annotation_dim: int
    vocabulary_size: int
    width: int = 512


SHAPES = {
    shape.name: shape
    for shape in (
        Shape("flickr8k", "mobilenet_v2", 224, 49, 1280, 2540),
        Shape("coco", "vgg19", 224, 196, 512, 10_000),
        Shape("toy", "scenes_cnn", 16, 4, 32, 60, 8),
    )
}


def caption_lengths(count: int) -> np.ndarray:
    """Draws the words per caption as in Flickr8k, int32 `[count]`."""
    shares = np.array(_CAPTIONS) / sum(_CAPTIONS)
    return np.random.default_rng(0).choice(np.array(_WORDS, np.int32), count, p=shares)


def caption_tokens(lengths: np.ndarray, vocabulary_size: int) -> list[np.ndarray]:
    """Draws captions of so many words, uniformly: `<start> ... <end>`, int32."""
    rng = np.random.default_rng(0)
    return [
        np.array([START, *rng.integers(UNK + 1, vocabulary_size, n), END], np.int32)
        for n in lengths
    ]


def run_config(shape: Shape, kind: Kind = "soft", precision: Precision = "float32") -> RunConfig:
    """Returns the Flickr8k recipe for VGG19 in this shape; its decoder has no narrow layer."""
    base, width = RECIPES[f"flickr8k_vgg19_{kind}"], shape.width
    widths = {"embedding_dim": width, "attention_dim": width, "hidden_dim": width}
    return dataclasses.replace(
        base,
        encoder=EncoderConfig(shape.backbone, image_size=shape.image_size),
        decoder=dataclasses.replace(base.decoder, **widths),
        fit=dataclasses.replace(base.fit, precision=precision),
    )


def captioner(shape: Shape, config: RunConfig) -> Captioner:
    """Makes a compiled captioner with random weights, the same in every precision."""
    keras.utils.set_random_seed(config.seed)
    policy = "mixed_bfloat16" if config.fit.precision == "bfloat16" else "float32"
    words = shape.vocabulary_size
    model = Captioner(config.captioner, words, load_encoder_weights=False, dtype=policy)
    objective = make_objective(config.attention)
    compile_model(model, objective, config.optimizer, STEPS, config.fit, config.seed)
    model.optimizer.build(model.trainable_variables)
    return model


def talkative(model: Captioner) -> KerasCaptioner:
    """Adds a vocabulary and forbids the end: captions are as long as they may be."""
    bias = model.decoder.deep_output.word_projection.bias
    bias.assign(tf.one_hot(END, model.vocabulary_size, on_value=-100.0))
    words = (f"word{n}" for n in range(len(SPECIAL_TOKENS), model.vocabulary_size))
    return KerasCaptioner(model, Vocabulary((*SPECIAL_TOKENS, *words)))


def annotations(shape: Shape, count: int, dtype: str = "float32", seed: int = 0) -> tf.Tensor:
    """Draws annotations `[count, L, D]`, uniform in [0, 1)."""
    size = [count, shape.locations, shape.annotation_dim]
    return tf.constant(np.random.default_rng(seed).random(size, np.float32), dtype)
