"""Frozen dataclasses that say what a captioner is, to and from plain dictionaries.

They hold everything needed to build the model again and nothing about how it was trained.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from sat_tf.ranges import Count, Probability, Share, Size, Weight, check_ranges
from sat_tf.vocabulary import PAD, START, UNK

T = TypeVar("T")

CONFIG_FILE = "config.json"
"""Name of a run's configuration, in its folder."""
SYSTEM_KEY = "system"
"""The key of a configuration that names a system other than a captioner."""

Inference = Literal["expectation", "sample", "argmax"]
"""How hard attention chooses a location when it captions."""
Bound = Literal["elbo", "importance_weighted"]
"""Lower bound on log p(y|a) that hard attention maximises."""
Baseline = Literal["none", "moving_average", "leave_one_out", "learned"]
"""What is taken from a return before it weighs a location drawn."""


@dataclass(frozen=True)
class EncoderConfig:
    """The convolutional network whose lower layer gives the annotations `a_1 ... a_L`."""

    name: str = "scenes_cnn"
    """`scenes_cnn` or a keras.applications model: vgg19, resnet50, mobilenet_v2, ..."""
    layer: str | None = None
    """Layer to tap; None takes the backbone's default (vgg19: block5_conv4)."""
    weights: str | None = None
    """`imagenet`, the path of a weights file, or None for random weights."""
    trainable: bool = False
    """Train the encoder with the decoder; a frozen one is computed once and stored."""
    trainable_from: str | None = None
    """Fine-tune a trained encoder: the first layer that learns; None for all, from scratch."""
    image_size: Size = 224
    """Side of the square picture the encoder sees, pixels."""
    resize: Literal["crop", "squash"] = "crop"
    """`crop`: short side to image_size, then the centre; `squash`: both sides at once."""

    def __post_init__(self) -> None:
        check_ranges(self, "encoder")
        if self.trainable_from is not None and not self.trainable:
            raise ValueError(
                "Received an invalid value for key `--encoder.trainable_from`: expected None for "
                f"a frozen encoder, got {self.trainable_from!r}; `--encoder.trainable True` trains "
                "the encoder."
            )


@dataclass(frozen=True)
class DecoderConfig:
    """The attention LSTM, its initial state and the deep output."""

    embedding_dim: Size = 512
    """Width m of the word embeddings."""
    attention_dim: Size = 512
    """Width of the hidden layer of the attention MLP (eq. 4)."""
    hidden_dim: Size = 512
    """Width N of the LSTM."""
    initial_layers: Count = 1
    """Layers of the MLPs that give c_0 and h_0; 0 starts from zeros."""
    gate: bool = True
    """Multiply the context by the gating scalar beta (Sec. 4.2.1)."""
    output_previous_word: bool = True
    """Deep output (eq. 7) sees the previous word."""
    output_context: bool = True
    """Deep output (eq. 7) sees the context."""
    output_tanh: bool = True
    """tanh inside the deep output, as in the released code; eq. 7 has none."""
    annotation_dropout: Share = 0.0
    """Dropout on the annotations."""
    initial_dropout: Share = 0.0
    """Dropout inside the MLPs of the initial state (needs initial_layers > 1)."""
    embedding_dropout: Share = 0.0
    """Dropout on the embeddings of the previous words."""
    hidden_dropout: Share = 0.0
    """Dropout on h_t before the deep output."""
    output_dropout: Share = 0.0
    """Dropout on the hidden layer of the deep output."""

    def __post_init__(self) -> None:
        check_ranges(self, "decoder")


@dataclass(frozen=True)
class Preset:
    """Constants of hard attention; `AttentionConfig` can replace those it has a key for."""

    reward_weight: float
    entropy_weight: float
    expectation_probability: float
    samples: int = 1
    baseline: Baseline = "moving_average"
    bound: Bound = "elbo"
    reward_to_go: bool = False
    switch_per_minibatch: bool = False
    """One draw of the expectation switch a minibatch instead of one an image."""
    reward_per_word: bool = False
    """The reward is log p over the caption's number of words."""
    times_batch: bool = False
    """The two weights grow with the batch: the code divides the likelihood by B, not them."""


_UNBIASED = Preset(1.0, 0.0, 0.0, samples=5, baseline="leave_one_out", reward_to_go=True)

PRESETS = {
    "paper": Preset(0.1, 0.002, 0.5),
    "arctic": Preset(
        0.1, 0.002, 0.5, switch_per_minibatch=True, reward_per_word=True, times_batch=True
    ),
    "rloo": _UNBIASED,
    "vimco": dataclasses.replace(_UNBIASED, bound="importance_weighted"),
}


@dataclass(frozen=True)
class AttentionConfig:
    """How the decoder attends, and the terms attention adds to the loss."""

    kind: Literal["soft", "hard", "none"] = "soft"
    """soft: eq. 13; hard: eq. 8-12; none: the mean annotation at every step (the baseline)."""
    penalty_weight: Weight = 1.0
    """lambda of the doubly stochastic penalty (eq. 14), per caption; of soft attention only."""
    preset: Literal["paper", "arctic", "rloo", "vimco"] = "paper"
    """Hard attention's constants: the paper's text, the released code's behaviour, or an unbiased
    gradient from several samples, of the ELBO (rloo) or the importance-weighted bound (vimco)."""
    samples: Size | None = None
    """M, samples a caption, over one pass of the encoder; None takes the preset's."""
    bound: Bound | None = None
    """What is maximised; None takes the preset's."""
    baseline: Baseline | None = None
    """Taken from the return; None takes the preset's."""
    reward_to_go: bool | None = None
    """A location answers for its word and those after it, not for all; None takes the preset's."""
    reward_weight: Weight | None = None
    """lambda_r of the score-function term; None takes the preset's."""
    entropy_weight: Weight | None = None
    """lambda_e of the entropy term; None takes the preset's."""
    baseline_decay: Probability = 0.9
    """Decay of the moving-average baseline."""
    expectation_probability: Probability | None = None
    """Probability with which the expectation replaces the samples; None takes the preset's."""
    inference: Inference = "expectation"
    """What hard attention does when it captions."""

    def __post_init__(self) -> None:
        check_ranges(self, "attention")
        _check_estimator(self.estimator)

    @property
    def selection(self) -> Inference:
        """How a location is chosen when a caption is written; soft attention has one way."""
        return self.inference if self.kind == "hard" else "expectation"

    @property
    def estimator(self) -> Preset:
        """The preset with the values given in place of its own."""
        preset = PRESETS[self.preset]
        given = {f.name: getattr(self, f.name, None) for f in dataclasses.fields(preset)}
        known = {name: value for name, value in given.items() if value is not None}
        return dataclasses.replace(preset, **known)


def _check_estimator(chosen: Preset) -> None:
    """See that the settings of hard attention's estimator do not contradict each other."""
    if chosen.baseline == "leave_one_out" and chosen.samples < 2:
        _refuse("baseline", "`--attention.samples` of at least 2 for leave_one_out", chosen.samples)
    if chosen.bound == "elbo":
        return
    if chosen.samples < 2:
        needed = "`--attention.samples` of at least 2 for importance_weighted (1 gives the elbo)"
        _refuse("bound", needed, chosen.samples)
    if chosen.reward_per_word:
        needed = "elbo with the preset arctic, whose reward is a mean over words"
        _refuse("bound", needed, chosen.bound)
    if chosen.reward_to_go and chosen.baseline != "leave_one_out":
        needed = "False for importance_weighted, which is no sum over words, unless the baseline "
        _refuse("reward_to_go", f"{needed}is leave_one_out", f"{chosen.baseline} and True")


def _refuse(key: str, expected: str, got: object) -> None:
    raise ValueError(
        f"Received an invalid value for key `--attention.{key}`: expected {expected}, got {got}."
    )


@dataclass(frozen=True)
class SearchConfig:
    """Beam search at inference."""

    beam: Size = 5
    """Hypotheses kept; 1 is greedy."""
    length_power: Weight = 0.0
    """Scores are log p / length^p; 0 ranks by log p, as the released code does."""
    max_length: Size = 30
    """Most words of a caption."""
    suppress_unknown: bool = True
    """Never generate <unk>."""

    def __post_init__(self) -> None:
        check_ranges(self, "search")

    @property
    def forbidden(self) -> tuple[int, ...]:
        """Ids that are never generated."""
        return (PAD, START, UNK) if self.suppress_unknown else (PAD, START)


@dataclass(frozen=True)
class CaptionerConfig:
    """A whole captioner."""

    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    decoder: DecoderConfig = field(default_factory=DecoderConfig)
    attention: AttentionConfig = field(default_factory=AttentionConfig)
    search: SearchConfig = field(default_factory=SearchConfig)


def with_search(search: SearchConfig, **given: int | float | None) -> SearchConfig:
    """The search with the settings given on the command line; None keeps the run's own."""
    changed = {name: value for name, value in given.items() if value is not None}
    return dataclasses.replace(search, **changed)


def to_dict(config: Any) -> dict[str, Any]:
    """The dataclass as nested dictionaries that `json` can write."""
    return dataclasses.asdict(config)


def from_dict(cls: type[T], values: dict[str, Any], where: str = "") -> T:
    """Build dataclass `cls` from nested dictionaries.

    Args:
        cls: A dataclass type.
        values: Its fields; missing ones take their defaults.
        where: Dotted name of `cls` inside the whole configuration, for messages.

    Returns:
        An instance of `cls`.

    Raises:
        ValueError: A key is unknown, or a value has the wrong type or is out of its range; the
            message names it.
    """
    hints = typing.get_type_hints(cls)
    unknown = sorted(set(values) - set(hints))
    if unknown:
        raise ValueError(
            f"Received an unknown configuration key `{where}{unknown[0]}`: "
            f"expected one of {', '.join(sorted(hints))}."
        )
    made = {name: _convert(hints[name], value, f"{where}{name}") for name, value in values.items()}
    return cls(**made)


def _convert(hint: Any, value: Any, name: str) -> Any:
    """`value` as the annotated type, or an error that names the key."""
    if dataclasses.is_dataclass(hint) and isinstance(value, dict):
        return from_dict(hint, value, f"{name}.")
    if not _matches(hint, value):
        raise ValueError(
            f"Received an invalid value for key `{name}`: expected {_describe(hint)}, "
            f"got {value!r}."
        )
    return float(value) if hint is float else value


def _matches(hint: Any, value: Any) -> bool:
    origin = typing.get_origin(hint)
    if origin is Literal:
        return value in typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_matches(option, value) for option in typing.get_args(hint))
    if hint is type(None):
        return value is None
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)


def _describe(hint: Any) -> str:
    if typing.get_origin(hint) is Literal:
        return f"one of {', '.join(map(str, typing.get_args(hint)))}"
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " or ".join(map(_describe, typing.get_args(hint)))
    return getattr(hint, "__name__", str(hint).replace("NoneType", "None"))
