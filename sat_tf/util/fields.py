"""Fields of configurations: their ranges, the check of types and ranges, and their JSON."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import numbers
import os
import sys
import types
import typing
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

import numpy as np

from sat_tf.util.errors import invalid_value
from sat_tf.util.removed import removed_flag

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_LONGEST = 120  # characters of a value in a message
_TAKEN = {bool: (bool, np.bool_), str: (str, os.PathLike), Any: object}
"""Types with values that count as those of another, numbers aside."""


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
        edge = (self.without_low and value == self.low) or (
            self.without_high and value == self.high
        )
        return self.low <= value <= self.high and value < math.inf and not edge

    def __str__(self) -> str:
        if self.high == math.inf:
            return f"a number {'above' if self.without_low else 'of at least'} {self.low:g}"
        left, right = "(" if self.without_low else "[", ")" if self.without_high else "]"
        return f"a number in {left}{self.low:g}, {self.high:g}{right}"


PositiveInt = Annotated[int, Range(1)]
Size = Annotated[int, Range(1, 2**14)]
"""A width, side or number of parts of a model; a larger one is a slip that takes all memory."""
NonNegativeInt = Annotated[int, Range(0)]
Positive = Annotated[float, Range(0, without_low=True)]
NonNegative = Annotated[float, Range(0)]
Probability = Annotated[float, Range(0, 1)]
Fraction = Annotated[float, Range(0, 1, without_high=True)]
"""A part of a whole that may not be all of it, such as a dropout rate."""


def check_fields(config: Any, group: str = "") -> None:
    """Checks the fields of a dataclass against their annotations: the types, then the ranges.

    Raises:
        ValueError: A value has the wrong type or is out of its range; the message names its key as
            the command line does.
    """
    hints = typing.get_type_hints(type(config), include_extras=True)
    for field in dataclasses.fields(config):
        key = f"--{group}.{field.name}" if group else f"--{field.name.replace('_', '-')}"
        check_argument(key, getattr(config, field.name), hints[field.name], "key")


def check_argument(name: str, value: T, hint: Any, kind: str = "argument") -> T:
    """Returns `value` after a check against an annotation: type and range.

    A path counts as a string, and a scalar of NumPy as a number or truth value; None is within any
    range, and the elements of a tuple or list are not looked at. `name` and `kind`, "argument" or
    "key", are for the message.

    Raises:
        ValueError: It has the wrong type or is out of its range.
    """
    options = _options(hint)
    if not any(_is_a(option, value) for option, _ in options):
        expected, got = " or ".join(_name(option) for option, _ in options), repr(value)
        got = got if len(got) <= _LONGEST else f"{got[:_LONGEST]}..."
        raise invalid_value(name, expected, got, kind)
    for part in [part for _, metadata in options for part in metadata]:
        if isinstance(part, Range) and value is not None and value not in part:
            raise invalid_value(name, str(part), value, kind)
    return value


def checked(function: F) -> F:
    """Checks the arguments of a method against its annotations before it runs.

    Only ranges, such as `PositiveInt`, and dataclasses are looked at; errors are those of
    `check_argument`.
    """
    signature = inspect.signature(function)

    @functools.wraps(function)
    def with_checks(*args: Any, **kwargs: Any) -> Any:
        hints = typing.get_type_hints(function, include_extras=True)
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            options = _options(hints.get(name, Any))
            if any(metadata or dataclasses.is_dataclass(option) for option, metadata in options):
                check_argument(name, value, hints[name])
        return function(*args, **kwargs)

    with_checks.__signature__ = signature  # Keras reads it to record a layer's arguments
    return with_checks


def _options(hint: Any) -> list[tuple[Any, tuple[Any, ...]]]:
    """Returns the members of a union, or the one type, each with its metadata."""
    if typing.get_origin(hint) is Annotated:
        return [(option, hint.__metadata__) for option, _ in _options(hint.__origin__)]
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return [found for option in typing.get_args(hint) for found in _options(option)]
    return [(hint, ())]


def _is_a(hint: Any, value: Any) -> bool:
    if typing.get_origin(hint) is Literal:
        return isinstance(value, Hashable) and value in typing.get_args(hint)
    if hint in (int, float):  # a float can hold it, and a truth value is none
        number = isinstance(value, numbers.Integral if hint is int else numbers.Real)
        huge = isinstance(value, numbers.Integral) and abs(value) > sys.float_info.max
        return number and not isinstance(value, bool) and not huge
    kind = typing.get_origin(hint) or hint
    return not isinstance(kind, type) or isinstance(value, _TAKEN.get(kind, kind))


def _name(hint: Any) -> str:
    if typing.get_origin(hint) is Literal:
        return f"one of {', '.join(map(str, typing.get_args(hint)))}"
    return getattr(hint, "__name__", str(hint)).replace("NoneType", "None")


def to_dict(config: Any) -> dict[str, Any]:
    """Returns a dataclass as nested dictionaries that `json` can write."""

    def plain(value: Any) -> Any:
        if isinstance(value, np.generic):
            return value.item()
        return os.fspath(value) if isinstance(value, os.PathLike) else value

    return dataclasses.asdict(
        config, dict_factory=lambda pairs: {name: plain(value) for name, value in pairs}
    )


def replaced(config: T, **changes: Any) -> T:
    """Returns a dataclass with changed fields; a dictionary changes those of a nested one."""
    for name, value in changes.items():
        if isinstance(value, dict):
            changes[name] = replaced(getattr(config, name), **value)
    return dataclasses.replace(config, **changes)


def flat(mapping: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flattens nested mappings, with dotted names."""
    found = {}
    for key, value in mapping.items():
        nested = isinstance(value, Mapping)
        found |= flat(value, f"{prefix}{key}.") if nested else {prefix + key: value}
    return found


def from_dict(cls: type[T], values: dict[str, Any], where: str = "") -> T:
    """Builds a dataclass from nested dictionaries; whole numbers become floats where asked for.

    Missing fields take their defaults, and a setting of an earlier version is passed over if it was
    off (None or False). `where` is the dotted name of `cls` inside the whole configuration, for
    messages.

    Raises:
        ValueError: A key is unknown, or a value has the wrong type or is out of its range; the
            message names it.
    """
    hints = typing.get_type_hints(cls)
    made = {}
    for name, value in values.items():
        if name not in hints:
            former = getattr(cls, "FORMER", {})  # of keys of earlier versions, the value of now
            gone = removed_flag([f"--{where}{name}", str(value)], "")
            if value == former[name] if name in former else gone and value in (None, False):
                continue
            known = ", ".join(sorted(hints))
            unknown = f"Received an unknown configuration key `{where}{name}`: expected one of "
            raise ValueError(gone or f"{unknown}{known}.")
        hint, key = hints[name], f"{where}{name}"
        if dataclasses.is_dataclass(hint) and isinstance(value, dict):
            made[name] = from_dict(hint, value, f"{key}.")
        else:
            made[name] = check_argument(key, value, hint, "key")
            made[name] = float(value) if hint is float else value
    return cls(**made)
