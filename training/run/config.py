"""Configuration of a run: every setting, with its range, and valid combinations."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from sat_tf import config as configs
from sat_tf.inference.run_folder import RunFolder, read_captioner
from sat_tf.util.errors import invalid_value, other_version
from sat_tf.util.fields import (
    Fraction,
    NonNegative,
    NonNegativeInt,
    Positive,
    PositiveInt,
    Probability,
    Range,
    check_fields,
    from_dict,
    replaced,
    to_dict,
)
from training.data.config import DataConfig

T = TypeVar("T")


@dataclass(frozen=True)
class AttentionConfig(configs.AttentionConfig):
    """Kind of attention, its estimator, the terms it adds to the loss, and its teacher."""

    teacher: str | None = None
    """Teacher of attention, for supervision_weight: boxes of the training captions' phrases
    (Flickr30k Entities: a folder, for Flickr8k and Flickr30k; or JSON lines). None takes the boxes
    of drawn scenes."""


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
    """Dev examples in TensorBoard's attention figures after each epoch."""
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
    last epoch, for dev splits too small to compare epochs."""
    patience: PositiveInt = 5
    """Epochs without a better score before training stops."""
    validation_beam: PositiveInt = 1
    """Beam width for the captions scored after each epoch."""
    validation_images: PositiveInt | None = None
    """Dev images captioned after each epoch; None for all."""


@dataclass(frozen=True)
class RunConfig:
    """Everything that defines a run: two runs with equal configurations are the same.

    Teachers' files count by content, which the run's folder records: they may be moved.
    """

    recipe: str = "scenes_soft"
    """Recipe with the settings to start from."""
    seed: NonNegativeInt = 0
    """Seed of the weights, the order of the data and every random draw."""
    init_from: str | None = None
    """Pretrained weights to fine-tune: a finished run or published captioner; None for new ones."""
    keep_words: bool = False
    """Keep words of init_from that the captions lack, if it has their language: it may use them."""
    data: DataConfig = field(default_factory=DataConfig)
    encoder: configs.EncoderConfig = field(default_factory=configs.EncoderConfig)
    decoder: configs.DecoderConfig = field(default_factory=configs.DecoderConfig)
    attention: AttentionConfig = field(default_factory=AttentionConfig)
    search: configs.SearchConfig = field(default_factory=configs.SearchConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
    fit: FitConfig = field(default_factory=FitConfig)

    def __post_init__(self) -> None:
        check_fields(self)
        for key, expected, got in _conflicts(self):
            raise invalid_value(f"--{key}", expected, got, "key")

    @property
    def captioner(self) -> configs.CaptionerConfig:
        """The model's part, without what concerns its training alone."""
        attention = _only(configs.AttentionConfig, self.attention)
        return dataclasses.replace(_only(configs.CaptionerConfig, self), attention=attention)

    def without_files(self) -> RunConfig:
        """Returns the configuration without the places of files that teach, which may change."""
        return replaced(self, attention={"teacher": None}, fit={"predictions": None})

    def split_at(self, held_out: str | None) -> RunConfig:
        """Returns the configuration with the splits of a folder fixed, unless they are."""
        if self.data.name != "folder" or self.data.held_out is not None:
            return self
        return dataclasses.replace(self, data=dataclasses.replace(self.data, held_out=held_out))

    def resumed_as(self, wanted: RunConfig) -> RunConfig:
        """Returns this configuration with what may change on resume: places of teachers, too."""
        found = dataclasses.replace(self, fit=self.fit.resumed_as(wanted.fit))
        if self.attention.supervision_weight:
            found = replaced(found, attention={"teacher": wanted.attention.teacher})
        if self.fit.distillation_weight:
            found = replaced(found, fit={"predictions": wanted.fit.predictions})
        return found


def _only(kind: type[T], config: Any) -> T:
    """Returns the fields of `config` that are also those of `kind`."""
    return kind(**{one.name: getattr(config, one.name) for one in dataclasses.fields(kind)})


def _conflicts(config: RunConfig) -> Iterator[tuple[str, str, Any]]:
    """Yields keys that contradict the others: key, expected and given value."""
    data, attention, reward, fit = config.data, config.attention, config.reward, config.fit
    metric, rewarded = f"with `--reward.metric {reward.metric}`", reward.metric != "none"
    if config.keep_words and config.init_from is None:
        yield "keep_words", "False without `--init-from`", True
    for key in ("bleu_weight", "meteor_weight"):
        if getattr(reward, key) and not rewarded:
            yield f"reward.{key}", f"0 {metric}", getattr(reward, key)
    if reward.meteor_weight:
        from sat_tf.scores.tokens import OVER_CHARACTERS, default_tokens

        if default_tokens(**data.splitting) in OVER_CHARACTERS:
            yield "reward.meteor_weight", "0 for captions of characters", reward.meteor_weight
    if rewarded and config.init_from is None:
        wanted = f"a finished run {metric}, as an untrained model's samples all earn nothing"
        yield "init-from", wanted, None
    if rewarded and fit.jit_compile:
        yield "fit.jit_compile", f"False {metric}, as XLA cannot compute a reward", True
    if fit.jit_compile and fit.batch_by == "image":
        wanted = "False with `--fit.batch_by image`, as XLA needs few batch shapes (those of "
        yield "fit.jit_compile", f"{wanted}`length`)", True
    if attention.teacher is not None and not attention.supervision_weight:
        yield "attention.supervision_weight", "above 0 with `--attention.teacher`", 0.0
    if fit.predictions is not None and not fit.distillation_weight:
        yield "fit.distillation_weight", "above 0 with `--fit.predictions`", 0.0
    if attention.supervision_weight:  # views are whole, captions given
        wanted = "its default with `--attention.supervision-weight`"
        if data.random_crop:
            yield "data.random_crop", wanted, data.random_crop
        if rewarded:
            yield "reward.metric", wanted, reward.metric
    if fit.distillation_weight and rewarded:
        wanted = "0 with `--reward.metric`, as sampled captions have no predictions"
        yield "fit.distillation_weight", wanted, fit.distillation_weight
    if not config.encoder.trainable:
        frozen = "for a frozen encoder (`--encoder.trainable True` trains it)"
        if data.random_crop:
            yield "data.random_crop", f"0.0 {frozen}", data.random_crop
        if (rate := config.optimizer.encoder_learning_rate) is not None:
            yield "optimizer.encoder_learning_rate", f"None {frozen}", rate


def to_text(config: RunConfig, held_out: str | None = None) -> str:
    """Returns the content of config.json, the splits of a folder fixed."""
    return json.dumps(to_dict(config.split_at(held_out)), indent=2)


def read_run_config(run_dir: Path) -> RunConfig:
    """Reads the configuration that a captioner was trained with.

    Raises:
        ValueError: The folder is not a captioner's run, or one of another version.
    """
    path, values = RunFolder(run_dir).config, read_captioner(run_dir)
    try:
        return from_dict(RunConfig, values)
    except (TypeError, ValueError) as error:
        raise other_version(path, error) from error
