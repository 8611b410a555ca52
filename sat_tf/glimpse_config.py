"""Frozen dataclasses that say what a Spatial Transformer, a RAM or a DRAM is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sat_tf.ranges import Count, Rate, Share, Size, Weight, check_ranges

Locations = Literal["learned", "random", "oracle"]
"""Where glimpses are taken: from the policy, anywhere, or where the digits are."""
Reward = Literal["correct", "log_lik"]
"""What a sequence of glimpses earns: 1 for the right answer, or log p of it."""


@dataclass(frozen=True)
class STNConfig:
    """A convolutional network behind a Spatial Transformer, behind a mask, or by itself."""

    attention: Literal["transformer", "mask", "none"] = "transformer"
    """Rectify the picture first, dim what is beside the point, or do neither."""
    output_size: Size = 28
    """Side of the rectified picture, pixels."""
    localisation_filters: Size = 20
    """Width of the two convolutions of the net that says where to look."""
    localisation_dim: Count = 50
    """Width of its hidden layer, or 0; a mask has none."""
    localisation_points: Count = 0
    """Heat maps whose centres of mass it reads too, or in place of it; a mask has none."""
    filters: Size = 32
    """Width of the classifier's first convolution; the second has twice as many."""
    hidden_dim: Size = 128
    """Width of the classifier's hidden layer."""
    dropout: Share = 0.3
    """Dropout on that layer."""

    def __post_init__(self) -> None:
        check_ranges(self, "model")
        if self.output_size < 2:
            raise ValueError(
                "Received an invalid value for key `--model.output_size`: expected 2 or more, "
                f"got {self.output_size}."
            )
        if not self.localisation_dim and not self.localisation_points:
            raise ValueError(
                "Received invalid values for keys `--model.localisation_dim` and "
                "`--model.localisation_points`: expected one of them above 0, got 0 and 0."
            )


@dataclass(frozen=True)
class GlimpseConfig:
    """What the models that look at a picture by glimpses have in common."""

    glimpses: Size = 6
    """Glimpses a picture."""
    glimpse_size: Size = 8
    """Values along a side of each patch."""
    scales: Size = 1
    """Patches a glimpse, each twice as wide as the one before."""
    locations: Locations = "learned"
    """From the policy; random or oracle (where the digits are) to compare it with."""
    first_location: Literal["learned", "centre", "random"] = "centre"
    """Of the first glimpse; learned is the policy's, as of all the others."""
    std: Rate = 0.1
    """Standard deviation of the policy; 1 is half the picture."""
    location_hidden_dim: Size = 128
    """Width of the hidden layer of the location network."""
    samples: Size = 1
    """M, sequences of glimpses a picture in training."""
    baseline: Literal["learned", "leave_one_out", "none"] = "learned"
    """Taken from the reward; leave_one_out is the mean of the picture's other samples."""
    reward: Reward = "correct"
    """1 for the right answer, or its log p, with which the gradient is that of the bound."""
    reward_weight: Weight = 1.0
    """Of the score-function term."""
    value_weight: Weight = 1.0
    """Of the learned baseline's error."""
    aim_weight: Weight = 0.0
    """Of the squared distance from the middle, before its tanh, at which the policy aims: a glimpse
    that makes no difference can drift to the border and stay there. The papers have none."""
    random_steps: Count = 0
    """Warm-up: the share of pictures looked at in random places falls to zero over so many
    steps, so that the classifier is worth listening to when the policy learns from it."""

    def __post_init__(self) -> None:
        check_ranges(self, "model")
        if self.baseline == "leave_one_out" and self.samples < 2:
            raise ValueError(
                "Received an invalid value for key `--model.baseline`: expected "
                "`--model.samples` of at least 2 for leave_one_out, got 1."
            )


@dataclass(frozen=True)
class RAMConfig(GlimpseConfig):
    """The recurrent attention model of Mnih et al. (2014), arXiv:1406.6247."""

    core: Literal["relu", "lstm"] = "relu"
    """`h = relu(W_h h + W_g g)` as for the paper's digits, or an LSTM."""
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
    """Of the first glimpse; learned is from the context."""
    context: bool = True
    """A look at the whole picture, coarsely, is the upper LSTM's first state; else it is zero."""
    context_block: Size = 4
    """Side of the squares of pixels that are averaged for it."""
    context_filters: Size = 16
    """Width of its convolutions."""
    glimpse_filters: Size = 16
    """Width of the glimpse network's first convolution; the other two have twice as many."""
    glimpse_dim: Size = 256
    """Width of a glimpse's features."""
    hidden_dim: Size = 256
    """Width of both LSTMs."""
