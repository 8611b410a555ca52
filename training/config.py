"""Settings that runs of every task share: the optimizer and the training loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

from sat_tf.fields import (
    NonNegative,
    NonNegativeInt,
    Positive,
    PositiveInt,
    check_fields,
    from_dict,
)

T = TypeVar("T")

LOWER_IS_BETTER = ("nll", "error")
"""Dev scores of which a lower one is better; of all others a higher one is."""

_FORMER_KEYS = {"pictures": "figures"}
_FORMER_VALUES = (("batch_by", "picture", "image"),)


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

    @property
    def sign(self) -> float:
        """Factor that makes a higher monitored score the better one: 1.0 or -1.0."""
        return -1.0 if self.monitor in LOWER_IS_BETTER else 1.0


def read_saved(kind: type[T], values: dict[str, Any]) -> T:
    """Builds the configuration of a run from its saved form, which may be an earlier version's.

    Args:
        kind: Type of the configuration.
        values: The configuration in `config.json` or a report. Those keys and values of `fit` that
            had another name in an earlier version are read under either name.

    Raises:
        ValueError: See `from_dict`.
    """
    match values:
        case {"fit": dict(fit)}:
            values = values | {"fit": _renamed(fit)}
    return from_dict(kind, values)


def _renamed(fit: dict[str, Any]) -> dict[str, Any]:
    """Replaces former names; a former key beside its present one is left to be refused."""
    keys = {old: new for old, new in _FORMER_KEYS.items() if new not in fit}
    fit = {keys.get(key, key): value for key, value in fit.items()}
    for key, old, new in _FORMER_VALUES:
        if fit.get(key) == old:
            fit[key] = new
    return fit
