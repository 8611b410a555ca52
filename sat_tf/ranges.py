"""Ranges of numbers as annotations of dataclass fields; the check of types and ranges."""

from __future__ import annotations

import dataclasses
import math
import typing
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from sat_tf.errors import invalid_value
from sat_tf.serialization import check_type

T = TypeVar("T")


@dataclass(frozen=True)
class Range:
    """An interval of numbers, closed unless an end is left out.

    Attributes:
        low: Least number.
        high: Greatest number; infinity, itself never a value, for no limit.
        without_low: Leaves out `low`.
        without_high: Leaves out `high`.
    """

    low: float
    high: float = math.inf
    without_low: bool = False
    without_high: bool = False

    def __contains__(self, value: float) -> bool:
        inside = self.low <= value <= self.high and value < math.inf
        at_the_edge = (self.without_low and value == self.low) or (
            self.without_high and value == self.high
        )
        return inside and not at_the_edge

    def __str__(self) -> str:
        if self.high == math.inf:
            return f"a number {'above' if self.without_low else 'of at least'} {self.low:g}"
        left, right = "(" if self.without_low else "[", ")" if self.without_high else "]"
        return f"a number in {left}{self.low:g}, {self.high:g}{right}"


PositiveInt = Annotated[int, Range(1)]
NonNegativeInt = Annotated[int, Range(0)]
Positive = Annotated[float, Range(0, without_low=True)]
NonNegative = Annotated[float, Range(0)]
Probability = Annotated[float, Range(0, 1)]
Fraction = Annotated[float, Range(0, 1, without_high=True)]
"""A part of a whole that may not be all of it, such as a dropout rate."""


def check_fields(config: Any, group: str = "") -> None:
    """Checks the fields of a dataclass against their annotations: the types, then the ranges.

    None is within any range.

    Raises:
        ValueError: A value has the wrong type or is out of its range; the message names its key as
            the command line does.
    """
    hints = typing.get_type_hints(type(config), include_extras=True)
    for field in dataclasses.fields(config):
        name = field.name
        key = f"--{group}.{name}" if group else f"--{name.replace('_', '-')}"
        _check(hints[name], getattr(config, name), key, "key")


def check_argument(name: str, value: T, hint: Any) -> T:
    """Returns `value`, the argument `name`, after a check against an annotation: type and range.

    Raises:
        ValueError: It has the wrong type or is out of its range.
    """
    _check(hint, value, name, "argument")
    return value


def _check(hint: Any, value: Any, name: str, kind: str) -> None:
    check_type(hint, value, name, kind)
    for allowed in _ranges(hint):
        if value is not None and value not in allowed:
            raise invalid_value(name, str(allowed), value, kind)


def _ranges(hint: Any) -> list[Range]:
    """Finds the ranges of an annotation, which may be one option of a union."""
    if typing.get_origin(hint) is Annotated:
        return [part for part in hint.__metadata__ if isinstance(part, Range)]
    return [found for option in typing.get_args(hint) for found in _ranges(option)]
