"""Groups of a run's settings that are training's alone: teacher, optimizer, reward, loop."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, TypeVar

from sat_tf import config as configs
from sat_tf.util.errors import invalid_value
from sat_tf.util.fields import (
    Fraction,
    NonNegative,
    NonNegativeInt,
    Positive,
    PositiveInt,
    Probability,
    Range,
    check_fields,
)

T = TypeVar("T")


@dataclass(frozen=True)
class AttentionConfig(configs.AttentionConfig):
    """Kind of attention, its estimator, the terms it adds to the loss, and its teacher."""

    teacher: str | None = None
    """Teacher of attention, for supervision_weight: boxes of the training captions' phrases
    (Flickr30k Entities: a folder, for Flickr8k and Flickr30k; or JSON lines). None takes the boxes
    of drawn scenes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.teacher is not None and not self.supervision_weight:
            expected = "above 0 with `--attention.teacher`"
            raise invalid_value("--attention.supervision_weight", expected, 0.0, "key")


@dataclass(frozen=True)
class BaseOptimizerConfig:
    """The optimizer and its schedule."""

    name: Literal["adam", "adamw", "rmsprop"] = "adam"
    """Optimizer: adam, adamw (decoupled weight decay) or rmsprop (the paper's for Flickr8k)."""
    learning_rate: Positive = 1e-3
    """Peak learning rate."""
    schedule: Literal["constant", "cosine"] = "constant"
    """Schedule of the learning rate; cosine falls to zero at the last step."""
    warmup_epochs: NonNegative = 0.0
    """Epochs over which the learning rate rises linearly from zero."""
    weight_decay: NonNegative = 0.0
    """Decoupled weight decay, for adamw only."""
    clip_norm: NonNegative = 5.0
    """Largest global norm of a gradient; 0 does not clip."""

    def __post_init__(self) -> None:
        check_fields(self, "optimizer")


@dataclass(frozen=True)
class OptimizerConfig(BaseOptimizerConfig):
    """A captioner's optimizer, with an optional learning rate for the encoder."""

    encoder_learning_rate: Positive | None = None
    """Learning rate of a trained encoder, on the same schedule; None for learning_rate."""


@dataclass(frozen=True)
class RewardConfig:
    """Sequence-level training of a trained captioner: a metric rewards sampled captions."""

    metric: Literal["none", "cider"] = "none"
    """Metric that rewards captions: CIDEr-D against the training captions; none trains word by
    word."""
    bleu_weight: NonNegative = 0.0
    """Weight of BLEU (0 to 10, mean precision times brevity factor) added to the metric."""
    meteor_weight: NonNegative = 0.0
    """Weight of METEOR (0 to 10) added to the metric, for captions of words."""
    samples: Annotated[int, Range(2)] = 5
    """Captions sampled per image; each is compared with the others."""
    max_length: PositiveInt = 20
    """Most words of a sampled caption."""

    def __post_init__(self) -> None:
        check_fields(self, "reward")


@dataclass(frozen=True)
class BaseFitConfig:
    """The training loop."""

    monitor: ClassVar[str]
    """Dev score that decides the best epoch; a key of captioners, fixed for digit systems."""

    epochs: PositiveInt = 10
    """Maximum number of epochs."""
    batch_size: PositiveInt = 64
    """Examples per batch, over all devices."""
    patience: PositiveInt = 10
    """Epochs without a better dev score before training stops."""
    figures: NonNegativeInt = 4
    """Dev examples whose attention TensorBoard shows after each epoch."""
    jit_compile: bool = False
    """Compile the train step with XLA."""
    checkpoint_steps: PositiveInt = 500
    """Steps between checkpoints within an epoch; each epoch ends with one. May change on resume."""

    def __post_init__(self) -> None:
        check_fields(self, "fit")

    def resumed_as(self: T, wanted: T) -> T:
        """Returns this loop with what may change on resume: steps of checkpoints, more epochs."""
        epochs = max(self.epochs, wanted.epochs)
        return dataclasses.replace(self, epochs=epochs, checkpoint_steps=wanted.checkpoint_steps)


@dataclass(frozen=True)
class FitConfig(BaseFitConfig):
    """The training loop."""

    batch_size: PositiveInt = 64
    """Captions per batch, over all devices; images with a reward."""
    batch_by: Literal["length", "image"] = "length"
    """Captions of a batch: of similar length, or all those of an image, so that what does not
    depend on the caption is computed once."""
    label_smoothing: Fraction = 0.0
    """Share of each target spread over the vocabulary."""
    distillation_weight: Probability = 0.0
    """Share of each target that other captioners predict."""
    predictions: str | None = None
    """Those predictions, for distillation_weight: a file of training.distill (.npz)."""
    precision: Literal["float32", "bfloat16", "auto"] = "float32"
    """Precision of the matrix products; softmax and loss are always float32."""
    monitor: Literal["bleu_4", "cider", "nll", "last"] = "bleu_4"
    """Free-running dev score (or teacher-forced nll) for early stopping and the best weights; while
    it is 0 or undefined in every epoch, cider decides, and while that is 0 too, nll. last keeps the
    last epoch, for dev splits too small to tell epochs apart."""
    patience: PositiveInt = 5
    """Epochs without a better score before training stops."""
    validation_beam: PositiveInt = 1
    """Beam width for the captions scored after each epoch."""
    validation_images: PositiveInt | None = None
    """Dev images captioned after each epoch; None for all."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.jit_compile and self.batch_by == "image":
            expected = "False with `--fit.batch_by image`, as XLA needs few batch shapes (those "
            expected += "of `length`)"
            raise invalid_value("--fit.jit_compile", expected, True, "key")
        if self.predictions is not None and not self.distillation_weight:
            expected = "above 0 with `--fit.predictions`"
            raise invalid_value("--fit.distillation_weight", expected, 0.0, "key")
