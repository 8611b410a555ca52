"""Configuration of a captioning run."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from sat_tf import config as configs
from sat_tf import published
from sat_tf.errors import invalid_value, other_version
from sat_tf.fields import (
    Fraction,
    NonNegative,
    NonNegativeInt,
    Positive,
    PositiveInt,
    Range,
    check_fields,
)
from sat_tf.run_folder import RunFolder, read_object
from sat_tf.vocabulary import Unit
from training.config import BaseFitConfig, BaseOptimizerConfig, read_saved
from training.data.sources import DataName, Splits
from training.metrics.tokenisers import english_only


@dataclass(frozen=True)
class DataConfig:
    """The data set and how its captions become words."""

    name: DataName = "scenes"
    """Name of the data set."""
    splits: Splits | None = None
    """Splits of flickr8k and flickr30k; None for official (flickr8k) or karpathy (flickr30k)."""
    captions: str | None = None
    """Caption file of the data set `folder`, relative to it; None if there is only one."""
    image_dir: str | None = None
    """Folder of the images of the data set `folder`, relative to it; None for the folder itself."""
    tokens: Unit = "words"
    """Units of a caption; characters suit languages without spaces."""
    language: str = "en"
    """Language code of the captions; METEOR and the PTB tokeniser support English only."""
    min_count: PositiveInt = 5
    """Words seen fewer times in the training captions become <unk>."""
    vocabulary_size: PositiveInt | None = None
    """Most words kept, by frequency; None keeps all that pass min_count."""
    max_length: PositiveInt = 30
    """Training captions are cut to this many words."""
    mirror: bool = False
    """Mirror images half of the time."""
    random_crop: Annotated[float, Range(0, 0.5)] = 0.0
    """Share of an image's height and width cropped at random; needs a trained encoder."""
    seed: NonNegativeInt = 0
    """Seed of drawn data sets."""
    limit: PositiveInt | None = None
    """Use only the first examples of each split, to try something out."""

    def __post_init__(self) -> None:
        check_fields(self, "data")
        if not re.fullmatch(r"[A-Za-z]{2,3}(-[A-Za-z0-9]+)*", self.language):
            expected = "a code such as en, de or zh-Hans"
            raise invalid_value("--data.language", expected, repr(self.language), "key")

    def options(self) -> dict[str, Any]:
        """Returns the keyword arguments of `training.data.sources.load_split`."""
        names = ("seed", "limit", "splits", "captions", "image_dir")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class OptimizerConfig(BaseOptimizerConfig):
    """A captioner's optimizer, with an optional learning rate for the encoder."""

    encoder_learning_rate: Positive | None = None
    """Learning rate of a trained encoder, on the same schedule; None for learning_rate."""


@dataclass(frozen=True)
class FitConfig(BaseFitConfig):
    """The training loop."""

    batch_size: PositiveInt = 64
    """Captions per batch, over all devices; images with a reward."""
    batch_by: Literal["length", "image"] = "length"
    """Captions of a batch: of similar length, or all those of an image, so that a trained encoder
    sees it once."""
    label_smoothing: Fraction = 0.0
    """Share of each target spread over the vocabulary."""
    distillation_weight: Annotated[float, Range(0, 1)] = 0.0
    """Share of each target that other captioners predict, by training.train's --predictions."""
    precision: Literal["float32", "bfloat16", "auto"] = "float32"
    """Precision of the matrix products; softmax and loss are always float32."""
    monitor: Literal["bleu_4", "cider", "nll"] = "bleu_4"
    """Free-running dev score (or teacher-forced nll) for early stopping and the best weights."""
    patience: PositiveInt = 5
    """Epochs without a better score before training stops."""
    validation_beam: PositiveInt = 1
    """Beam width for the captions scored after each epoch."""
    validation_images: PositiveInt | None = None
    """Dev images captioned after each epoch; None for all."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.jit_compile and self.batch_by == "image":
            expected = "False with `--fit.batch_by image`, as XLA needs few batch shapes"
            raise invalid_value("--fit.jit_compile", expected, True, "key")


@dataclass(frozen=True)
class RewardConfig:
    """Sequence-level training of a trained captioner: a metric rewards sampled captions."""

    metric: Literal["none", "cider"] = "none"
    """Metric that rewards captions: CIDEr-D against the training captions; none trains word by
    word."""
    bleu_weight: NonNegative = 0.0
    """Weight of BLEU (0 to 10, mean precision times brevity factor) added to the metric."""
    meteor_weight: NonNegative = 0.0
    """Weight of METEOR (0 to 10) added to the metric; needs Java and English captions."""
    samples: Annotated[int, Range(2)] = 5
    """Captions sampled per image; each is compared with the others."""
    max_length: PositiveInt = 20
    """Most words of a sampled caption."""

    def __post_init__(self) -> None:
        check_fields(self, "reward")


@dataclass(frozen=True)
class RunConfig:
    """Everything that defines a run: two runs with equal configurations are the same."""

    recipe: str = "scenes_soft"
    """Recipe whose settings to start from."""
    seed: NonNegativeInt = 0
    """Seed of the weights, the order of the data and every random draw."""
    init_from: str | None = None
    """Finished run or published captioner whose weights this one starts from; None for new ones."""
    data: DataConfig = field(default_factory=DataConfig)
    encoder: configs.EncoderConfig = field(default_factory=configs.EncoderConfig)
    decoder: configs.DecoderConfig = field(default_factory=configs.DecoderConfig)
    attention: configs.AttentionConfig = field(default_factory=configs.AttentionConfig)
    search: configs.SearchConfig = field(default_factory=configs.SearchConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
    fit: FitConfig = field(default_factory=FitConfig)

    def __post_init__(self) -> None:
        check_fields(self)
        _check_reward(self)
        if self.attention.supervision_weight:
            _check_supervised(self)
        if self.fit.distillation_weight:
            _check_distilled(self)
        if not self.encoder.trainable:
            _check_frozen("data.random_crop", self.data.random_crop, 0.0)
            rate = self.optimizer.encoder_learning_rate
            _check_frozen("optimizer.encoder_learning_rate", rate, None)
            _check_frozen("fit.batch_by", self.fit.batch_by, "length")


def _check_reward(config: RunConfig) -> None:
    reward = config.reward
    if reward.metric == "none":
        for key in ("bleu_weight", "meteor_weight"):
            if weight := getattr(reward, key):
                expected = "0 with `--reward.metric none`"
                raise invalid_value(f"--reward.{key}", expected, weight, "key")
        return
    foreign = english_only(config.data.language, config.data.tokens)
    if reward.meteor_weight and foreign:
        weight, expected = reward.meteor_weight, "0 for captions that are not English words"
        raise invalid_value("--reward.meteor_weight", expected, weight, "key")
    metric = f"with `--reward.metric {reward.metric}`"
    if config.init_from is None:
        expected = f"a finished run {metric}, as an untrained model's samples all earn nothing"
        raise invalid_value("--init-from", expected, None, "key")
    if config.fit.jit_compile:
        expected = f"False {metric}, as XLA cannot compute a reward"
        raise invalid_value("--fit.jit_compile", expected, True, "key")


def _check_distilled(config: RunConfig) -> None:
    if config.reward.metric != "none":
        weight, expected = config.fit.distillation_weight, "0 with `--reward.metric`"
        why = f"{expected}, as sampled captions have no predictions"
        raise invalid_value("--fit.distillation_weight", why, weight, "key")


def _check_supervised(config: RunConfig) -> None:
    """Checks that maps of words can go with the rest: views are whole, captions given."""
    for key, found in (
        ("data.random_crop", config.data.random_crop or None),
        ("data.tokens", None if config.data.tokens == "words" else config.data.tokens),
        ("reward.metric", None if config.reward.metric == "none" else config.reward.metric),
    ):
        if found is not None:
            expected = "its default with `--attention.supervision-weight`"
            raise invalid_value(f"--{key}", expected, repr(found), "key")


def _check_frozen(key: str, value: float | str | None, expected: float | str | None) -> None:
    if value != expected:
        wanted = f"{expected} for a frozen encoder (`--encoder.trainable True` trains it)"
        raise invalid_value(f"--{key}", wanted, repr(value), "key")


def read_run_config(run_dir: Path) -> RunConfig:
    """Reads the configuration that a captioner was trained with.

    Raises:
        ValueError: The folder is not a captioner's run, or comes from another version.
    """
    path = RunFolder(run_dir).config
    values = read_object(path)
    if configs.SYSTEM_KEY in values:
        raise published.no_captioner(Path(run_dir), values[configs.SYSTEM_KEY])
    try:
        return read_saved(RunConfig, values)
    except (TypeError, ValueError) as error:
        raise other_version(path, error) from error
