"""Configuration of the data sets made from digits."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from sat_tf.digits.config import Target, answer_names
from sat_tf.errors import invalid_value
from sat_tf.fields import NonNegativeInt, Positive, PositiveInt, Range, check_fields


@dataclass(frozen=True)
class DigitData:
    """The digits used, and the number of examples made of them."""

    dev_digits: PositiveInt = 5000
    """Digits at the end of x_train that make up the dev split."""
    limit: PositiveInt | None = None
    """Use only the first digits of each split, to try something out."""
    examples: PositiveInt | None = None
    """Examples per epoch; None for as many as there are digits."""

    digits_per_example: ClassVar[int] = 1

    def __post_init__(self) -> None:
        check_fields(self, "data")

    def scored(self) -> DigitData:
        """Returns the same data set without the augmentation of training."""
        return self


@dataclass(frozen=True)
class JitteredData(DigitData):
    """Digits that are shifted and turned a little in training."""

    shift: Annotated[int, Range(0, 27)] = 0
    """Training digits are shifted by up to this many pixels each way, within their 28 x 28."""
    turn: Annotated[float, Range(0, 180)] = 0.0
    """Training digits are turned by up to this many degrees, either way."""

    def scored(self) -> JitteredData:
        """Returns the same data set without the augmentation of training."""
        return dataclasses.replace(self, shift=0, turn=0.0)


@dataclass(frozen=True)
class StripsData(JitteredData):
    """Digits side by side."""

    portions: PositiveInt = 5
    """Digits per strip."""

    @property
    def digits_per_example(self) -> int:
        """Digits per strip."""
        return self.portions


@dataclass(frozen=True)
class CanvasData(JitteredData):
    """One digit, turned, resized, moved and hidden among scraps of others."""

    size: Annotated[int, Range(28)] = 28
    """Side of the canvas, pixels; a digit is anywhere on a larger one."""
    rotation: Annotated[float, Range(0, 180)] = 0.0
    """Digits are turned by up to this many degrees, either way, in all splits."""
    scale_from: Positive = 1.0
    """Smallest size of a digit, as a factor."""
    scale_to: Positive = 1.0
    """Largest size of a digit, as a factor."""
    clutter: NonNegativeInt = 0
    """Scraps of other digits laid on the canvas."""
    clutter_size: Annotated[int, Range(1, 28)] = 8
    """Side of a scrap, pixels."""

    target: ClassVar[Target] = "digit"

    answers: ClassVar[tuple[str, ...]] = answer_names("digit")
    """Names of the classes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scale_from > self.scale_to:
            expected = f"at most `--data.scale_to`, {self.scale_to}"
            raise invalid_value("--data.scale_from", expected, self.scale_from, "key")


@dataclass(frozen=True)
class PairData(DigitData):
    """Two digits on a canvas, at least 20 pixels from one another along an axis."""

    # A smaller canvas has no room for two digits 20 pixels apart.
    size: Annotated[int, Range(48)] = 60
    """Side of the canvas, pixels."""
    target: Literal["pair", "sum"] = "pair"
    """The question: which two digits, in any order (55 classes), or their sum (19 classes)."""

    digits_per_example: ClassVar[int] = 2

    @property
    def answers(self) -> tuple[str, ...]:
        """Names of the classes, in the order of their numbers."""
        return answer_names(self.target)
