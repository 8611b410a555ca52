"""Dataclasses to and from plain dictionaries, with types checked."""

from __future__ import annotations

import dataclasses
import math
import numbers
import os
import types
import typing
from collections.abc import Hashable, Mapping
from typing import Annotated, Any, Literal, TypeVar

import numpy as np

from sat_tf.errors import invalid_value, is_number

T = TypeVar("T")

_LONGEST = 120  # characters of a value in a message


def to_dict(config: Any) -> dict[str, Any]:
    """Returns a dataclass as nested dictionaries that `json` can write."""
    return _plain(dataclasses.asdict(config))


def _plain(value: Any) -> Any:
    """Converts the scalars of NumPy and the paths that `check_type` accepts."""
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, np.generic):
        return value.item()
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def finite(value: Any) -> Any:
    """Replaces numbers that are not finite, which JSON does not have, by None, at any depth."""
    if isinstance(value, Mapping):
        return {key: finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def from_dict(cls: type[T], values: dict[str, Any], where: str = "") -> T:
    """Builds a dataclass from nested dictionaries.

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
    """Returns the value as its annotated type; the error names the key."""
    if dataclasses.is_dataclass(hint) and isinstance(value, dict):
        return from_dict(hint, value, f"{name}.")
    check_type(hint, value, name)
    return float(value) if hint is float else value


def check_type(hint: Any, value: Any, name: str, kind: str = "key") -> None:
    """Checks a value against an annotation; an element of a tuple or list is not looked at.

    A path counts as a string, and a scalar of NumPy as a number or truth value.

    Args:
        hint: The annotation.
        value: The value.
        name: Its key or argument.
        kind: "key" or "argument".

    Raises:
        ValueError: It does not match.
    """
    if not _matches(hint, value):
        got = repr(value)
        got = got if len(got) <= _LONGEST else f"{got[:_LONGEST]}..."
        raise invalid_value(name, _describe(hint), got, kind)


def _matches(hint: Any, value: Any) -> bool:
    origin = typing.get_origin(hint)
    if origin is Annotated:
        return _matches(typing.get_args(hint)[0], value)
    if origin is Literal:
        return isinstance(value, Hashable) and value in typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_matches(option, value) for option in typing.get_args(hint))
    if hint is float:
        return is_number(value)
    if hint is int:
        return is_number(value, numbers.Integral)
    if hint is bool:
        return isinstance(value, bool | np.bool_)
    if hint is str:
        return isinstance(value, str | os.PathLike)
    kind = origin or hint
    return kind is Any or not isinstance(kind, type) or isinstance(value, kind)


def _describe(hint: Any) -> str:
    if typing.get_origin(hint) is Annotated:
        return _describe(typing.get_args(hint)[0])
    if typing.get_origin(hint) is Literal:
        return f"one of {', '.join(map(str, typing.get_args(hint)))}"
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " or ".join(map(_describe, typing.get_args(hint)))
    return getattr(hint, "__name__", str(hint)).replace("NoneType", "None")
