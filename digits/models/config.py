"""Configurations of the digit models and of a published one; see `sat_tf.config`. No TensorFlow."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from digits import SYSTEM_KEY
from sat_tf.inference.run_folder import RunFolder, read_object
from sat_tf.util.errors import other_version
from sat_tf.util.fields import (
    Fraction,
    NonNegative,
    NonNegativeInt,
    Positive,
    Range,
    Size,
    check_fields,
    from_dict,
    to_dict,
)

Target = Literal["digit", "pair", "sum"]
"""The question about an image: its digit, its two digits in any order, or their sum."""


def answer_names(target: Target) -> tuple[str, ...]:
    """Returns the names of the classes, in the order of their numbers: 10, 55 or 19."""
    if target == "pair":
        return tuple(f"{low} and {high}" for low in range(10) for high in range(low, 10))
    return tuple(map(str, range(19 if target == "sum" else 10)))


@dataclass(frozen=True)
class PortionsConfig:
    """Attention over the portions of a strip, which hold one digit each."""

    attention: Literal["soft", "hard", "mean", "max", "sum", "gap"] = "soft"
    """soft or hard attention; mean, max or sum of the annotations; gap: global average pooling of
    the feature map of the whole strip."""
    queries: Literal["one", "all"] = "one"
    """one: is a 9 there, and where? all: the same for each of the ten labels at once."""
    filters: Size = 16
    """Width of the first convolution; the second has twice as many."""
    dropout: Fraction = 0.0
    """Dropout on the features of a portion, before its annotation vector."""
    annotation_dim: Size = 64
    """Width D of a portion's annotation vector."""
    query_dim: Size = 32
    """Width N of a query's embedding."""
    attention_dim: Size = 64
    """Width of the hidden layer of the attention MLP."""
    hidden_dim: Size = 64
    """Width of the hidden layer that turns query and context into an answer."""
    samples: Annotated[int, Range(2)] = 5
    """M, samples per query of hard attention; each one's baseline is the mean of the others."""
    entropy_weight: NonNegative = 0.0
    """lambda_e, weight of hard attention's entropy term."""

    def __post_init__(self) -> None:
        check_fields(self, "model")

    @property
    def attends(self) -> bool:
        """True if there are weights over the portions."""
        return self.attention in ("soft", "hard")


@dataclass(frozen=True)
class STNConfig:
    """A convolutional network behind a Spatial Transformer, behind a mask, or alone."""

    attention: Literal["transformer", "mask", "none"] = "transformer"
    """transformer rectifies the image first; mask dims what is beside the point; none: neither."""
    output_size: Annotated[int, Range(2)] = 28
    """Side of the rectified image, pixels."""
    localisation_filters: Size = 20
    """Width of the two convolutions of the localisation net."""
    localisation_dim: NonNegativeInt = 50
    """Width of the localisation net's hidden layer, 0 for none; a mask has none."""
    localisation_points: NonNegativeInt = 0
    """Heat maps whose centres of mass the localisation net reads beside its hidden layer, or
    instead of it; a mask has none."""
    filters: Size = 32
    """Width of the classifier's first convolution; the second has twice as many."""
    hidden_dim: Size = 128
    """Width of the classifier's hidden layer."""
    dropout: Fraction = 0.3
    """Dropout on the classifier's hidden layer."""

    def __post_init__(self) -> None:
        check_fields(self, "model")
        if not self.localisation_dim and not self.localisation_points:
            raise ValueError(
                "Received invalid values for keys `--model.localisation_dim` and "
                "`--model.localisation_points`: expected one of them above 0, got 0 and 0."
            )


@dataclass(frozen=True)
class GlimpseConfig:
    """Settings that RAM and DRAM share."""

    glimpses: Size = 6
    """Glimpses per image."""
    glimpse_size: Size = 8
    """Values along a side of each patch."""
    scales: Size = 1
    """Patches per glimpse, each twice as wide as the one before."""
    locations: Literal["learned", "random", "oracle"] = "learned"
    """Locations of glimpses: from the policy (learned); or, for comparison, anywhere (random) or
    where the digits are (oracle)."""
    first_location: Literal["learned", "centre", "random"] = "centre"
    """Location of the first glimpse; learned takes it from the policy like all the others."""
    std: Positive = 0.1
    """Standard deviation of the policy; 1 is half the image."""
    location_hidden_dim: Size = 128
    """Width of the hidden layer of the location network."""
    aim_weight: NonNegative = 0.0
    """Weight of the policy's squared mean before its tanh, which keeps glimpses that make no
    difference from drifting to the border. The papers have no such term."""
    random_steps: NonNegativeInt = 0
    """Steps of the warm-up, over which the share of images with random glimpses falls to zero, so
    that the policy learns from a classifier that knows something."""

    def __post_init__(self) -> None:
        check_fields(self, "model")


@dataclass(frozen=True)
class RAMConfig(GlimpseConfig):
    """The recurrent attention model of Mnih et al. (2014), arXiv:1406.6247."""

    core: Literal["relu", "lstm"] = "relu"
    """Core: `h = relu(W_h h + W_g g)`, as in the paper for digits, or an LSTM."""
    glimpse_hidden_dim: Size = 128
    """Width of the hidden layers of the glimpse network."""
    glimpse_dim: Size = 256
    """Width of a glimpse's features."""
    hidden_dim: Size = 256
    """Width of the core."""


@dataclass(frozen=True)
class DRAMConfig(GlimpseConfig):
    """The deep recurrent attention model of Ba et al. (2014), arXiv:1412.7755."""

    first_location: Literal["learned", "centre", "random"] = "learned"
    """Location of the first glimpse; learned takes it from the context."""
    context: bool = True
    """Start the upper LSTM from the coarse image instead of zero."""
    context_block: Size = 4
    """Side of the squares of pixels that are averaged for the coarse image."""
    context_filters: Size = 16
    """Width of the convolutions of the context network."""
    glimpse_filters: Size = 16
    """Width of the glimpse network's first convolution; the other two have twice as many."""
    glimpse_dim: Size = 256
    """Width of a glimpse's features."""
    hidden_dim: Size = 256
    """Width of both LSTMs."""


MODELS = {"ram": RAMConfig, "dram": DRAMConfig, "stn": STNConfig}
"""Configuration of each kind of model that is published."""


@dataclass(frozen=True)
class ReaderConfig:
    """Kind of a digit model, and the look of its images."""

    system: Literal["ram", "dram", "stn"]
    """Kind of the model."""
    recipe: str
    """Recipe it was trained by."""
    target: Target
    """The question about an image."""
    image_size: Size
    """Side of the square images, pixels."""
    ink_from: Positive
    """Length of the shortest digits of training, pixels."""
    ink_to: Positive
    """Length of the longest."""
    model: RAMConfig | DRAMConfig | STNConfig
    """Of the model."""

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def answers(self) -> tuple[str, ...]:
        """Names of the classes."""
        return answer_names(self.target)

    @property
    def digits(self) -> int:
        """Digits per image."""
        return 1 if self.target == "digit" else 2

    def to_text(self) -> str:
        """Returns the content of the configuration's file."""
        return json.dumps(to_dict(self), indent=1) + "\n"


def read_reader_config(folder: Path) -> ReaderConfig:
    """Reads the configuration of a published digit model.

    Raises:
        RunError: It is damaged, or of another version.
    """
    path = RunFolder(folder).config
    try:
        values = read_object(path)
        model = from_dict(MODELS[values[SYSTEM_KEY]], values.pop("model"))
        return from_dict(ReaderConfig, {**values, "model": model})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise other_version(path, error) from error
