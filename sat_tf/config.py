"""Configuration of a captioner: its model, its objective and its search."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from sat_tf.text.vocabulary import PAD, START, UNK
from sat_tf.util.errors import invalid_value
from sat_tf.util.fields import (
    Fraction,
    NonNegative,
    NonNegativeInt,
    PositiveInt,
    Probability,
    Range,
    Size,
    check_fields,
)

Inference = Literal["expectation", "sample", "argmax"]
"""Selection of a location by hard attention when it captions."""
Bound = Literal["elbo", "importance_weighted"]
"""Lower bound on log p(y|a) that hard attention maximises."""
Baseline = Literal["none", "moving_average", "leave_one_out"]
"""Value subtracted from the return of a sampled location (b in eq. 12)."""


ImageSize = Annotated[int, Range(1, 2048)]
"""Side of the encoder's square, pixels; of a larger one a network's first maps take gigabytes."""

_MOST_BACKBONES = 4
SCENES_CNN = "scenes_cnn"
"""Name of the small network for drawn scenes."""
HUB = "keras_hub:"
"""Beginning of the names of KerasHub\'s patch transformers."""
JOIN = "+"
"""Joins the names, layers and weights of backbones side by side."""


def weights_files(weights: str | None) -> list[str]:
    """Returns the parts of `encoder.weights`: a file, or one of each backbone side by side."""
    return [part for part in str(weights or "").split(JOIN) if part]


@dataclass(frozen=True)
class EncoderConfig:
    """The convolutional network; a lower layer gives the annotations `a_1 ... a_L`."""

    name: str = SCENES_CNN
    """Backbone: `scenes_cnn`, a keras.applications model (vgg19, resnet50, mobilenet_v2, ...) or
    `keras_hub:PRESET`; `A+B` puts two side by side."""
    layer: str | None = None
    """Layer to tap; None takes the backbone's default (vgg19: block5_conv4); `X+Y` for two."""
    weights: str | None = None
    """Pretrained weights: `imagenet` or the path of a file; None for random ones; `F+G` for two."""
    trainable: bool = False
    """Train the encoder with the decoder; a frozen one is computed once and stored."""
    trainable_from: str | None = None
    """Fine-tune a trained encoder: the first layer that learns; None for all, from scratch."""
    image_size: ImageSize = 224
    """Side of the square image the encoder sees, pixels."""
    resize: Literal["crop", "squash"] = "crop"
    """Scaling: `crop` takes the centred square, `squash` the whole image, out of proportion."""

    def __post_init__(self) -> None:
        check_fields(self, "encoder")
        if self.name.count(JOIN) >= _MOST_BACKBONES:
            expected = f"at most {_MOST_BACKBONES} backbones"
            raise invalid_value("--encoder.name", expected, self.name[:80], kind="key")
        if self.name == SCENES_CNN and self.image_size % 8:
            expected = f"a multiple of 8 for {SCENES_CNN}"
            raise invalid_value("--encoder.image_size", expected, self.image_size, kind="key")
        if self.trainable_from is not None and not self.trainable:
            expected = "None for a frozen encoder (`--encoder.trainable True` trains it)"
            got = repr(self.trainable_from)
            raise invalid_value("--encoder.trainable_from", expected, got, kind="key")


@dataclass(frozen=True)
class DecoderConfig:
    """The attention LSTM, its initial state and the deep output."""

    embedding_dim: Size = 512
    """Width m of the word embeddings."""
    attention_dim: Size = 512
    """Width of the hidden layer of the attention MLP (eq. 4)."""
    hidden_dim: Size = 512
    """Width N of the LSTM."""
    initial_layers: Annotated[int, Range(0, 16)] = 1
    """Layers of the MLPs that give c_0 and h_0; 0 starts from zeros."""
    bottleneck_dim: Size | None = None
    """Width of a ReLU layer between annotations and decoder; None for none, as in the paper."""
    gate: bool = True
    """Multiply the context by a gating scalar, beta (Sec. 4.2.1)."""
    annotation_dropout: Fraction = 0.0
    """Dropout on the annotations."""
    initial_dropout: Fraction = 0.0
    """Dropout inside the MLPs of the initial state (needs initial_layers > 1)."""
    embedding_dropout: Fraction = 0.0
    """Dropout on the embeddings of the previous words."""
    hidden_dropout: Fraction = 0.0
    """Dropout on h_t before the deep output."""
    output_dropout: Fraction = 0.0
    """Dropout on the hidden layer of the deep output."""

    FORMER = {
        "attention_previous_word": False,
        "output_previous_word": True,
        "output_context": True,
        "output_tanh": True,
    }
    """Keys of earlier versions, and the one value that still has its meaning."""

    def __post_init__(self) -> None:
        check_fields(self, "decoder")


@dataclass(frozen=True)
class Preset:
    """Constants of hard attention; keys of `AttentionConfig` replace them."""

    reward_weight: float
    entropy_weight: float
    expectation_probability: float
    samples: int = 1
    baseline: Baseline = "moving_average"
    bound: Bound = "elbo"
    reward_to_go: bool = False
    switch_per_minibatch: bool = False
    """Draw the expectation switch once per minibatch instead of once per image."""
    reward_per_word: bool = False
    """Divide the reward log p by the number of words."""
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
    """Kind of attention, its estimator, and the terms it adds to the loss."""

    kind: Literal["soft", "hard", "none"] = "soft"
    """soft: eq. 13; hard: eq. 8-12; none: the mean annotation at every step (the baseline)."""
    penalty_weight: NonNegative = 1.0
    """lambda of the doubly stochastic penalty (eq. 14), per caption; of soft attention only."""
    supervision_weight: NonNegative = 0.0
    """Weight of the cross-entropy between boxes and alpha."""
    preset: Literal["paper", "arctic", "rloo", "vimco"] = "paper"
    """Hard attention's constants: the paper's text, the released code's behaviour, or an unbiased
    gradient from several samples, of the ELBO (rloo) or the importance-weighted bound (vimco)."""
    samples: PositiveInt | None = None
    """M, samples per caption of hard attention, over one pass of the encoder; None takes the
    preset's."""
    bound: Bound | None = None
    """Lower bound that hard attention maximises; None takes the preset's."""
    baseline: Baseline | None = None
    """Value subtracted from the return of a sampled location; None takes the preset's."""
    reward_to_go: bool | None = None
    """Credit a sampled location with its own and later words only; None takes the preset's."""
    reward_weight: NonNegative | None = None
    """lambda_r, weight of hard attention's score-function term; None takes the preset's."""
    entropy_weight: NonNegative | None = None
    """lambda_e, weight of hard attention's entropy term; None takes the preset's."""
    baseline_decay: Probability = 0.9
    """Decay of the moving-average baseline."""
    expectation_probability: Probability | None = None
    """Probability that the expectation replaces the samples of hard attention; None takes the
    preset's."""
    inference: Inference = "expectation"
    """Selection of a location when captioning, for hard attention."""

    def __post_init__(self) -> None:
        check_fields(self, "attention")
        _check_estimator(self.estimator)
        if self.kind == "none" and self.supervision_weight:
            _refuse("supervision_weight", "0 without attention", self.supervision_weight)

    @property
    def selection(self) -> Inference:
        """Selection of a location when captioning; soft attention takes the expectation."""
        return self.inference if self.kind == "hard" else "expectation"

    @property
    def estimator(self) -> Preset:
        """The preset, with the keys given replacing its values."""
        preset = PRESETS[self.preset]
        given = {f.name: getattr(self, f.name, None) for f in dataclasses.fields(preset)}
        known = {name: value for name, value in given.items() if value is not None}
        return dataclasses.replace(preset, **known)


def _check_estimator(chosen: Preset) -> None:
    """Checks that the settings of an estimator do not contradict each other."""
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
    raise invalid_value(f"--attention.{key}", expected, str(got), kind="key")


@dataclass(frozen=True)
class SearchConfig:
    """Settings of beam search at inference."""

    beam: Annotated[int, Range(1, 1000)] = 5
    """Hypotheses kept; 1 is greedy."""
    length_power: Annotated[float, Range(0, 100)] = 0.0
    """Length normalisation p: scores are log p(caption) / length^p; 0 ranks by log p(caption), as
    the released code does."""
    consensus: Annotated[float, Range(0, 1e6)] = 0.0
    """Above 0, hypotheses are ranked by their similarity, with weights exp(consensus *
    score); best with a beam of 10 or more. 0 ranks by score."""
    max_length: Annotated[int, Range(1, 1000)] = 30
    """The most words of a caption."""
    no_repeat_ngram: NonNegativeInt = 0
    """If above 0, no caption has the same n words in a row twice."""
    suppress_unknown: bool = True
    """Never generate <unk>."""

    FORMER = {"min_length": 1}
    """Keys of earlier versions, and the one value that still has its meaning."""

    def __post_init__(self) -> None:
        check_fields(self, "search")

    @property
    def forbidden(self) -> tuple[int, ...]:
        """Ids of tokens that are never generated."""
        return (PAD, START, UNK) if self.suppress_unknown else (PAD, START)


@dataclass(frozen=True)
class SearchFlags:
    """The search of a command that captions; None keeps the run's own setting."""

    beam: PositiveInt | None = None
    """Hypotheses kept; the run's own by default."""
    length_power: NonNegative | None = None
    """Length normalisation: scores are log p / length^power; the run's own by default."""
    consensus: NonNegative | None = None
    """Above 0, hypotheses are ranked by their similarity; the run's own by default."""
    max_length: PositiveInt | None = None
    """The most words of a caption; the run's own by default."""
    no_repeat_ngram: NonNegativeInt | None = None
    """If above 0, no caption has the same n words in a row twice; the run's own by default."""

    def given(self) -> dict[str, int | float]:
        """Returns the settings that have a value."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def over(self, search: SearchConfig) -> SearchConfig:
        """Returns a search with the given settings replaced."""
        return dataclasses.replace(search, **self.given())


@dataclass(frozen=True)
class CaptionerConfig:
    """Configuration of a whole captioner."""

    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    decoder: DecoderConfig = field(default_factory=DecoderConfig)
    attention: AttentionConfig = field(default_factory=AttentionConfig)
    search: SearchConfig = field(default_factory=SearchConfig)

    def __post_init__(self) -> None:
        check_fields(self)


def other_search(measured: Mapping[str, Any], used: Mapping[str, Any]) -> str:
    """Returns a note if a search that was measured differs from one in use, else an empty text."""
    pairs = [(name, measured.get(name), value) for name, value in used.items()]
    found = "; ".join(f"{name} {one}, not {value}" for name, one, value in pairs if one != value)
    return f"Measured with another search than the one inside: {found}." if found else ""
