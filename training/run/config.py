"""Configuration of a run: its data, model, objective, optimizer and training loop."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from sat_tf import config as configs
from sat_tf.inference.run_folder import RunFolder, read_captioner
from sat_tf.scores.tokens import OVER_CHARACTERS, default_tokens
from sat_tf.util.errors import invalid_value, other_version
from sat_tf.util.fields import NonNegativeInt, check_fields, from_dict, to_dict
from training.data.config import DataConfig
from training.run.config_groups import AttentionConfig, FitConfig, OptimizerConfig, RewardConfig

T = TypeVar("T")


@dataclass(frozen=True)
class RunConfig:
    """Everything that defines a run: two runs with equal configurations are the same.

    Files that teach count by their content, which the run's folder records: they may be moved.
    """

    recipe: str = "scenes_soft"
    """Recipe whose settings to start from."""
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
        if self.keep_words and self.init_from is None:
            raise invalid_value("--keep_words", "False without `--init-from`", True, "key")
        _check_reward(self)
        _check_teachers(self)
        if not self.encoder.trainable:
            for key, value, expected in (
                ("data.random_crop", self.data.random_crop, 0.0),
                ("optimizer.encoder_learning_rate", self.optimizer.encoder_learning_rate, None),
            ):
                if value != expected:
                    wanted = f"{expected} for a frozen encoder (`--encoder.trainable True` "
                    raise invalid_value(f"--{key}", f"{wanted}trains it)", repr(value), "key")

    @property
    def captioner(self) -> configs.CaptionerConfig:
        """The model's part, without what concerns its training alone."""
        attention = _only(configs.AttentionConfig, self.attention)
        return dataclasses.replace(_only(configs.CaptionerConfig, self), attention=attention)

    def without_files(self) -> RunConfig:
        """Returns the configuration without the places of files that teach, which may change."""
        return dataclasses.replace(
            self,
            attention=dataclasses.replace(self.attention, teacher=None),
            fit=dataclasses.replace(self.fit, predictions=None),
        )

    def split_at(self, held_out: str | None) -> RunConfig:
        """Returns the configuration with the splits of a folder fixed, unless they are."""
        if self.data.name != "folder" or self.data.held_out is not None:
            return self
        return dataclasses.replace(self, data=dataclasses.replace(self.data, held_out=held_out))

    def resumed_as(self, wanted: RunConfig) -> RunConfig:
        """Returns this configuration with what may change on resume: places of teachers, too."""
        attention, fit = self.attention, self.fit.resumed_as(wanted.fit)
        if attention.supervision_weight:
            attention = dataclasses.replace(attention, teacher=wanted.attention.teacher)
        if fit.distillation_weight:
            fit = dataclasses.replace(fit, predictions=wanted.fit.predictions)
        return dataclasses.replace(self, attention=attention, fit=fit)


def _only(kind: type[T], config: Any) -> T:
    """Returns the fields of `config` that are also those of `kind`."""
    return kind(**{one.name: getattr(config, one.name) for one in dataclasses.fields(kind)})


def _check_reward(config: RunConfig) -> None:
    reward = config.reward
    if reward.metric == "none":
        for key in ("bleu_weight", "meteor_weight"):
            if weight := getattr(reward, key):
                expected = "0 with `--reward.metric none`"
                raise invalid_value(f"--reward.{key}", expected, weight, "key")
        return
    characters = default_tokens(**config.data.splitting) in OVER_CHARACTERS
    if reward.meteor_weight and characters:
        weight, expected = reward.meteor_weight, "0 for captions of characters"
        raise invalid_value("--reward.meteor_weight", expected, weight, "key")
    metric = f"with `--reward.metric {reward.metric}`"
    if config.init_from is None:
        expected = f"a finished run {metric}, as an untrained model's samples all earn nothing"
        raise invalid_value("--init-from", expected, None, "key")
    if config.fit.jit_compile:
        expected = f"False {metric}, as XLA cannot compute a reward"
        raise invalid_value("--fit.jit_compile", expected, True, "key")


def _check_teachers(config: RunConfig) -> None:
    """Checks that what teaches can go with the rest: views are whole, captions given."""
    rewarded = None if config.reward.metric == "none" else config.reward.metric
    if config.attention.supervision_weight:
        for key, found in (
            ("data.random_crop", config.data.random_crop or None),
            ("reward.metric", rewarded),
        ):
            if found is not None:
                expected = "its default with `--attention.supervision-weight`"
                raise invalid_value(f"--{key}", expected, repr(found), "key")
    if config.fit.distillation_weight and rewarded:
        weight, expected = config.fit.distillation_weight, "0 with `--reward.metric`"
        why = f"{expected}, as sampled captions have no predictions"
        raise invalid_value("--fit.distillation_weight", why, weight, "key")


def check_available(config: RunConfig) -> None:
    """Checks that what teaches is there, before TensorFlow, which takes seconds, is loaded.

    Reading a saved configuration does not check it: files may be gone since.

    Raises:
        ValueError: The message names the key.
    """
    attention, fit = config.attention, config.fit
    encoder = config.encoder
    names, files = encoder.name.split(configs.JOIN), configs.weights_files(encoder.weights)
    if (encoder.name, encoder.layer, encoder.trainable_from) != (configs.SCENES_CNN, None, None):
        from sat_tf.layers.encoder_names import check_encoder

        check_encoder(encoder)
    for name, file in zip(names, files, strict=False) if config.init_from is None else ():
        if file == "imagenet" and (name == configs.SCENES_CNN or name.startswith(configs.HUB)):
            expected = f"none or a file: {name} has no ImageNet weights"
            raise invalid_value("--encoder.weights", expected, encoder.weights, "key")
    if attention.supervision_weight:
        if attention.teacher is None and config.data.name != "scenes":
            expected = "boxes of the training captions' phrases to supervise attention by"
            raise invalid_value("--attention.teacher", expected, None, "key")
        if attention.teacher is not None and not Path(attention.teacher).exists():
            expected = "a file or folder of boxes"
            got = f"{attention.teacher}, which does not exist"
            raise invalid_value("--attention.teacher", expected, got, "key")
    if fit.distillation_weight and (fit.predictions is None or not Path(fit.predictions).is_file()):
        expected = "a file of training.distill"
        raise invalid_value("--fit.predictions", expected, fit.predictions, "key")
    if config.reward.meteor_weight:
        from sat_tf.scores.meteor_scoring import check_tables
        from sat_tf.scores.meteor_words import TablesError

        try:
            check_tables()
        except TablesError as error:
            got = config.reward.meteor_weight
            expected = f"0 without METEOR's tables ({error})"
            raise invalid_value("--reward.meteor_weight", expected, got, "key") from error


def to_text(config: RunConfig) -> str:
    """Returns the content of config.json."""
    return json.dumps(to_dict(config), indent=2)


def read_run_config(run_dir: Path) -> RunConfig:
    """Reads the configuration that a captioner was trained with.

    Raises:
        ValueError: The folder is not a captioner's run, or comes from another version.
    """
    path, values = RunFolder(run_dir).config, read_captioner(run_dir)
    try:
        return from_dict(RunConfig, values)
    except (TypeError, ValueError) as error:
        raise other_version(path, error) from error
