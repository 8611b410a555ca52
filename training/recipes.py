"""Named configurations, and everything a run can be told."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from sat_tf.config import (
    CONFIG_FILE,
    SYSTEM_KEY,
    AttentionConfig,
    DecoderConfig,
    EncoderConfig,
    SearchConfig,
    from_dict,
)
from sat_tf.ranges import Count, Range, Rate, Share, Size, Weight, check_ranges
from sat_tf.vocabulary import Unit
from training.datasets import DataName, Splits

T = TypeVar("T")


@dataclass(frozen=True)
class DataConfig:
    """The data set and how its captions become words."""

    name: DataName = "scenes"
    """Which data set."""
    splits: Splits | None = None
    """Whose splits of flickr8k and flickr30k; None for official (flickr8k) or karpathy."""
    captions: str | None = None
    """Caption file of folder, by its path from there; None where it is the only one."""
    image_dir: str | None = None
    """Where the images of folder are, by its path from there; None for the folder itself."""
    tokens: Unit = "words"
    """What captions are made of: characters for languages without spaces."""
    language: str = "en"
    """Code of the captions' language; METEOR and the PTB tokeniser serve English only."""
    min_count: Size = 5
    """Words seen fewer times in the training captions become <unk>."""
    vocabulary_size: Size | None = None
    """Most words kept, by frequency; None keeps all that pass min_count."""
    max_length: Size = 30
    """Training captions are cut to so many words."""
    mirror: bool = False
    """Use the mirrored picture half of the time."""
    random_crop: Annotated[float, Range(0, 0.5)] = 0.0
    """Share of the picture's height and width left out at random; for a trained encoder."""
    seed: Count = 0
    """Of drawn data sets."""
    limit: Size | None = None
    """Use only the first examples of each split, to try something out."""

    def __post_init__(self) -> None:
        check_ranges(self, "data")
        if not re.fullmatch(r"[A-Za-z]{2,3}(-[A-Za-z0-9]+)*", self.language):
            raise ValueError(
                "Received an invalid value for key `--data.language`: expected a code such as en, "
                f"de or zh-Hans, got {self.language!r}."
            )

    def options(self) -> dict[str, Any]:
        """The keyword arguments of `training.datasets.load_split`."""
        names = ("seed", "limit", "splits", "captions", "image_dir")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class BaseOptimizerConfig:
    """The optimiser and its schedule."""

    name: Literal["adam", "adamw", "rmsprop"] = "adam"
    """adam, adamw (decoupled weight decay) or rmsprop (the paper's for Flickr8k)."""
    learning_rate: Rate = 1e-3
    """Peak learning rate."""
    schedule: Literal["constant", "cosine"] = "constant"
    """cosine falls to zero at the last step."""
    warmup_epochs: Weight = 0.0
    """Epochs over which the learning rate rises linearly from zero."""
    weight_decay: Weight = 0.0
    """adamw's."""
    clip_norm: Weight = 5.0
    """Largest global norm of a gradient; 0 does not clip."""

    def __post_init__(self) -> None:
        check_ranges(self, "optimizer")


@dataclass(frozen=True)
class OptimizerConfig(BaseOptimizerConfig):
    """A captioner's optimiser, in which the encoder may have a rate of its own."""

    encoder_learning_rate: Rate | None = None
    """That of a trained encoder, on the same schedule; None for learning_rate."""


@dataclass(frozen=True)
class FitConfig:
    """The training loop."""

    epochs: Size = 10
    """Most epochs."""
    batch_size: Size = 64
    """Captions a batch, over all devices; pictures with a reward."""
    batch_by: Literal["length", "picture"] = "length"
    """picture: all captions of a picture together, which a trained encoder then sees once."""
    label_smoothing: Share = 0.0
    """Share of each target spread over the vocabulary."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Of the matrix products; softmax and loss are float32 always."""
    monitor: Literal["bleu_4", "cider", "nll"] = "bleu_4"
    """Free-running dev score (or teacher-forced nll) for early stopping and the best weights."""
    patience: Size = 5
    """Epochs without a better score before training stops."""
    validation_beam: Size = 1
    """Beam of the captions scored after each epoch."""
    validation_images: Size | None = None
    """Dev images captioned after each epoch; None for all."""
    pictures: Count = 4
    """Dev images whose attention TensorBoard shows after each epoch."""
    jit_compile: bool = False
    """Compile the train step with XLA."""
    checkpoint_steps: Size = 500
    """Steps after which the state is kept; it is after each epoch too. May change in a run."""

    def __post_init__(self) -> None:
        check_ranges(self, "fit")
        if self.jit_compile and self.batch_by == "picture":
            raise ValueError(
                "Received an invalid value for key `--fit.jit_compile`: expected False with "
                "`--fit.batch_by picture`, got True; XLA wants batches of few different sizes."
            )


@dataclass(frozen=True)
class RewardConfig:
    """Sequence-level training, from a trained captioner: captions are drawn, a metric rewards."""

    metric: Literal["none", "cider"] = "none"
    """none: learn the captions word by word; cider: CIDEr-D against the training captions."""
    bleu_weight: Weight = 0.0
    """Added to the metric so many times: BLEU's precisions, their mean, 0 to 10."""
    samples: Annotated[int, Range(2)] = 5
    """Captions drawn a picture; each is compared with the others."""
    max_length: Size = 20
    """Most words of a caption drawn."""

    def __post_init__(self) -> None:
        check_ranges(self, "reward")


@dataclass(frozen=True)
class RunConfig:
    """Everything that makes a run what it is; two runs with equal ones are the same."""

    recipe: str = "scenes_soft"
    """Name of the recipe these settings started from."""
    seed: Count = 0
    """Of the weights, the order of the data and every random draw."""
    init_from: str | None = None
    """Folder of a finished run whose best weights this one starts from; None for new ones."""
    data: DataConfig = field(default_factory=DataConfig)
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    decoder: DecoderConfig = field(default_factory=DecoderConfig)
    attention: AttentionConfig = field(default_factory=AttentionConfig)
    search: SearchConfig = field(default_factory=SearchConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
    fit: FitConfig = field(default_factory=FitConfig)

    def __post_init__(self) -> None:
        check_ranges(self)
        _check_reward(self)
        if not self.encoder.trainable:
            _check_frozen("data.random_crop", self.data.random_crop, 0.0)
            rate = self.optimizer.encoder_learning_rate
            _check_frozen("optimizer.encoder_learning_rate", rate, None)
            _check_frozen("fit.batch_by", self.fit.batch_by, "length")


def _check_reward(config: RunConfig) -> None:
    if config.reward.metric == "none":
        if config.reward.bleu_weight:
            raise ValueError(
                "Received an invalid value for key `--reward.bleu_weight`: expected 0 with "
                f"`--reward.metric none`, got {config.reward.bleu_weight}."
            )
        return
    metric = f"with `--reward.metric {config.reward.metric}`"
    if config.init_from is None:
        raise ValueError(
            "Received an invalid value for key `--init-from`: expected a finished run "
            f"{metric}, got None; captions drawn from an untrained model are all worth nothing."
        )
    if config.fit.jit_compile:
        raise ValueError(
            f"Received an invalid value for key `--fit.jit_compile`: expected False {metric}, got "
            "True; XLA cannot ask for a caption's reward."
        )


def _check_frozen(key: str, value: float | str | None, expected: float | str | None) -> None:
    if value != expected:
        raise ValueError(
            f"Received an invalid value for key `--{key}`: expected {expected} for a frozen "
            f"encoder, got {value!r}; `--encoder.trainable True` trains the encoder."
        )


# The state starts from zeros: an encoder trained from scratch would learn to tell the whole picture
# by its mean annotation, and attention would have nothing left to find.
_SCENES = RunConfig(
    recipe="scenes_soft",
    data=DataConfig(name="scenes", min_count=1),
    encoder=EncoderConfig(name="scenes_cnn", trainable=True, image_size=64),
    decoder=DecoderConfig(embedding_dim=128, attention_dim=64, hidden_dim=256, initial_layers=0),
    attention=AttentionConfig(kind="soft", penalty_weight=0.0),
    search=SearchConfig(beam=5, max_length=25),
    optimizer=OptimizerConfig(
        name="adam", learning_rate=2e-3, schedule="cosine", warmup_epochs=0.2
    ),
    fit=FitConfig(epochs=2, batch_size=32, patience=3, validation_images=200),
)

# A sampled location is a noisier lesson than the expectation, and takes longer to learn from.
_SCENES_HARD = dataclasses.replace(_SCENES, fit=dataclasses.replace(_SCENES.fit, epochs=8))

# Thirty thousand captions are learned by heart within a few epochs: most of what is tuned here
# keeps the decoder from it.

_FLICKR8K = RunConfig(
    recipe="flickr8k_soft",
    data=DataConfig(name="flickr8k", min_count=5, mirror=True),
    encoder=EncoderConfig(name="vgg19", weights="imagenet", image_size=224, resize="crop"),
    decoder=DecoderConfig(
        embedding_dim=512,
        attention_dim=256,
        hidden_dim=512,
        annotation_dropout=0.3,
        embedding_dropout=0.5,
        output_dropout=0.5,
    ),
    attention=AttentionConfig(kind="soft", penalty_weight=0.1),
    search=SearchConfig(beam=5, length_power=0.7, max_length=30),
    optimizer=OptimizerConfig(
        name="adamw",
        learning_rate=8e-4,
        schedule="cosine",
        warmup_epochs=0.5,
        weight_decay=0.02,
    ),
    # Greedy BLEU-4 goes up and down by a point from epoch to epoch; CIDEr does not.
    fit=FitConfig(epochs=9, batch_size=64, label_smoothing=0.1, monitor="cider", patience=4),
)


# The settings of the paper's own code for COCO (kelvinxu/arctic-captions); it has none for
# Flickr30k, for which the paper names the same optimiser and vocabulary.
_PAPER = RunConfig(
    data=DataConfig(name="coco_captions", min_count=1, vocabulary_size=10_000, max_length=50),
    encoder=EncoderConfig(name="vgg19", weights="imagenet", image_size=224, resize="crop"),
    decoder=DecoderConfig(
        embedding_dim=512,
        attention_dim=512,
        hidden_dim=1800,
        initial_layers=2,
        initial_dropout=0.5,
        hidden_dropout=0.5,
        output_dropout=0.5,
    ),
    # That code's weight of 1 counts a batch of 64 and the mean of 196 places: 64 / 196 a caption.
    attention=AttentionConfig(kind="soft", penalty_weight=0.327),
    search=SearchConfig(beam=5, max_length=30),
    optimizer=OptimizerConfig(name="adam", learning_rate=2e-4, clip_norm=0.0),
    fit=FitConfig(epochs=50, batch_size=64, patience=10),
)

_FLICKR30K = dataclasses.replace(_PAPER, data=dataclasses.replace(_PAPER.data, name="flickr30k"))

# A small encoder, since one's own pictures may have to do without a GPU; no mirrored pictures,
# since captions may say left and right.
_FOLDER = dataclasses.replace(
    _FLICKR8K,
    data=DataConfig(name="folder", min_count=3),
    encoder=EncoderConfig(name="mobilenet_v2", weights="imagenet", image_size=224, resize="crop"),
    # BLEU-4, as CIDEr says nothing of a handful of dev pictures.
    fit=dataclasses.replace(_FLICKR8K.fit, epochs=20, monitor="bleu_4"),
)


def _noisy(base: RunConfig) -> RunConfig:
    """Less dropout, for hard attention: drawing locations is noise already."""
    decoder = dataclasses.replace(base.decoder, annotation_dropout=0.0, embedding_dropout=0.3)
    return dataclasses.replace(base, decoder=decoder)


def _with_attention(base: RunConfig, data: str, kind: str) -> RunConfig:
    """The same run with another kind of attention."""
    attention = dataclasses.replace(base.attention, kind=kind)
    return dataclasses.replace(base, recipe=f"{data}_{kind}", attention=attention)


RECIPES: dict[str, RunConfig] = {
    config.recipe: config
    for config in (
        _with_attention(_SCENES, "scenes", "soft"),
        _with_attention(_SCENES_HARD, "scenes", "hard"),
        _with_attention(_SCENES, "scenes", "none"),
        _with_attention(_FLICKR8K, "flickr8k", "soft"),
        _with_attention(_noisy(_FLICKR8K), "flickr8k", "hard"),
        _with_attention(_FLICKR8K, "flickr8k", "none"),
        *(_with_attention(_FLICKR30K, "flickr30k", kind) for kind in ("soft", "hard")),
        *(_with_attention(_PAPER, "coco", kind) for kind in ("soft", "hard")),
        _with_attention(_FOLDER, "folder", "soft"),
        _with_attention(_noisy(_FOLDER), "folder", "hard"),
    )
}


def recipe(name: str) -> RunConfig:
    """The captioner's configuration of this name; see `choose`."""
    return choose(RECIPES, name)


def choose(recipes: Mapping[str, T], name: str) -> T:
    """The configuration of this name.

    Raises:
        ValueError: There is no such recipe; the message lists them.
    """
    if name not in recipes:
        raise ValueError(
            f"Received an invalid value for argument `--recipe`: expected one of "
            f"{', '.join(recipes)}, got {name!r}."
        )
    return recipes[name]


def read_run_config(run_dir: Path) -> RunConfig:
    """The configuration a run was trained with.

    Raises:
        ValueError: The folder is not a run, or one of another version.
    """
    path = run_dir / CONFIG_FILE
    if not path.is_file():
        raise ValueError(f"{run_dir} is not a run: it has no {CONFIG_FILE}.")
    try:
        values = json.loads(path.read_text("utf-8"))
        if SYSTEM_KEY in values:
            raise ValueError(f"it is one of the digit system {values[SYSTEM_KEY]!r}.")
        return from_dict(RunConfig, values)
    except ValueError as error:
        raise ValueError(f"{path} is not a configuration of this version: {error}") from error
